"""The private names of Flower that we use, so that a new release that moves one fails here."""

from flwr.app import Message, RecordDict

from federation import flower_private


def test_message_takes_its_sender_from_the_claimed_identity() -> None:
    flower_private.claim_identity(run_id=4, node_id=9)
    message = Message(RecordDict(), 2, "train")
    assert (message.metadata.run_id, message.metadata.src_node_id) == (4, 9)


def test_reply_refers_to_the_id_that_was_set() -> None:
    flower_private.claim_identity(run_id=4, node_id=9)
    message = Message(RecordDict(), 2, "train")
    flower_private.set_message_id(message, "message-7")
    reply = Message(RecordDict(), reply_to=message)
    assert reply.metadata.reply_to_message_id == "message-7"


def test_empty_run_carries_its_id() -> None:
    assert flower_private.empty_run(5).run_id == 5
