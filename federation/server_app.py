"""The coordinator's side of a run: rounds, validation, checkpoints.

    round r:  order (global weights) --> zones validate them if due, train --> check --> average
              --> metrics.jsonl, timing.jsonl --> checkpoint r
    at the end: one order that only validates the last weights

A round's validation scores the weights that came out of the round before: they are the averaged
ones, those that would be published, and no message is needed beside the round's own.
"""

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from federation.exchange_plan import is_validated
from federation.messages import (
    Packed,
    assign,
    decode_metrics,
    decode_validation,
    encode_order,
    invite,
)
from federation.roster import Roster
from federation.round_driver import Check, RoundDriver
from federation.seats import zone_table
from federation.session import RoundDone, Session
from federation.strategies import Aggregator
from federation.update_check import UpdateCheck, check_validation, odd_metrics
from federation.weights import WeightSpec, unpack
from marl_sched.config import dump_config
from marl_sched.errors import AggregationError
from marl_sched.log_lines import at_place
from marl_sched.run_config import ZoneChange
from zones.records import NetworkPair, RoundOrder

_logger = logging.getLogger(__name__)


def make_server_app(session: Session) -> ServerApp:
    """Return the ServerApp that carries out a session over whatever Grid it is given."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _Run(session, grid).run()

    return app


@dataclass
class _Outcome:
    """Answers to an order by zone, the order of the attempt they belong to, and who was lost."""

    order: RoundOrder
    replies: dict[str, Message] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def contents(self) -> dict[str, RecordDict]:
        """Contents of the replies by zone."""
        return {zone: reply.content for zone, reply in self.replies.items()}


class _Run:
    """One run of a session over a Grid."""

    def __init__(self, session: Session, grid: Grid) -> None:
        self._session = session
        self._experiment = session.experiment
        self._folder = session.folder
        self._driver = RoundDriver(grid, session.exchange, session.limits, session.stop)
        self._roster = Roster(
            grid,
            session.experiment,
            session.patience,
            zone_table(session.checkpoint),
            session.note,
            session.stop,
        )
        self._roster.objection = partial(session.objection, grid)
        self._aggregator = Aggregator(
            session.experiment.federation, session.checkpoint.strategy_state
        )
        self._checkpoint = session.checkpoint
        self._change = ZoneChange()
        """Zones that no committed round has known yet, or that the last one still had."""
        self._spec = WeightSpec.of(session.checkpoint.online)

    def run(self) -> None:
        """Carry out all rounds that are left, and the last validation."""
        if self._checkpoint.is_finished:
            return
        change = self._folder.zone_change(self._experiment)
        self._note_change(self._checkpoint.round_number + 1, change)
        n_rounds = self._experiment.training.rounds
        for round_number in range(self._checkpoint.round_number + 1, n_rounds + 1):
            with at_place(round=round_number):
                self._round(round_number)
        self._finish()

    def _renew(self, round_number: int) -> None:
        """Go on with other zones from a round on, if there are to be any."""
        session = self._session.renew(self._session)
        if session is not None:
            before, self._experiment = self._experiment, session.experiment
            self._session = session
            change = ZoneChange.between(before.zone_names, self._experiment.zone_names)
            self._note_change(round_number, change)
            self._roster.adopt(self._experiment)

    def _note_change(self, round_number: int, change: ZoneChange) -> None:
        """Tell of other zones. No validation before them counts for the best any more."""
        if change:
            self._session.note("zones", {"round": round_number, **asdict(change)})
            self._change = self._folder.zone_change(self._experiment)
            config = dump_config(self._experiment)
            self._checkpoint = replace(self._checkpoint, best={}, config=config)

    def _write_change(self, round_number: int) -> None:
        """Write the line of a round that is the first with other zones."""
        line = {"kind": "zones", "round": round_number, **asdict(self._change)}
        self._folder.append_metrics([line] if self._change else [])

    def _round(self, round_number: int) -> None:
        self._renew(round_number)
        self._roster.refresh()
        self._write_change(round_number)
        start = time.perf_counter()
        validates = is_validated(self._experiment, round_number - 1)
        outcome = self._carry_out(round_number, MessageType.TRAIN, validates)
        objective, is_best = self._note_validation(outcome, round_number - 1)
        aggregation_start = time.perf_counter()
        packed = self._aggregator.aggregate(round_number, outcome.replies, self._sent())
        end = time.perf_counter()
        seconds = end - start
        measured = {
            "round_s": round(seconds, 3),
            "aggregation_s": round(end - aggregation_start, 4),
            "server_cpu_s": round(time.process_time(), 3),
            "bytes_down": packed.n_bytes,
            "bytes_up": packed.n_bytes,
        }
        n_decisions = self._write_lines(outcome, measured)
        self._commit(
            round_number=round_number,
            online=unpack(packed.online, self._spec),
            ema=unpack(packed.ema, self._spec),
            members=outcome.order.members,
            strategy_state=self._aggregator.state,
        )
        self._tell(seconds, n_decisions, objective, is_best, outcome.lost)

    def _finish(self) -> None:
        """Score the last weights; publish them if nothing was ever scored."""
        start = time.perf_counter()
        n_rounds = self._experiment.training.rounds
        objective, is_best, lost = None, False, {}
        validates = is_validated(self._experiment, n_rounds)
        if validates or self._session.publish is None:
            self._roster.refresh()
            self._write_change(n_rounds + 1)
            outcome = self._carry_out(n_rounds + 1, MessageType.EVALUATE, validates)
            objective, is_best = self._note_validation(outcome, n_rounds)
            lost = outcome.lost
        if not self._checkpoint.best:
            is_best = True
            self._publish({"round": n_rounds, "n_zones": len(self._checkpoint.members)})
        self._commit(is_finished=True)
        self._tell(time.perf_counter() - start, 0, objective, is_best, lost)

    def _carry_out(self, round_number: int, message_type: str, validates: bool) -> _Outcome:
        """Send an order and collect all answers, in as many attempts as it takes.

        Every attempt but the last loses at least one zone, so they are at most as many as zones.
        """
        packed = self._sent()
        best_round = int(self._checkpoint.best.get("round", 0))
        members = tuple(self._roster.seats)
        order = RoundOrder(round_number, 1, members, validates, best_round)
        outcome = _Outcome(order)
        while lost := self._attempt(outcome, packed, message_type):
            for zone, reason in sorted(lost.items()):
                place = {"zone": zone, "round": round_number, "attempt": outcome.order.attempt}
                _logger.warning("round %d: %s is lost: %s", round_number, zone, reason, extra=place)
                self._session.note("lost", {"round": round_number, "zone": zone, "reason": reason})
                self._folder.append_metrics(
                    [{"kind": "lost", "round": round_number, "zone": zone, "reason": reason}]
                )
            outcome.lost |= lost
            self._roster.remove(lost)
            order = outcome.order
            outcome.order = replace(
                order, attempt=order.attempt + 1, members=tuple(self._roster.seats)
            )
        return outcome

    def _sent(self) -> Packed:
        pair = NetworkPair(self._checkpoint.online, self._checkpoint.ema)
        return Packed.of(pair, self._spec)

    def _attempt(self, outcome: _Outcome, packed: Packed, message_type: str) -> dict[str, str]:
        """Make one attempt at an order; return who was lost, or put the replies in the outcome."""
        order = outcome.order
        invitations = self._session.exchange.open(order.members, order.round_number, order.attempt)
        content = encode_order(packed, order)
        ttl = self._experiment.federation.deadline_s
        messages = {}
        epochs = {}
        for zone, (node_id, assignment) in self._roster.seats.items():
            own = assign(content, assignment)
            own = invite(own, invitations[zone]) if zone in invitations else own
            messages[zone] = Message(own, node_id, message_type, ttl=ttl)
            epochs[zone] = assignment.epoch
        attempt = self._driver.run(messages, self._check(packed, order, epochs, message_type))
        outcome.replies = attempt.replies
        return attempt.lost or odd_metrics(outcome.contents)

    def _check(
        self, packed: Packed, order: RoundOrder, epochs: Mapping[str, int], message_type: str
    ) -> Check:
        update = UpdateCheck(order, packed, self._experiment.federation.norm_bound, epochs)
        n_episodes = self._experiment.training.validation_episodes

        def check(zone: str, content: RecordDict) -> None:
            if message_type == MessageType.TRAIN:
                update.check(zone, content)
            else:
                update.check_origin(zone, content)
            if order.validates:
                check_validation(zone, content, n_episodes)
                self._require_score(zone, content)

        return check

    def _require_score(self, zone: str, content: RecordDict) -> None:
        """Check that the validation of a zone can be scored: by itself, and so with the others.

        Raises:
            AggregationError: It cannot.
        """
        n_episodes = self._experiment.training.validation_episodes
        try:
            self._session.score({zone: decode_validation(content, n_episodes)})
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise AggregationError(f"{zone}: validation cannot be scored: {error!r}") from None

    def _note_validation(self, outcome: _Outcome, scored_round: int) -> tuple[float | None, bool]:
        """Write a validation's line and publish the scored weights if they are the best so far.

        Fewer zones play another game: of two validations the one with more zones is the better.
        """
        if not outcome.order.validates:
            return None, False
        n_episodes = self._experiment.training.validation_episodes
        sums = {z: decode_validation(c, n_episodes) for z, c in outcome.contents.items()}
        metrics = self._session.score(sums)
        objective, n_zones = float(metrics["objective"]), len(sums)
        best = self._checkpoint.best
        is_best = math.isfinite(objective) and (
            not best or (-n_zones, objective) < (-best["n_zones"], best["objective"])
        )
        if is_best:
            self._publish({"round": scored_round, "n_zones": n_zones, "objective": objective})
        line = {"kind": "validation", "round": scored_round, "zones": sorted(sums)}
        self._folder.append_metrics([line | {"is_best": is_best} | dict(metrics)])
        return objective, is_best

    def _publish(self, best: dict[str, Any]) -> None:
        """Save the weights of the checkpoint, which are those that were scored, as the best."""
        if self._session.publish is not None:
            self._session.publish(self._folder.best_path, self._checkpoint.ema)
        self._checkpoint = replace(self._checkpoint, best=best)

    def _write_lines(self, outcome: _Outcome, measured: Mapping[str, float]) -> int:
        """Write the lines of a round, one a zone; return the decisions of all zones."""
        order = outcome.order
        common = {"round": order.round_number, "attempt": order.attempt}
        lines: list[Mapping[str, Any]] = []
        timing: list[Mapping[str, Any]] = []
        total = 0
        of_exchange = self._session.exchange.measured()
        for zone, content in sorted(outcome.contents.items()):
            n_decisions, metrics = decode_metrics(content)
            total += n_decisions
            place = {**common, "zone": zone}
            lines.append({"kind": "train", **place, "n_decisions": n_decisions, **metrics})
            own = dict(content.config_records["timing"]) | dict(of_exchange.get(zone, {}))
            timing.append({**place, **measured, **own})
        self._folder.append_metrics(lines)
        self._folder.append_timing(timing)
        return total

    def _commit(self, **changes: Any) -> None:
        self._checkpoint = replace(self._checkpoint, **changes)
        self._roster.commit(self._checkpoint.round_number, self._checkpoint.members)
        if self._session.keeps_zones:
            table = {zone: vars(seat) for zone, seat in sorted(self._roster.table.items())}
            self._checkpoint = replace(self._checkpoint, zones=table)
        self._folder.save_checkpoint(self._checkpoint)
        self._change = ZoneChange()

    def _tell(
        self,
        seconds: float,
        n_decisions: int,
        objective: float | None,
        is_best: bool,
        lost: Mapping[str, str],
    ) -> None:
        round_number, n_rounds = self._checkpoint.round_number, self._experiment.training.rounds
        self._session.progress(
            RoundDone(round_number, n_rounds, seconds, n_decisions, objective, is_best, lost)
        )
