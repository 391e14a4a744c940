"""Which exchanges an attempt is made of: what zones that go by the rules post, and when.

    number    0 1 2 ...                     of the whole attempt: validation episodes, then training
    step      0 | 1 ... n_windows | more    of an episode: the opening, a window each, the closing

The step after a window carries what happened in it. In the closing steps, as many as an instance
has hops, settlements find their way back.
"""

from dataclasses import dataclass

from marl_sched.config import Experiment


def is_validated(experiment: Experiment, round_number: int) -> bool:
    """Return whether the weights of a round are scored; those of the last round always are."""
    training = experiment.training
    is_due = round_number % training.validate_every == 0 or round_number == training.rounds
    return round_number > 0 and is_due and training.validation_episodes > 0


@dataclass(frozen=True)
class Place:
    """Where one exchange stands.

    Attributes:
        step: Number within its episode, from 0.
        n_replicas: E of its episode.
        from_us: Start of the window it closes.
        to_us: End of that window; both are the end of the episode once all windows are played.
    """

    step: int
    n_replicas: int
    from_us: int
    to_us: int


class Plan:
    """The exchanges of any attempt at one round."""

    def __init__(self, experiment: Experiment, round_number: int) -> None:
        """Lay out a round; the number after the last round stands for its validation."""
        training = experiment.training
        self._replicas: list[int] = []
        if is_validated(experiment, round_number - 1):
            for first in range(0, training.validation_episodes, training.replicas):
                rest = training.validation_episodes - first
                self._replicas.append(min(training.replicas, rest))
        if round_number <= training.rounds:
            self._replicas += [training.replicas] * training.episodes_per_round
        self._window_us = experiment.window_us
        self._end_us = experiment.n_windows * experiment.window_us
        self._n_steps = 1 + experiment.n_windows + max(1, experiment.cluster.max_hops)

    @property
    def n_exchanges(self) -> int:
        """Exchanges of the whole attempt."""
        return self._n_steps * len(self._replicas)

    def place(self, number: int) -> Place:
        """Return where an exchange stands, by its number below `n_exchanges`."""
        episode, step = divmod(number, self._n_steps)
        from_us = min(max(0, step - 1) * self._window_us, self._end_us)
        to_us = min(step * self._window_us, self._end_us)
        return Place(step, self._replicas[episode], from_us, to_us)
