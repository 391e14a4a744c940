"""A node's side of Flower's Fleet API over gRPC.

Flower's own client waits without bounds, ends the process when it is refused, and interrupts it
when it is not known. Here every call has a bound, ends at once when the node is to stop, and says
what its failure means.
"""

import contextlib
import threading
import time
from collections.abc import Sequence

from flwr.app import Message

from federation.fleet_errors import (
    LinkDown,
    MessageLost,
    NodeUnknown,
    NotAdmitted,
    Stopping,
)
from federation.fleet_line import LOOK_S, FleetLine, SuperLinkAddress
from federation.flower_private import (
    ActivateNodeRequest,
    ConfirmMessageReceivedRequest,
    DeactivateNodeRequest,
    Node,
    ObjectTree,
    PullMessagesRequest,
    PullObjectRequest,
    PushMessagesRequest,
    PushObjectRequest,
    RegisterNodeFleetRequest,
    SendNodeHeartbeatRequest,
    get_all_nested_objects,
    get_object_tree,
    inflate_object_from_contents,
    iterate_object_tree,
    message_from_proto,
    message_to_proto,
    no_object_id_recompute,
    remove_content_from_message,
    set_message_id,
)
from marl_sched.errors import SecurityError
from zones.chains import load_certificates
from zones.keys import PrivateKey, fingerprint, public_to_pem
from zones.tls import explain_failure, fetch_certificate

HEARTBEAT_S = 10.0
"""What the SuperLink is told, and its minimum. It holds a node for gone after twice as long."""
LEASE_S = 2 * HEARTBEAT_S

_OBJECT_S = 60.0
"""Longest call that carries a part of a message."""
_HEARTBEAT_CALL_S = 3.0
_ACTIVATION_GRACE_S = 2.0
"""A node that stops while it is being admitted waits for its id; without it, it says no goodbye."""

Head = tuple[Message, ObjectTree]
"""A message without its content, and the ids of its parts."""


class FleetLink:
    """Calls to one SuperLink as one node.

    `heartbeat` is called from a thread of its own, all else from one other.
    """

    def __init__(self, superlink: SuperLinkAddress, key: PrivateKey, stop: threading.Event) -> None:
        """Prepare the calls; nothing is sent.

        Args:
            superlink: Whom to call.
            key: The node's key, EC P-384.
            stop: Ends every call when set.

        Raises:
            SecurityError: The CAs cannot be read, or are not valid now.
        """
        self._superlink = superlink
        self._key = key
        self._public_key = public_to_pem(key.public_key())
        self._stop = stop
        # A channel is of one thread: to close it while another one calls ends the process.
        self._line = FleetLine(superlink, key, stop)
        self._heart_line = FleetLine(superlink, key, stop)
        self._node = Node()

    @property
    def key_name(self) -> str:
        """How messages call the node's key."""
        return fingerprint(self._key.public_key()).hex()[:8]

    def activate(self) -> int:
        """Tell the SuperLink that the node is there; return its id.

        Raises:
            NotAdmitted: The key is not registered, or a process with this key is still held for
                alive.
        """
        request = ActivateNodeRequest(public_key=self._public_key, heartbeat_interval=HEARTBEAT_S)
        try:
            reply = self._line.call("ActivateNode", request, grace_s=_ACTIVATION_GRACE_S)
        except NotAdmitted:
            self._register()
            reply = self._line.call("ActivateNode", request, grace_s=_ACTIVATION_GRACE_S)
        self._node = Node(node_id=reply.node_id)
        return int(reply.node_id)

    def _register(self) -> None:
        """Register the key, where a SuperLink lets anybody do so."""
        request = RegisterNodeFleetRequest(public_key=self._public_key)
        try:
            self._line.call("RegisterNode", request)
        except NotAdmitted as refusal:
            label = f"{self._superlink.address}: key {self.key_name} is not admitted"
            if refusal.is_key_known:
                raise NotAdmitted(
                    f"{label}: a process with this key is there, or was until less than "
                    f"{LEASE_S:g} s ago"
                ) from None
            raise NotAdmitted(
                f"{label}: it is not registered with the SuperLink, or was revoked, or a process "
                f"with this key is there, or was until less than {LEASE_S:g} s ago"
            ) from None

    def heartbeat(self) -> None:
        """Tell the SuperLink that the node is alive.

        Raises:
            NodeUnknown: It has to be activated again.
        """
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_S)
        try:
            reply = self._heart_line.call("SendNodeHeartbeat", request, _HEARTBEAT_CALL_S)
        except LinkDown:
            self._heart_line.reopen()
            raise
        if not reply.success:
            raise NodeUnknown(f"{self._superlink.address}: node {self._node.node_id} is not known")

    def receive(self) -> Head | None:
        """Return the head of the oldest message that was not fetched yet, if there is one."""
        reply = self._line.call("PullMessages", PullMessagesRequest(node=self._node))
        if not reply.messages_list:
            return None
        return message_from_proto(reply.messages_list[0]), reply.message_object_trees[0]

    def fetch(self, head: Head) -> Message:
        """Return a message with its content.

        Raises:
            MessageLost: Parts of it are not there.
        """
        message, tree = head
        run_id = message.metadata.run_id
        contents = self._pull(run_id, [part.object_id for part in iterate_object_tree(tree)])
        with contextlib.suppress(LinkDown):  # what it lets the SuperLink forget, time does too
            self._line.call(
                "ConfirmMessageReceived",
                ConfirmMessageReceivedRequest(
                    node=self._node, run_id=run_id, message_object_id=message.metadata.message_id
                ),
            )
        whole = inflate_object_from_contents(tree.object_id, contents)
        if not isinstance(whole, Message):
            raise MessageLost(f"a {type(whole).__name__} where a message was expected")
        set_message_id(whole, tree.object_id)
        return whole

    def _pull(self, run_id: int, object_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the parts of a message; the ServerApp may still be at sending them."""
        contents: dict[str, bytes] = {}
        deadline = time.monotonic() + _OBJECT_S
        while missing := [object_id for object_id in object_ids if object_id not in contents]:
            requests = [
                PullObjectRequest(node=self._node, run_id=run_id, object_id=object_id)
                for object_id in missing
            ]
            replies = self._line.calls("PullObject", requests, _OBJECT_S)
            for object_id, reply in zip(missing, replies, strict=True):
                if reply.object_available:
                    contents[object_id] = reply.object_content
                elif not reply.object_found or time.monotonic() > deadline:
                    raise MessageLost(f"part {object_id[:8]} of a message is not there")
            if len(contents) < len(object_ids) and self._stop.wait(LOOK_S):
                raise Stopping
        return contents

    def send(self, reply: Message, work_s: float) -> None:
        """Send a reply; the same reply may be sent again until it has arrived.

        Args:
            reply: The reply.
            work_s: How long it took to make.
        """
        with no_object_id_recompute():
            set_message_id(reply, reply.object_id)
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[work_s],
            )
            answer = self._line.call("PushMessages", request)
            missing = set(answer.objects_to_push)
            parts = get_all_nested_objects(reply)
            requests = [
                PushObjectRequest(
                    node=self._node,
                    run_id=reply.metadata.run_id,
                    session_id=answer.session_id,
                    object_id=object_id,
                    object_content=part.deflate(),
                )
                for object_id, part in parts.items()
                if object_id in missing
            ]
        if not all(done.stored for done in self._line.calls("PushObject", requests, _OBJECT_S)):
            # Another try begins anew, with another session.
            raise LinkDown(f"{self._superlink.address}: a part of the reply was not taken")

    def deactivate(self, timeout_s: float) -> bool:
        """Tell the SuperLink that the node leaves; return whether it heard of it."""
        return self.release(self._node.node_id, timeout_s)

    def release(self, node_id: int, timeout_s: float) -> bool:
        """Tell the SuperLink that a node of our key is gone; return whether it heard of it."""
        request = DeactivateNodeRequest(node_id=node_id)
        return self._line.last_call("DeactivateNode", request, timeout_s)

    def close(self) -> None:
        """Close the connections; no heartbeat is under way."""
        self._line.close()
        self._heart_line.close()

    def reopen(self) -> None:
        """Begin with a new connection: the present one may hang for minutes."""
        self._line.reopen()

    def explain(self, timeout_s: float = 5.0) -> None:
        """Look for what no other try will mend, after a call has failed.

        Raises:
            SecurityError: The other side speaks TLS and we do not, or its certificate is not valid.
        """
        address, ca = self._superlink.address, self._superlink.ca
        if ca is not None:
            explain_failure(address, load_certificates(ca), str(ca), timeout_s)
            return
        try:
            fetch_certificate(address, timeout_s)
        except OSError:
            return
        raise SecurityError(f"{address}: speaks TLS, expected plain text with --insecure")
