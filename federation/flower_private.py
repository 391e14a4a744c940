"""The only module with names that Flower does not promise to keep.

What an in-process Grid needs beyond the public API of flwr 1.39: the identity that a message takes
its sender from, the id that a SuperLink would give a message, and the types of Grid's signatures.
"""

from flwr.app import Message
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["Run", "claim_identity", "empty_run", "set_message_id"]


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
