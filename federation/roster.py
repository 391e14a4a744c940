"""The zones of a run: asks nodes what they are, and says who takes part in a round.

    new --who are you?--> known --you are Z, epoch e--> getting ready --is_ready--> seated
     ^                      |                                                        |
     |                      +--> spare, for when a zone becomes free                 |
     +------------- lost in a round, asked again between rounds <--------------------+

Zones join and leave between rounds only. While there are zones enough nobody is waited for: who is
slow or dead takes part once it has answered.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from flwr.serverapp import Grid

from federation.greeting import Hello, ZoneStatus
from federation.questions import AGAIN_S, Questions
from federation.round_driver import Stopped
from federation.seating import Seating
from federation.seats import Node, Seat
from federation.session import Note, Patience
from marl_sched.config import Experiment, dump_config
from marl_sched.errors import RunError
from zones.records import Assignment

_logger = logging.getLogger(__name__)

_ABSENT_S = 15.0
"""How long a new zone may be without a process before that is said."""


def _no_objection(node_id: int, zone: str) -> str:
    return ""


class Roster:
    """The zones of a run, and the nodes that are or could be one."""

    def __init__(
        self,
        grid: Grid,
        experiment: Experiment,
        patience: Patience,
        table: Mapping[str, Seat],
        note: Note,
        stop: threading.Event,
    ) -> None:
        """Start with no zone.

        Args:
            grid: Where the nodes are.
            experiment: Says which zones there are.
            patience: How long to wait, and how often a node may be lost.
            table: Zone table of the checkpoint.
            note: Told who joins, leaves and is missing.
            stop: Set to end every wait.
        """
        self._questions = Questions(grid)
        self._experiment = experiment
        self._config = dump_config(experiment)
        self._patience = patience
        self._note = note
        self._stop = stop
        self._seating = Seating(experiment.zone_names, table)
        self._nodes = self._seating.nodes
        self._absent: dict[str, float] = {}
        """New zones, and when it is to be said that they have no process."""
        self._is_new = True
        self.objection: Callable[[int, str], str] = _no_objection
        """Returns why a node, given by its id, may not have the zone that it names."""

    @property
    def seats(self) -> dict[str, tuple[int, Assignment]]:
        """Node and assignment of every zone that takes part, in the order of zone names."""
        return self._seating.seats

    @property
    def table(self) -> Mapping[str, Seat]:
        """Node, epoch and last round by zone."""
        return self._seating.table

    def refresh(self) -> None:
        """Let zones join and leave, between rounds.

        Waits at the start for all zones, later only if fewer than the quorum are there.

        Raises:
            RunError: There are too few, and no more came in time.
            Stopped: The run was asked to stop.
        """
        self._step()
        wanted = len(self._experiment.zones) if self._is_new else self._quorum
        if len(self.seats) < wanted:
            self._wait_for(wanted)
        self._is_new = False
        self._say_absent()
        self.require_quorum()

    def adopt(self, experiment: Experiment) -> None:
        """Go on with other zones, between rounds.

        Zones that stay are told, and waited for while they prepare: all members of a round run the
        same experiment. New ones are not waited for.

        Raises:
            Stopped: The run was asked to stop.
        """
        names = set(experiment.zone_names)
        added = names - set(self._experiment.zone_names)
        self._experiment, self._config = experiment, dump_config(experiment)
        self._seating.zone_names = tuple(sorted(names))
        self._absent |= dict.fromkeys(added, self._questions.now() + _ABSENT_S)
        changing = {node_id for node_id, _ in self.seats.values()}
        for node in list(self._nodes.values()):
            if node.barred and node.started_for in added:
                node.barred = ""
            elif not node.barred:
                self._tell_change(node, names)
        self._wait_until(lambda: self._have_changed(changing), self._patience.answer_s)

    def remove(self, lost: Mapping[str, str]) -> None:
        """Strike out zones for the round, given with the reasons.

        Raises:
            RunError: Fewer zones than the quorum are left, and no more came in time.
            Stopped: The run was asked to stop.
        """
        self._seating.strike(lost, self._patience.n_returns)
        if len(self.seats) < self._quorum and self._patience.wait_s > 0:
            self._wait_for(self._quorum)
        self.require_quorum()

    def commit(self, round_number: int, zones: Iterable[str]) -> None:
        """Note who took part in a committed round."""
        self._seating.commit(round_number, zones)

    def require_quorum(self) -> None:
        """Check that enough zones are there.

        Raises:
            RunError: Fewer than the quorum; the message names the zones that are not and why.
        """
        n_zones = len(self.seats)
        if n_zones < self._quorum:
            reasons = {**self._seating.missing(), **self._seating.lost}
            told = "; ".join(f"{zone}: {why}" for zone, why in sorted(reasons.items()))
            raise RunError(
                f"{n_zones} zones are left, expected at least federation.quorum = {self._quorum}"
                f" ({told})"
            )

    @property
    def _quorum(self) -> int:
        return self._experiment.federation.quorum

    def _wait_for(self, n_wanted: int) -> None:
        """Take nodes in until enough are there, or time is up."""
        start = self._questions.now()
        said: list[str] = []
        while len(self.seats) < n_wanted:
            waited_s = self._questions.now() - start
            is_pending = any(n.query is not None or n.claim for n in self._seating.unseated)
            if waited_s >= self._patience.wait_s:
                limit_s = self._patience.wait_s + self._patience.answer_s
                enough = len(self.seats) >= self._quorum
                if not is_pending or waited_s >= limit_s or (enough and self._patience.wait_s > 0):
                    break
            missing = sorted(self._seating.missing())
            if missing != said:
                said = missing
                self._note("waiting", {"zones": missing, "wait_s": self._patience.wait_s})
            self._pause()
            self._step()
        self._say_missing(self._seating.missing())

    def _wait_until(self, is_so: Callable[[], bool], limit_s: float) -> None:
        """Take answers until something is so, or time is up."""
        deadline = self._questions.now() + limit_s
        self._step()
        while not is_so() and self._questions.now() < deadline:
            self._pause()
            self._step()

    def _pause(self) -> None:
        if self._stop.wait(self._patience.poll_s):
            raise Stopped("the run was asked to stop")

    def _say_missing(self, why: Mapping[str, str]) -> None:
        """Tell which zones do not take part, and why."""
        if not why:
            return
        for zone, reason in why.items():
            _logger.warning("going on without %s: %s", zone, reason)
        self._note("missing", {"zones": sorted(why), "why": dict(why)})

    def _say_absent(self) -> None:
        """Tell, once each, which new zones nobody is or is to be."""
        now, missing = self._questions.now(), self._seating.missing()
        nobody = missing.keys() - self._seating.claimed
        waiting = {zone: at for zone, at in self._absent.items() if zone in nobody}
        self._say_missing({z: missing[z] for z, at in sorted(waiting.items()) if at <= now})
        self._absent = {zone: at for zone, at in waiting.items() if at > now}

    def _tell_change(self, node: Node, names: Collection[str]) -> None:
        """Prepare a node for other zones: what it is goes on, ends, or it is not wanted."""
        if node.claim is not None and node.claim.zone not in names:
            self._note("left", {"zone": node.claim.zone})
            node.release()
        if node.name and node.name not in names:
            node.barred = f"zone {node.name} is not in the configuration any more"
            self._send(node, refusal=node.barred)
        elif node.claim is not None:
            node.is_seated = False
            node.ask_again()

    def _have_changed(self, node_ids: Iterable[int]) -> bool:
        """Return whether the nodes that were zones are so again, or are not any more."""
        nodes = [self._nodes[node_id] for node_id in node_ids if node_id in self._nodes]
        return all(n.is_seated or n.claim is None for n in nodes)

    def _step(self) -> None:
        """Look who is there, take answers, hand out zones, ask; without waiting."""
        for node in self._seating.update(self._questions.online()):
            if node.is_seated and node.claim is not None:
                _logger.warning("%s: its node has left", node.claim.zone)
                self._note("left", {"zone": node.claim.zone})
        for node, status in self._questions.answers(list(self._nodes.values())):
            if isinstance(status, ValueError):
                self._bar(node, f"an answer that makes no sense: {status}")
            elif not node.barred:
                self._learn(node, status)
        for node, holder in self._seating.hand_out(is_start=self._is_new):
            self._settle_claims(node, holder)
        self._ask()

    def _learn(self, node: Node, status: ZoneStatus) -> None:
        """Take what a node says of itself."""
        node.name = node.started_for = status.name
        node.is_alive = True
        node.was = Assignment(status.assigned, status.epoch) if status.assigned else None
        node.problem = status.problem
        if status.problem:
            self._note("problem", {"zone": status.name, "problem": status.problem})
            _logger.warning("node %d %s: %s", node.node_id, status.name, status.problem)
            node.release()
            node.ask_at = self._questions.now() + 10 * AGAIN_S
            node.name = None
        elif status.name and status.name not in self._experiment.zone_names:
            known = ", ".join(self._experiment.zone_names)
            self._refuse(node, f"it is zone {status.name!r}, expected one of {known}")
        elif status.name and (reason := self.objection(node.node_id, status.name)):
            self._refuse(node, reason)
        elif node.claim is not None and node.was == node.claim and status.is_ready:
            if node.joined != node.claim:
                node.joined = node.claim
                self._note("joined", {"zone": node.claim.zone, "epoch": node.claim.epoch})
                _logger.info("%s is node %d", node.claim.zone, node.node_id)
            self._seating.seat(node)

    def _settle_claims(self, node: Node, holder: Node) -> None:
        """Two nodes were started for one zone: the newer goes, if the older one still lives."""
        if holder.query is not None and not self._questions.is_due(holder):
            return
        if holder.is_challenged and holder.is_alive:
            holder.is_challenged = False
            self._refuse(
                node,
                f"zone {node.name} is node {holder.node_id} already, node {node.node_id} was "
                "started for it too; expected one process a zone",
            )
            return
        holder.is_challenged, holder.is_alive = True, False
        self._send(holder)

    def _ask(self) -> None:
        """Ask every node that is new, not ready, or was told something else."""
        for node in sorted(self._seating.unseated, key=lambda n: n.node_id):
            is_spare = node.name is not None and node.claim is None
            if self._questions.is_due(node) and not (is_spare and node.is_told_spare):
                node.is_told_spare = is_spare
                self._send(node)

    def _send(self, node: Node, refusal: str = "") -> None:
        claim = node.claim or Assignment("", 0)
        last_round = self.table[claim.zone].last_round if claim.zone else None
        hello = Hello(
            config=self._config,
            run=self._experiment.name,
            zone=claim.zone,
            epoch=claim.epoch,
            last_round=last_round,
            refusal=refusal,
        )
        self._questions.ask(node, hello)

    def _refuse(self, node: Node, reason: str) -> None:
        """Tell a node that it is not wanted, and why."""
        self._bar(node, reason)
        self._send(node, refusal=reason)

    def _bar(self, node: Node, reason: str) -> None:
        _logger.warning("node %d is refused: %s", node.node_id, reason)
        self._note("refused", {"node": str(node.node_id), "reason": reason})
        node.release()
        node.barred = reason
