"""About how long a comparison takes: decisions counted, and microseconds a decision."""

from collections.abc import Iterable

from marl_sched.comparing.curves import training_seconds
from marl_sched.comparing.jobs import Evaluating, Job, Training
from marl_sched.comparing.playing import read_played
from marl_sched.config import Experiment
from marl_sched.config.hashing import environment_hash
from marl_sched.errors import MarlSchedError
from marl_sched.quantile_choice import TRIED, pilot_rounds
from marl_sched.workload.episodes import draw_workload

TRAINING_US, RULE_US, NETWORK_US = 80.0, 15.0, 30.0
"""CPU microseconds of a decision with all that surrounds it, in training and in play: rough figures
that a plan is estimated with until a job of it has ended."""
_TRAINING_START_S, _PLAYING_START_S = 4.0, 2.0
"""CPU seconds until a process has loaded what it needs."""


class Estimates:
    """CPU seconds of trainings and evaluations; counts every environment's decisions once."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._n_decisions: dict[str, int] = {}

    def training_s(self, experiment: Experiment) -> float:
        """Return about how long a training takes, its validations included.

        Pilots of a number of quantiles that is to be found are all counted: the most there can be.
        """
        training = experiment.training
        n_validations = training.rounds // training.validate_every + 1
        rounds = training.rounds
        if experiment.agent.finds_quantiles:
            n_pilots = len(TRIED) * experiment.agent.pilot_seeds
            rounds += n_pilots * pilot_rounds(experiment)
            n_validations += 2 * n_pilots
        played = rounds * training.episodes_per_round * training.replicas
        validated = n_validations * training.validation_episodes
        a_decision_us = played * TRAINING_US + validated * NETWORK_US
        return _TRAINING_START_S + self._decisions(experiment) * a_decision_us * 1e-6

    def playing_s(self, experiment: Experiment, n_episodes: int, is_rule: bool) -> float:
        """Return about how long it takes to play episodes."""
        a_decision_us = RULE_US if is_rule else NETWORK_US
        played_us = self._decisions(experiment) * n_episodes * a_decision_us
        return _PLAYING_START_S + played_us * 1e-6

    def _decisions(self, experiment: Experiment) -> int:
        """Return how many instances all zones get in the first validation episode."""
        key = environment_hash(experiment)
        if key not in self._n_decisions:
            self._n_decisions[key] = sum(
                draw_workload(experiment, zone, "validation", 0).n_instances
                for zone in experiment.zones
            )
        return self._n_decisions[key]


def left_s(jobs: Iterable[Job]) -> tuple[float, bool]:
    """Return about how many CPU seconds are left, and whether by what has run here already."""
    left = sum(job.cost_s * (1.0 - job.share()) for job in jobs if not job.is_done())
    estimated = measured = 0.0
    for job in jobs:
        if job.is_done() and (seconds := _measured_s(job)):
            estimated += job.cost_s
            measured += seconds
    return (left * measured / estimated, True) if estimated else (left, False)


def _measured_s(job: Job) -> float:
    """Return how long a job that is done has taken; 0 if nothing says so."""
    match job:
        case Training(folder=folder):
            return training_seconds(folder)
        case Evaluating(order=order):
            try:
                played = read_played(order.values_path)
            except MarlSchedError:
                return 0.0
            return 0.0 if played is None else played.seconds
        case _:
            return 0.0
