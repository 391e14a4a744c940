"""What can come of a call to the Fleet API, and what a failed one means.

LinkDown, NotAdmitted, NodeUnknown and RunIsOver are for the node to deal with; any other error is
one that no other try will mend.
"""

import json
from importlib.metadata import version

import grpc

from federation.flower_private import KEY_IN_USE, VERSION_REFUSED
from marl_sched.errors import MarlSchedError, RunError, SecurityError
from zones.chains import show_time, utc_now


class LinkDown(MarlSchedError):
    """No answer from the SuperLink; another try may have one."""


class NotAdmitted(MarlSchedError):
    """The SuperLink refuses to activate this node; another try may succeed."""

    def __init__(self, message: str, is_key_known: bool = False) -> None:
        """Say why; `is_key_known` when the key is registered already."""
        super().__init__(message)
        self.is_key_known = is_key_known


class NodeUnknown(MarlSchedError):
    """The SuperLink no longer knows the node: it has to be activated again."""


class RunIsOver(MarlSchedError):
    """The run that a message belongs to is not running."""


class MessageLost(MarlSchedError):
    """A part of a message is no longer there."""


class Stopping(Exception):
    """The node is to stop; not an error."""


def meaning(address: str, error: grpc.RpcError) -> MarlSchedError:
    """Return the error that a failed call to the SuperLink at `address` stands for."""
    code, details = error.code(), str(error.details())
    told = _told(details)
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return RunIsOver("the run is not running")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return _unauthenticated(address, details)
    if code is grpc.StatusCode.FAILED_PRECONDITION and told is not None:
        number, said = told
        if number == VERSION_REFUSED:
            return RunError(f"{address}: {said}")
        return NotAdmitted(f"{address}: {said}", number == KEY_IN_USE)
    expected = f"expected the Fleet port of a SuperLink of flwr {version('flwr')}"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RunError(f"{address}: has no Fleet API over gRPC, {expected}")
    if any(sign in details.lower() for sign in ("http1", "http/1", "parsing http/2")):
        return RunError(f"{address}: speaks HTTP/1, as later versions do; {expected}")
    return LinkDown(f"{address}: {_last(details) or code.name}")


def _unauthenticated(address: str, details: str) -> MarlSchedError:
    if "timestamp" in details:
        return SecurityError(
            f"{address}: refuses the time of our calls: this host's clock says "
            f"{show_time(utc_now())}, the SuperLink's something else; expected at most 5 s ahead "
            "or 305 s behind (set the clocks)"
        )
    if "node ID" in details:
        return NodeUnknown(f"{address}: the node is not known there")
    return SecurityError(f"{address}: {details}, expected a SuperLink that takes our signature")


def _told(details: str) -> tuple[int, str] | None:
    """Return code and words of an error as Flower sends it; None if it is another's."""
    try:
        told = json.loads(details)
        return int(told["code"]), str(told.get("public_details") or told["public_message"])
    except (ValueError, KeyError, TypeError):
        return None


def _last(details: str) -> str:
    """Return the end of what gRPC says: before it stands what it tried first."""
    return details.rsplit("; ", 1)[-1].strip()
