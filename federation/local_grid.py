"""Flower's Grid in one process: one thread a zone, no network.

The very ServerApp, strategy and ClientApps that run over gRPC run here unchanged.
"""

import queue
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from federation.flower_private import Run, claim_identity, empty_run, set_message_id
from federation.messages import FAILED

RUN_ID = 1
SERVER_NODE_ID = 1
"""As a SuperLink has it: replies that it makes itself carry this node id."""
_POLL_S = 0.001


class _ZoneThread:
    """One ClientApp and the thread that serves it, one message after the other."""

    def __init__(self, node_id: int, app: ClientApp, replies: "_Replies") -> None:
        self._app = app
        self._context = Context(RUN_ID, node_id, {}, RecordDict(), {})
        self._replies = replies
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        # A daemon: a zone stuck for good must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name=f"zone-{node_id}", daemon=True)
        self._thread.start()

    def submit(self, message: Message | None) -> None:
        """Queue a message; None ends the thread."""
        self._inbox.put(message)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while (message := self._inbox.get()) is not None:
            self._replies.put(_reply(self._app, message, self._context))


class _Replies:
    """Replies by the id of the message they answer, filled by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_message_id: dict[str, Message] = {}

    def put(self, reply: Message) -> None:
        with self._lock:
            self._by_message_id[reply.metadata.reply_to_message_id] = reply

    def take(self, message_ids: Iterable[str]) -> list[Message]:
        with self._lock:
            ready = [i for i in message_ids if i in self._by_message_id]
            return [self._by_message_id.pop(i) for i in ready]


class LocalGrid(Grid):
    """A Grid over ClientApps in this process. Close it, or use it in a `with` statement."""

    def __init__(self, apps: Mapping[int, ClientApp]) -> None:
        """Start one thread for every ClientApp.

        Args:
            apps: ClientApp by node id; ids are above SERVER_NODE_ID.
        """
        claim_identity(RUN_ID, SERVER_NODE_ID)
        self._run = empty_run(RUN_ID)
        self._numbers = count(1)
        self._replies = _Replies()
        self._threads = {
            node_id: _ZoneThread(node_id, app, self._replies) for node_id, app in apps.items()
        }

    def __enter__(self) -> "LocalGrid":
        """Return the grid."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the grid."""
        self.close()

    def set_run(self, run: Run) -> None:
        """Set the record of the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The record of the run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self._threads)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand every message to its node's thread and return their ids."""
        message_ids = []
        for message in messages:
            message_id = f"message-{next(self._numbers)}"
            set_message_id(message, message_id)
            message_ids.append(message_id)
            thread = self._threads.get(message.metadata.dst_node_id)
            if thread is None:
                reason = f"no node {message.metadata.dst_node_id}"
                self._replies.put(Message(Error(FAILED, reason), reply_to=message))
            else:
                thread.submit(message)
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there; each is returned once."""
        return self._replies.take(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Push messages and wait for the replies, at most `timeout` seconds."""
        waiting = set(self.push_messages(messages))
        deadline = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting:
            new = self.pull_messages(sorted(waiting))
            replies += new
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            if deadline is not None and time.monotonic() >= deadline:
                break
            if waiting and not new:
                time.sleep(_POLL_S)
        return replies

    def close(self, timeout_s: float = 30.0) -> bool:
        """End all threads; return whether all ended within `timeout_s` seconds."""
        for thread in self._threads.values():
            thread.submit(None)
        deadline = time.monotonic() + timeout_s
        return all(t.join(max(0.0, deadline - time.monotonic())) for t in self._threads.values())


def _reply(app: ClientApp, message: Message, context: Context) -> Message:
    try:
        return app(message, context)
    except BaseException as error:  # noqa: BLE001 - a thread that dies would never answer
        return Message(Error(FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
