"""Which runs a study of scale is made of, and the configuration of each.

    federated   N zones: exchange within episodes, weights averaged between rounds
    alone       the same zones and exchange, but weights are never averaged (strategy `none`)
    central     one zone that holds all machines and the whole load: one learner

With one zone the three are the same, and run once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from marl_sched.config import Experiment
from marl_sched.scaling.shared_load import Scaled, validated
from marl_sched.scaling.sizes import Mode, pooled, scaled

Variant = Literal["federated", "alone", "central"]
Beside = Literal["all", "largest", "none"]
_ZONE_WAIT_S = 15.0
"""Longest that one more zone on this host makes the start last."""


@dataclass(frozen=True)
class Case:
    """One run of a study.

    Attributes:
        mode: How the configuration was scaled.
        n_zones: Zones of the size; of `central` those that it stands for.
        variant: What runs.
    """

    mode: Mode
    n_zones: int
    variant: Variant = "federated"

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.mode}-{self.n_zones:04d}-{self.variant}"


@dataclass(frozen=True)
class Length:
    """How long every run is.

    Attributes:
        rounds: Rounds; the first is not timed.
        validation_episodes: Episodes that score the weights of every second round.
    """

    rounds: int = 6
    validation_episodes: int = 16


def cases_of(sizes: Sequence[int], mode: Mode, beside: Beside) -> Iterator[Case]:
    """Yield the runs of a study, sizes ascending: an early end leaves whole sizes.

    Args:
        sizes: Numbers of zones.
        mode: How the configuration is scaled.
        beside: At which sizes there are the runs to compare with, above one zone.
    """
    for n_zones in sorted(set(sizes)):
        yield Case(mode, n_zones)
        if n_zones > 1 and (beside == "all" or (beside == "largest" and n_zones == max(sizes))):
            yield Case(mode, n_zones, "alone")
            yield Case(mode, n_zones, "central")


def configured(experiment: Experiment, case: Case, length: Length) -> Scaled:
    """Return the configuration of a run.

    Weights are scored every second round, so that the rounds between train and do nothing else:
    those are timed.

    Raises:
        ConfigError: It cannot have that many zones.
    """
    result = scaled(experiment, case.n_zones, case.mode)
    if case.variant == "central":
        pool = pooled(result.experiment)
        result = Scaled(pool.experiment, (*result.notes, *pool.notes))
    values = result.experiment.model_dump()
    values["name"] = case.name
    values["training"] |= {
        "rounds": length.rounds,
        "validation_episodes": length.validation_episodes,
        "validate_every": 2,
    }
    federation = values["federation"]
    wait_s = max(federation["wait_s"], _ZONE_WAIT_S * len(values["zones"]))
    values["federation"] = federation | {"wait_s": wait_s}
    if case.variant == "alone":
        values["federation"] |= {"strategy": "none"}
    return Scaled(validated(values), result.notes)
