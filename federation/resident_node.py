"""A zone's node that stays: SuperNode and ClientApp in one process.

main thread      asks for messages, fetches them, answers queries, sends replies
work thread      carries out orders, one at a time; a daemon, so that it holds up no end
heart thread     tells the SuperLink every few seconds that the node is alive

Of several messages that wait, the newest counts: a node that was away answers those it missed
without carrying them out.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from federation.fleet_errors import (
    LinkDown,
    MessageLost,
    NodeUnknown,
    NotAdmitted,
    RunIsOver,
    Stopping,
)
from federation.fleet_link import FleetLink, Head
from federation.messages import FAILED, describe, place_of
from federation.node_threads import Done, Heart, Reminder, Retries, Task, Work, lost, stale
from marl_sched.errors import MarlSchedError, RunError, SecurityError

_logger = logging.getLogger(__name__)

_LEAVE_S = 2.0
_AWAY_S = 3.0
"""How long a node stays away whose process was killed: a ServerApp looks every second."""
_LINGER_S = 3.0


@dataclass(frozen=True)
class Pace:
    """How often a node looks, and how long it waits, in seconds.

    Attributes:
        wait_s: Longest wait to be admitted: for the SuperLink at first, and whenever it refuses.
        idle_s: Between two looks for messages.
        busy_s: The same while an order is carried out.
        refused_s: Before the next try to be admitted.
        first_retry_s: Before the second try to reach the SuperLink; doubled with every other.
        last_retry_s: Longest time between two tries.
    """

    wait_s: float = 300.0
    idle_s: float = 0.1
    busy_s: float = 1.0
    refused_s: float = 2.0
    first_retry_s: float = 0.2
    last_retry_s: float = 3.0


@dataclass(frozen=True)
class Watch:
    """Who is told what goes on.

    Attributes:
        label: Returns the zone, for the log.
        tell: Told the state (connecting, online, working) and the node's id, again and again while
            the SuperLink answers.
        after_reply: Called when a reply is sent; raises to end the node.
    """

    label: Callable[[], str]
    tell: Callable[[str, int], None]
    after_reply: Callable[[], None]


class ResidentNode:
    """One node from its start to its end."""

    def __init__(
        self,
        link: FleetLink,
        app: ClientApp,
        stop: threading.Event,
        watch: Watch,
        pace: Pace | None = None,
        left_node: int = 0,
    ) -> None:
        """Create a node.

        Args:
            link: To the SuperLink; the node closes it.
            app: Answers messages.
            stop: Set to end the node, from any thread or signal handler.
            watch: Who is told.
            pace: Bounds of every wait.
            left_node: The node of an earlier process of this key, which is dead for sure but had no
                time to say so; 0: none.
        """
        self._link = link
        self._app = app
        self._stop = stop
        self._watch = watch
        self._pace = pace or Pace()
        self._node_id = 0
        self._left_node = left_node
        self._heads: deque[Head] = deque()
        """Messages that the SuperLink has handed out, oldest first; the last is to be fetched."""
        self._replies: deque[Done] = deque()
        self._work = Work(self._carry_out)
        self._retries = Retries(self._pace.first_retry_s, self._pace.last_retry_s)

    @property
    def is_busy(self) -> bool:
        """Whether an order is being carried out; its thread outlives the node then."""
        return self._work.is_busy

    def run(self) -> None:
        """Serve until told to stop.

        Raises:
            SecurityError: Something about keys, certificates or clocks is wrong.
            RunError: The SuperLink was not there, or did not admit the node, for too long.
        """
        is_new = True
        try:
            while not self._stop.is_set():
                self._activate(is_new)
                is_new = False
                self._serve()
        except Stopping:
            pass
        finally:
            self._leave()

    def _activate(self, is_new: bool) -> None:
        """Try until the SuperLink admits the node; a known one waits for a SuperLink for good."""
        self._watch.tell("connecting", 0)
        reminder = Reminder()
        deadline = time.monotonic() + self._pace.wait_s
        while True:
            try:
                self._node_id = self._link.activate()
                break
            except NotAdmitted as error:
                if self._left_node and is_new:
                    self._say_goodbye_late()
                    continue
                failure: MarlSchedError = error
                pause_s, is_patient = self._pace.refused_s, False
            except LinkDown as error:
                failure, is_patient = self._explained(error, is_new), not is_new
                pause_s = self._retries.next_s()
                self._link.reopen()
            if not is_patient and time.monotonic() + pause_s > deadline:
                raise RunError(f"{failure} (tried for {self._pace.wait_s:g} s)")
            reminder.say("%s: %s, trying again", self._watch.label(), failure)
            self._pause(pause_s)
        self._retries.reset()
        _logger.info("%s: online as node %d", self._watch.label(), self._node_id)

    def _say_goodbye_late(self) -> None:
        """Say it for the process before this one, once, instead of waiting for its lease."""
        _logger.info("%s: in place of node %d, killed", self._watch.label(), self._left_node)
        self._link.release(self._left_node, _LEAVE_S)
        self._left_node = 0
        # An order that it had taken is void only for a ServerApp that sees the node away.
        self._pause(_AWAY_S)

    def _explained(self, failure: LinkDown, is_new: bool) -> MarlSchedError:
        """Return what a failure comes from; for a new node what no try will mend is raised."""
        try:
            self._link.explain()
        except SecurityError as error:
            if is_new:
                raise
            return error
        return failure

    def _serve(self) -> None:
        """Exchange messages until the SuperLink does not know the node any more."""
        heart = Heart(self._link, self._stop)
        reminder = Reminder()
        try:
            while heart.is_known:
                try:
                    self._send_replies()
                    self._receive()
                    self._watch.tell("working" if self.is_busy else "online", self._node_id)
                    self._retries.reset()
                    pause_s = self._pace.busy_s if self.is_busy else self._pace.idle_s
                except LinkDown as error:
                    reminder.say("%s: %s, trying again", self._watch.label(), error)
                    self._watch.tell("connecting", self._node_id)
                    pause_s = self._retries.next_s()
                    if self._retries.n_failures > 1:
                        self._link.reopen()
                self._wait(pause_s)
        except NodeUnknown:
            pass
        finally:
            heart.stop()
        _logger.warning("%s: the SuperLink has forgotten this node", self._watch.label())

    def _receive(self) -> None:
        """Take what waits at the SuperLink; pass on the newest, answer the others."""
        while (head := self._link.receive()) is not None:
            self._heads.append(head)
        while self._heads:
            head = self._heads[0]
            if len(self._heads) > 1:
                self._replies.append(stale(head[0]))
            else:
                self._take(head)
            self._heads.popleft()
        self._send_replies()

    def _take(self, head: Head) -> None:
        """Fetch a message and pass it on."""
        start = time.perf_counter()
        try:
            message = self._link.fetch(head)
        except RunIsOver as error:
            _logger.info("%s: a message is passed over: %s", self._watch.label(), error)
            return
        except MessageLost as error:
            # Without an answer the others would wait for it.
            _logger.warning("%s: %s", self._watch.label(), error)
            self._replies.append(lost(head[0], error))
            return
        task = Task(message, time.perf_counter() - start)
        if message.metadata.message_type == MessageType.QUERY:
            self._replies.append(self._carry_out(task))
            return
        displaced = self._work.give(task)
        if displaced is not None:
            self._replies.append(stale(displaced.message))

    def _carry_out(self, task: Task) -> Done:
        """Let the ClientApp answer a message; called from either thread."""
        message = task.message
        start = time.perf_counter()
        context = Context(message.metadata.run_id, self._node_id, {}, RecordDict(), {})
        try:
            reply = self._app(message, context)
        except Exception as error:
            # Without an answer the others would wait for the deadline.
            _logger.debug("the ClientApp failed", exc_info=True)
            reply = Message(Error(FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
        what = describe(message.content)
        return Done(reply, what, task.fetch_s, time.perf_counter() - start)

    def _send_replies(self) -> None:
        self._replies.extend(self._work.take_done())
        while self._replies:
            done = self._replies[0]
            start = time.perf_counter()
            try:
                if done.is_late:
                    raise RunIsOver("its time is up")
                self._link.send(done.reply, done.work_s)
            except RunIsOver as error:
                _logger.info("%s: %s: not sent: %s", self._watch.label(), done.what, error)
            else:
                self._note_sent(done, time.perf_counter() - start)
            self._replies.popleft()

    def _note_sent(self, done: Done, send_s: float) -> None:
        outcome = "done"
        if done.reply.has_error():
            outcome = f"failed ({done.reply.error.reason})"
        level = logging.DEBUG if done.is_greeting else logging.INFO
        _logger.log(
            level,
            "%s: %s %s in %.2f s (fetched in %.2f s, sent in %.2f s)",
            self._watch.label(),
            done.what,
            outcome,
            done.work_s,
            done.fetch_s,
            send_s,
            extra=place_of(done.reply),
        )
        try:
            self._watch.after_reply()
        except MarlSchedError:
            # What a node has said that leaves before it is heard, the SuperLink throws away.
            self._stop.wait(_LINGER_S)
            raise

    def _leave(self) -> None:
        """Tell the SuperLink, if it was told that the node is there, and end the threads."""
        self._work.end()
        if self._node_id and not self._link.deactivate(_LEAVE_S):
            _logger.warning("%s: the SuperLink did not hear that we leave", self._watch.label())
        self._link.close()

    def _wait(self, seconds: float) -> None:
        """Wait until work is done or time is up."""
        self._work.wait(seconds, self._stop)
        if self._stop.is_set():
            raise Stopping

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopping
