"""The only module with names that Flower does not promise to keep.

What an in-process Grid needs beyond the public API of flwr 1.39: the identity that a message takes
its sender from, the id that a SuperLink would give a message, and the types of Grid's signatures.
What a SuperNode of our own needs: the calls of the Fleet API, their signature, and how a message
is taken apart into objects and put together again.
What a supervisor needs: the Control API's client and messages, and how an app is bundled.
"""

import functools
import hashlib
import io
import sys
import zipfile
from collections.abc import Mapping

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.client.grpc_rere_client.node_auth_client_interceptor import NodeAuthClientInterceptor
from flwr.common.serde import (
    fab_to_proto,
    message_from_proto,
    message_to_proto,
    user_config_to_proto,
)
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.serverapp import Grid
from flwr.supercore.constant import (
    FLWR_COMPONENT_NAME_METADATA_KEY,
    FLWR_PACKAGE_NAME_METADATA_KEY,
    FLWR_PACKAGE_VERSION_METADATA_KEY,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.version import package_name, package_version

__all__ = [
    "KEY_IN_USE",
    "VERSION_REFUSED",
    "ActivateNodeRequest",
    "ConfirmMessageReceivedRequest",
    "ControlHttpClient",
    "DeactivateNodeRequest",
    "FleetStub",
    "ListNodesRequest",
    "ListRunsRequest",
    "Node",
    "NodeAuthClientInterceptor",
    "ObjectTree",
    "PullMessagesRequest",
    "PullObjectRequest",
    "PushMessagesRequest",
    "PushObjectRequest",
    "RegisterNodeFleetRequest",
    "RegisterNodeRequest",
    "Run",
    "SendNodeHeartbeatRequest",
    "StopRunRequest",
    "UnregisterNodeRequest",
    "caller_metadata",
    "claim_identity",
    "empty_run",
    "get_all_nested_objects",
    "get_object_tree",
    "inflate_object_from_contents",
    "iterate_object_tree",
    "message_from_proto",
    "message_to_proto",
    "no_object_id_recompute",
    "pull_replies_at_once",
    "remove_content_from_message",
    "set_message_id",
    "start_request",
]


KEY_IN_USE = 23
"""Code of a Fleet API error: the key is registered already. Flower's list of codes is in a module
that loads a web server, 9 MiB of it."""
VERSION_REFUSED = 1001
"""Code of a Fleet API error: another version of Flower."""


def caller_metadata() -> tuple[tuple[str, str], ...]:
    """Return what a SuperNode says of itself with every call."""
    return (
        (FLWR_PACKAGE_NAME_METADATA_KEY, package_name),
        (FLWR_PACKAGE_VERSION_METADATA_KEY, package_version),
        (FLWR_COMPONENT_NAME_METADATA_KEY, "SuperNode"),
    )


def claim_identity(run_id: int, node_id: int) -> None:
    """Say who creates messages in this process; `Message` refuses to be made before."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = node_id
    TaskIdentity.task_id = 1


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message the id that replies refer to; it has no public setter."""
    message.metadata.__dict__["_message_id"] = message_id


def empty_run(run_id: int) -> Run:
    """Return the record of a run that no SuperLink knows."""
    return Run.create_empty(run_id)


def pull_replies_at_once(grid: Grid) -> None:
    """Let the Grid of a deployed ServerApp look again soon for parts of a reply on their way.

    They arrive within a tenth of a second of its head, which is there first; Flower waits for a
    second before it looks again, in almost every round. A Grid of another kind stays as it is.
    """
    names = vars(sys.modules[type(grid).__module__])
    if names.get("pull_objects") is pull_objects:
        quick = functools.partial(pull_objects, initial_backoff=0.02, backoff_cap=0.5)
        names["pull_objects"] = quick


def start_request(pyproject: str, run_config: dict[str, str]) -> StartRunRequest:
    """Return the request for a run of an app that is nothing but its pyproject.toml.

    The apps that it names are those of the installed package; no code travels.
    """
    content = _bundle({"pyproject.toml": pyproject.encode()})
    return StartRunRequest(
        fab=fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {})),
        override_config=user_config_to_proto({**run_config}),
    )


def _bundle(files: Mapping[str, bytes]) -> bytes:
    """Return files as a Flower App Bundle: a zip with a list of them, their hashes and bits."""
    listed = [f"{n},{hashlib.sha256(c).hexdigest()},{8 * len(c)}" for n, c in files.items()]
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, ".info/CONTENT": "\n".join(listed).encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # of 1980: equal bytes every time
    return bundle.getvalue()
