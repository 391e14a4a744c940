"""Questions to nodes and their answers, over a Grid; nothing here waits.

A node has at most one question open. The answer to one that it was not asked last never counts.
One that is not answered is asked again: a SuperLink that dies, or a line that breaks, may take it
along.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from federation.greeting import Hello, ZoneStatus, decode_status, encode_hello
from federation.messages import STALE
from federation.seats import Node

_logger = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Time before a node that is not ready, or did not understand, is asked again."""
_UNANSWERED_S = 30.0
"""The same for one that has not answered; doubled with every time, for it may only be slow."""


class Questions:
    """Asks nodes what they are."""

    def __init__(self, grid: Grid) -> None:
        """Ask over a Grid."""
        self._grid = grid
        self.now: Callable[[], float] = time.monotonic

    def online(self) -> set[int]:
        """Return the ids of all nodes that are there."""
        return set(self._grid.get_node_ids())

    def ask(self, node: Node, hello: Hello) -> None:
        """Tell a node what it is, which it is to answer."""
        message = Message(encode_hello(hello), node.node_id, MessageType.QUERY)
        node.n_unanswered += node.query is not None
        ids = list(self._grid.push_messages([message]))
        node.query = ids[0] if ids else None
        wait_s = _UNANSWERED_S * 2.0 ** min(node.n_unanswered, 10)
        node.ask_at = self.now() + (AGAIN_S if node.query is None else wait_s)

    def is_due(self, node: Node) -> bool:
        """Return whether a node may be asked."""
        return node.ask_at <= self.now()

    def answers(self, nodes: Iterable[Node]) -> Iterator[tuple[Node, ZoneStatus | ValueError]]:
        """Yield what has come since, by node: an answer, or why it makes no sense."""
        asked = {n.query: n for n in nodes if n.query is not None}
        replies = list(self._grid.pull_messages(list(asked))) if asked else []
        for reply in sorted(replies, key=lambda r: asked[r.metadata.reply_to_message_id].node_id):
            node = asked[reply.metadata.reply_to_message_id]
            node.query, node.n_unanswered = None, 0
            node.ask_at = self.now() + AGAIN_S
            if reply.has_error():
                # One that was passed over for a newer message: only a live node does that.
                node.is_alive |= reply.error.code == STALE
                _logger.info("node %d: no answer: %s", node.node_id, reply.error.reason)
                continue
            try:
                yield node, decode_status(reply.content)
            except (ValueError, KeyError) as error:
                yield node, ValueError(str(error))
