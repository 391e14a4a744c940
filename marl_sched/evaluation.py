"""Play policies over the same held-out episodes and say how they compare.

Shapes: S training seeds of a policy, E episodes.
"""

import json
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.heuristics import FIXED_RULES
from marl_sched.agents.policy import Policy
from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.config import Experiment
from marl_sched.config.hashing import config_hash
from marl_sched.envs.vector import VectorEnv
from marl_sched.errors import RunError
from marl_sched.files import write_atomically
from marl_sched.statistics import Bootstrap, Ratio, Row, best_fixed, summarize

EVALUATION_FILE = "evaluation.json"
EPISODES_FILE = "evaluation_episodes.npz"
TIMING_FILE = "evaluation_timing.json"
"""What differs from run to run, kept apart from the results, which do not."""
_KIND = "evaluation"
_LATENCY = "decision_latency_us"

EpisodeMetrics = dict[str, NDArray[np.float64]]
"""Metric name -> (E,) values."""

PolicyFactory = Callable[[str], Policy]
"""From a zone's name to a new policy for it."""

Progress = Callable[[str, int, int], None]
"""Called with (policy, episodes played, episodes to play) after every batch."""


class EpisodeEnv(Protocol):
    """What evaluation needs of VectorEnv."""

    def run(
        self, policies: Mapping[str, Policy], split: str, episodes: Sequence[int]
    ) -> Mapping[str, NDArray[np.float64]]:
        """Play one episode a replica with one policy a zone; return metric -> (E,) values."""


EnvFactory = Callable[[Experiment, int], EpisodeEnv]
"""From an experiment and a number of replicas to an environment."""


def make_plain_env(experiment: Experiment, n_replicas: int) -> VectorEnv:
    """Return an environment that settles no rewards: nobody learns from an evaluation."""
    return VectorEnv(experiment, n_replicas, with_rewards=False)


class EpisodePlayer:
    """Plays any number of episodes in batches, keeping its environments."""

    def __init__(
        self, experiment: Experiment, replicas: int, make_env: EnvFactory = make_plain_env
    ) -> None:
        """Get ready to play.

        Args:
            experiment: The experiment.
            replicas: Episodes a batch; the last batch may be smaller.
            make_env: Makes the environment of a batch size.
        """
        self._experiment = experiment
        self._replicas = replicas
        self._make_env = make_env
        self._envs: dict[int, EpisodeEnv] = {}

    def play(
        self,
        make_policy: PolicyFactory,
        split: str,
        episodes: Sequence[int],
        on_batch: Callable[[int], None] | None = None,
    ) -> EpisodeMetrics:
        """Play the episodes with one new policy a zone and batch.

        Args:
            make_policy: Makes the policy of a zone.
            split: The split that the episodes belong to.
            episodes: E episode numbers.
            on_batch: Called with the number of episodes played so far.

        Returns:
            Metric -> (E,) values, in the order of the episodes.
        """
        parts: list[Mapping[str, NDArray[np.float64]]] = []
        for start in range(0, len(episodes), self._replicas):
            batch = list(episodes[start : start + self._replicas])
            if len(batch) not in self._envs:
                self._envs[len(batch)] = self._make_env(self._experiment, len(batch))
            policies = {name: make_policy(name) for name in self._experiment.zone_names}
            parts.append(self._envs[len(batch)].run(policies, split, batch))
            if on_batch is not None:
                on_batch(start + len(batch))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class Evaluation:
    """Policies compared.

    Attributes:
        metrics: Policy -> metric -> (S, E) values.
        rows: Means with intervals.
        ratios: Paired ratios to the baselines.
        origin: How it was made, for the report: names, hashes, seeds, versions.
        decision_latency_us: Policy -> time of a decision within a batch; differs from run to run,
            so it stands in a file of its own.
    """

    metrics: Mapping[str, Mapping[str, NDArray[np.float64]]]
    rows: Sequence[Row]
    ratios: Sequence[Ratio]
    origin: Mapping[str, Any]
    decision_latency_us: Mapping[str, float] = field(default_factory=dict)

    def save(self, folder: Path) -> Path:
        """Write evaluation.json, and the values of every episode with the origin beside it.

        The folder is made if it is not there.
        """
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{policy}/{metric}": values
            for policy, by_metric in self.metrics.items()
            for metric, values in by_metric.items()
        }
        write_arrays(folder / EPISODES_FILE, _KIND, {"origin": dict(self.origin)}, arrays)
        content = {
            "rows": [asdict(row) for row in self.rows],
            "ratios": [asdict(ratio) for ratio in self.ratios],
        }
        _write_json(folder / TIMING_FILE, {_LATENCY: dict(self.decision_latency_us)})
        _write_json(folder / EVALUATION_FILE, content)
        return folder / EVALUATION_FILE


def open_folder(folder: Path, experiment: Experiment) -> None:
    """Make the folder of an evaluation before the long work that it is for.

    An earlier evaluation of the same configuration may be replaced, any other may not.

    Raises:
        RunError: It cannot be written to, or holds the evaluation of another configuration.
        CheckpointError: It holds an evaluation that cannot be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(f"{folder}: cannot be written to: {error.strerror or error}") from None
    path = folder / EPISODES_FILE
    if not path.exists():
        return
    found = read_arrays(path, _KIND)[0].get("origin", {}).get("config_hash")
    if found != (expected := config_hash(experiment)):
        raise RunError(
            f"{folder}: holds the evaluation of another configuration (config_hash {found}, "
            f"expected {expected}); give another folder: --out FOLDER"
        )


def evaluate(
    experiment: Experiment,
    policies: Mapping[str, PolicyFactory | Sequence[PolicyFactory]],
    episodes: Sequence[int] | None = None,
    *,
    split: str = "test",
    progress: Progress | None = None,
    make_env: EnvFactory = make_plain_env,
) -> Evaluation:
    """Play every policy over the same episodes and compare them.

    Args:
        experiment: The experiment; its `evaluation` says how many episodes and resamples.
        policies: By name, a factory; for a learned policy one factory a training seed.
        episodes: Episode numbers; default: 0 .. evaluation.episodes - 1.
        split: Split of the episodes; results are made on "test".
        progress: Called after every batch.
        make_env: Makes the environment of a batch size.
    """
    settings = experiment.evaluation
    numbers = list(range(settings.episodes)) if episodes is None else list(episodes)
    metrics: dict[str, EpisodeMetrics] = {}
    latency: dict[str, float] = {}
    player = EpisodePlayer(experiment, settings.replicas, make_env)
    for name, given in policies.items():
        factories = [given] if callable(given) else list(given)
        total = len(numbers) * len(factories)
        played: list[EpisodeMetrics] = []
        for number, factory in enumerate(factories):
            on_batch = _reporter(progress, name, number * len(numbers), total)
            played.append(player.play(factory, split, numbers, on_batch))
        metrics[name] = {key: np.stack([part[key] for part in played]) for key in played[0]}
        if _LATENCY in metrics[name]:
            latency[name] = float(metrics[name].pop(_LATENCY).mean())
    return replace(compare(experiment, metrics, split), decision_latency_us=latency)


def compare(
    experiment: Experiment,
    metrics: Mapping[str, Mapping[str, NDArray[np.float64]]],
    split: str = "test",
) -> Evaluation:
    """Compare policies whose (S, E) values are already there, all on the same E episodes."""
    n_episodes = next(values.shape[1] for part in metrics.values() for values in part.values())
    n_samples = experiment.evaluation.bootstrap_samples
    bootstrap = Bootstrap(experiment.seed, n_samples, n_episodes)
    best = best_fixed(metrics, FIXED_RULES)
    rows, ratios = summarize(metrics, best, bootstrap)
    origin = origin_of(experiment, split, n_episodes) | {
        "best_fixed": best,
        "fixed_rules": [name for name in FIXED_RULES if name in metrics],
    }
    return Evaluation(metrics, rows, ratios, origin)


def origin_of(experiment: Experiment, split: str, n_episodes: int) -> dict[str, Any]:
    """Return what episodes of an experiment are and what played them: names, hashes, versions."""
    return {
        "experiment": experiment.name,
        "config_hash": config_hash(experiment),
        "seed": experiment.seed,
        "split": split,
        "n_episodes": n_episodes,
        "replicas": experiment.evaluation.replicas,
        "bootstrap_samples": experiment.evaluation.bootstrap_samples,
        "duration_knowledge": experiment.duration_knowledge,
        "placement": experiment.cluster.placement,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("marl-sched", "numpy", "numba")},
    }


def load_evaluation(folder: Path) -> Evaluation:
    """Read what `Evaluation.save` wrote.

    Raises:
        RunError: evaluation.json is missing or not one of ours.
        CheckpointError: The values of the episodes are.
    """
    path = folder / EVALUATION_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in content["rows"]]
        ratios = [Ratio(**ratio) for ratio in content["ratios"]]
        path = folder / TIMING_FILE
        latency = json.loads(path.read_text(encoding="utf-8"))[_LATENCY]
    except FileNotFoundError:
        raise RunError(f"{path}: missing; make it: marl-sched evaluate") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: not a file written by `evaluate`: {error}") from None
    meta, arrays = read_arrays(folder / EPISODES_FILE, _KIND)
    metrics: dict[str, EpisodeMetrics] = {}
    for name, values in arrays.items():
        policy, _, metric = name.rpartition("/")
        metrics.setdefault(policy, {})[metric] = values
    return Evaluation(metrics, rows, ratios, meta["origin"], latency)


def _reporter(
    progress: Progress | None, name: str, before: int, total: int
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda done: progress(name, before + done, total)


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
