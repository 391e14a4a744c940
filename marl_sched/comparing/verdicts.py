"""What a ratio with its interval allows to say, and whether the project's bars are reached."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from marl_sched.agents.heuristics import RULES
from marl_sched.comparing.capacity import LARGEST_LOAD, Capacity, LoadRatio
from marl_sched.config.base import Model, Positive, PositiveInt
from marl_sched.config.loading import read_mapping
from marl_sched.config.messages import problems
from marl_sched.errors import ConfigError
from marl_sched.evaluation import Evaluation
from marl_sched.report_tables import HIGHER_IS_BETTER, NEUTRAL
from marl_sched.statistics import Ratio

BARS_FILE = Path(__file__).parents[1] / "data" / "bars.yaml"
TIE_HALF_WIDTH = 0.02
"""A tie is claimed only where the interval holds 1 and is at most this wide to either side."""
BETTER, WORSE, TIED, OPEN = "better", "worse", "tied", "not decided"
NOT_WORSE = "better or tied"
"""The interval holds 1 and is too wide for a tie on its better side only: what it leaves open is
whether the policy is better or tied (non-inferiority)."""


class Bar(Model):
    """One ratio that the project wants to reach."""

    config: str
    """Name of the experiment."""
    setting: str = "own"
    """Name of the study's setting."""
    policy: str | None = None
    """Whose ratio; null: the study's own policy."""
    metric: str
    """Which metric; lower is better."""
    against: list[str]
    """Baselines."""
    must: Positive
    """Largest ratio that counts."""
    aim: Positive
    """Largest ratio that is hoped for."""
    excludes_one: bool = False
    """The interval must exclude 1."""


class LoadBar(Model):
    """One ratio of largest loads that the project wants to reach; more is better."""

    config: str
    """Name of the experiment."""
    bound: Positive
    """Largest rate of violations that a load may have."""
    against: str
    """Baseline."""
    must: Positive
    """Ratio that must be exceeded."""
    aim: Positive
    """Ratio that is hoped for."""


class BestOrTied(Model):
    """Metrics in which no rival may be better."""

    configs: list[str]
    """Names of the experiments."""
    metrics: list[str]
    """Which metrics."""
    against: list[str]
    """Rivals."""


class Bars(Model):
    """All of them."""

    min_training_seeds: PositiveInt
    """Fewest training seeds that a claim needs."""
    min_episodes: PositiveInt
    """Fewest test episodes that a claim needs."""
    bars: list[Bar]
    """Single ratios."""
    largest_loads: list[LoadBar]
    """Ratios of largest loads."""
    best_or_tied: BestOrTied
    """Ratios to many rivals."""


@dataclass(frozen=True)
class Check:
    """A bar, measured.

    Attributes:
        measure: What is measured.
        must: What counts.
        aim: What is hoped for.
        ratio: What was found.
        is_reached: Whether it counts.
        is_aim_reached: Whether the aim is reached too; None where there is none.
        note: What weakens it.
    """

    measure: str
    must: str
    aim: str
    ratio: Ratio
    is_reached: bool
    is_aim_reached: bool | None
    note: str


def load_bars(path: Path = BARS_FILE) -> Bars:
    """Read the bars.

    Raises:
        ConfigError: They are not valid.
    """
    try:
        return Bars.model_validate(read_mapping(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {problems(error, Bars)[0]}") from None


def verdict(ratio: Ratio) -> str:
    """Say better or worse where the interval excludes 1, tied where it is narrow around it.

    Where it is narrow to the worse side only: better or tied.
    """
    low, high = ratio.ci95_low, ratio.ci95_high
    if low is None or high is None or ratio.metric.startswith(NEUTRAL):
        return ""
    is_more_better = ratio.metric in HIGHER_IS_BETTER
    if low > 1.0 or high < 1.0:
        return BETTER if (high < 1.0) != is_more_better else WORSE
    to_better, to_worse = (high - 1.0, 1.0 - low) if is_more_better else (1.0 - low, high - 1.0)
    if to_worse > TIE_HALF_WIDTH:
        return OPEN
    return TIED if to_better <= TIE_HALF_WIDTH else NOT_WORSE


def checks(
    evaluations: Mapping[str, Evaluation], ours: Iterable[str], bars: Bars
) -> Iterator[Check]:
    """Yield every bar that these evaluations, by setting, say something about."""
    first = next(iter(ours), "")
    for bar in bars.bars:
        evaluation = evaluations.get(bar.setting)
        if bar.setting == "own" and evaluation is None:
            evaluation = next(iter(evaluations.values()))
        if evaluation is None or evaluation.origin["experiment"] != bar.config:
            continue
        policy = bar.policy or first
        for ratio in _found(evaluation, policy, bar.metric, bar.against):
            yield _check(bar, ratio, _weakness(evaluation, policy, bars))
    evaluation = next(iter(evaluations.values()))
    rivals = bars.best_or_tied
    if evaluation.origin["experiment"] in rivals.configs:
        for metric in rivals.metrics:
            for ratio in _found(evaluation, first, metric, rivals.against):
                yield _best_or_tied(ratio, _weakness(evaluation, first, bars))


def load_checks(capacity: Capacity, bars: Bars) -> Iterator[Check]:
    """Yield every bar that these largest loads say something about, for each learned policy."""
    n_seeds = {one.policy: one.n_training_seeds for one in capacity.loads}
    for bar in bars.largest_loads:
        origin = capacity.origin
        if (origin["experiment"], origin["bound"]) != (bar.config, bar.bound):
            continue
        for one in capacity.ratios:
            if one.policy not in RULES and one.baseline == bar.against:
                note = _lacks(bars, n_seeds[one.policy], origin["n_episodes"])
                yield _load_check(bar, one, note)


def _load_check(bar: LoadBar, one: LoadRatio, note: str) -> Check:
    found = one.found
    is_above = found.ci95_low is not None and found.ci95_low > bar.must
    return Check(
        measure=f"{LARGEST_LOAD} of {one.policy} vs {one.baseline}",
        must=f"> {bar.must:g}, the interval too",
        aim=f"{bar.aim:g}",
        ratio=Ratio(
            one.policy,
            one.baseline,
            LARGEST_LOAD,
            *(found.value, found.ci95_low, found.ci95_high),
            *(None, None, None),
        ),
        is_reached=is_above and not note,
        is_aim_reached=is_above and found.value is not None and found.value >= bar.aim,
        note=note,
    )


def _found(
    evaluation: Evaluation, policy: str, metric: str, against: Iterable[str]
) -> Iterator[Ratio]:
    by_baseline = {
        ratio.baseline: ratio
        for ratio in evaluation.ratios
        if ratio.policy == policy and ratio.metric == metric
    }
    for baseline in against:
        if baseline in by_baseline:
            yield by_baseline[baseline]


def _check(bar: Bar, ratio: Ratio, note: str) -> Check:
    excludes = " and the interval excludes 1" if bar.excludes_one else ""
    is_below = ratio.ci95_high is not None and ratio.ci95_high < 1.0
    is_sure = is_below or not bar.excludes_one
    value = ratio.ratio
    return Check(
        measure=_measure(ratio, bar.setting),
        must=f"<= {bar.must:g}{excludes}",
        aim=f"{bar.aim:g}",
        ratio=ratio,
        is_reached=value is not None and value <= bar.must and is_sure and not note,
        is_aim_reached=value is not None and value <= bar.aim and is_sure,
        note=note,
    )


def _best_or_tied(ratio: Ratio, note: str) -> Check:
    is_equal = ratio.ratio == ratio.ci95_low == ratio.ci95_high == 1.0
    is_good = verdict(ratio) in (BETTER, TIED, NOT_WORSE) or is_equal
    return Check(
        _measure(ratio, "own"), "better or tied", "", ratio, is_good and not note, None, note
    )


def _measure(ratio: Ratio, setting: str) -> str:
    where = "" if setting == "own" else f", {setting}"
    return f"{ratio.metric} of {ratio.policy} vs {ratio.baseline}{where}"


def _weakness(evaluation: Evaluation, policy: str, bars: Bars) -> str:
    """Say what a claim about a policy lacks."""
    n_seeds, n_episodes = evaluation.metrics[policy]["objective"].shape
    return _lacks(bars, n_seeds, n_episodes)


def _lacks(bars: Bars, n_seeds: int, n_episodes: int) -> str:
    lacks = []
    if n_seeds < bars.min_training_seeds:
        lacks.append(f"{n_seeds} of {bars.min_training_seeds} training seeds")
    if n_episodes < bars.min_episodes:
        lacks.append(f"{n_episodes} of {bars.min_episodes} episodes")
    return " and ".join(lacks)
