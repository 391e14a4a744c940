"""Other zones between two rounds: what of a deployed run depends on them, made anew."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from federation.exchange_hub import ExchangeHub
from federation.live_views import LiveFolder, ViewSink
from federation.session import Session
from federation.wanted_config import Wanted
from marl_sched.config import Experiment
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.run_config import as_data, lasting_difference, zone_change
from zones.worker import score_validation


class Renewal:
    """Takes what the supervisor hands over."""

    def __init__(self, wanted: Wanted, hub: ExchangeHub, run_dir: Path, stack: ExitStack) -> None:
        """Renew a session over an exchange.

        Args:
            wanted: Where experiments are handed over.
            hub: The exchange.
            run_dir: The run's folder.
            stack: Ends what is made here.
        """
        self._wanted = wanted
        self._hub = hub
        self._live = LiveFolder(run_dir)
        self._stack = stack

    def prepare(self, experiment: Experiment) -> None:
        """Let the exchange, and the views that pass through it, be of an experiment.

        Raises:
            ExchangeError: It has too many zones for the exchange of this process.
        """
        self._hub.use(experiment)
        sink = self._stack.enter_context(ViewSink(self._live, experiment.zone_names))
        self._hub.watch = sink.take

    def renew(self, session: Session) -> Session | None:
        """Return the session with other zones, if there are to be any; else None.

        What cannot be taken is noted, and the run goes on as it was.
        """
        try:
            experiment = self._wanted.take()
            if experiment is None or not _is_other(session.experiment, experiment):
                return None
            self.prepare(experiment)
        except MarlSchedError as error:
            session.note("config", {"problem": str(error)})
            return None
        return replace(session, experiment=experiment, score=partial(score_validation, experiment))


def _is_other(now: Experiment, wanted: Experiment) -> bool:
    """Return whether an experiment has other zones.

    Raises:
        RunError: It differs in something else.
    """
    old, new = as_data(now), as_data(wanted)
    if (difference := lasting_difference(old, new)) is not None:
        raise RunError(f"{difference[0]} differs from the run's, expected other zones at most")
    return bool(zone_change(old, new))
