"""The private names of Flower that we use, so that a new release that moves one fails here."""

import hashlib
import inspect

import grpc
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.superlink.grid import http_grid

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


def test_error_codes_are_those_of_flower() -> None:
    assert flower_private.KEY_IN_USE == ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE
    assert flower_private.VERSION_REFUSED == ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE


def test_calls_say_of_themselves_what_a_supernode_says() -> None:
    expected = RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata()
    assert flower_private.caller_metadata() == expected


def test_message_taken_apart_is_put_together_again() -> None:
    flower_private.claim_identity(run_id=4, node_id=9)
    message = Message(RecordDict({"a": ConfigRecord({"x": 1})}), 2, "train")
    tree = flower_private.get_object_tree(message)
    parts = flower_private.get_all_nested_objects(message)
    contents = {object_id: part.deflate() for object_id, part in parts.items()}
    assert {p.object_id for p in flower_private.iterate_object_tree(tree)} == set(contents)
    whole = flower_private.inflate_object_from_contents(tree.object_id, contents)
    assert isinstance(whole, Message)
    assert whole.content.config_records["a"]["x"] == 1


def test_head_of_a_message_survives_the_way_without_its_content() -> None:
    flower_private.claim_identity(run_id=4, node_id=9)
    message = Message(RecordDict({"a": ConfigRecord({"x": 1})}), 2, "train")
    bare = flower_private.remove_content_from_message(message)
    head = flower_private.message_from_proto(flower_private.message_to_proto(bare))
    assert head.metadata.dst_node_id == 2
    assert not head.content.config_records


def test_fleet_api_has_the_calls_that_a_node_makes() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        stub = flower_private.FleetStub(channel)
    calls = {name for name in vars(stub) if callable(getattr(stub, name))}
    assert calls >= {
        "RegisterNode",
        "ActivateNode",
        "DeactivateNode",
        "SendNodeHeartbeat",
        "PullMessages",
        "PullObject",
        "PushMessages",
        "PushObject",
        "ConfirmMessageReceived",
    }


def test_control_api_lists_nodes_with_their_keys_and_forgets_one() -> None:
    for name in ("ListNodes", "UnregisterNode", "RegisterNode"):
        assert callable(getattr(flower_private.ControlHttpClient, name))
    assert flower_private.UnregisterNodeRequest(node_id=7).node_id == 7
    reply = inspect.signature(flower_private.ControlHttpClient.ListNodes).return_annotation
    node = reply().nodes_info.add(node_id=2**64 - 1, public_key=b"key")
    assert (node.node_id, node.public_key) == (2**64 - 1, b"key")
    assert not node.HasField("unregistered_at")
    assert flower_private.ListNodesRequest() is not None


def test_deployed_server_app_does_not_wait_a_second_for_parts_of_a_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another test of this process may have replaced it; it is put back as it was afterwards.
    monkeypatch.setattr(http_grid, "pull_objects", flower_private.pull_objects)
    flower_private.pull_replies_at_once(http_grid.HttpGrid(token="any"))
    quick = http_grid.pull_objects
    assert quick.keywords == {"initial_backoff": 0.02, "backoff_cap": 0.5}
    assert set(quick.keywords) <= set(inspect.signature(quick.func).parameters)
    assert "pull_objects(" in inspect.getsource(http_grid.HttpGrid.pull_messages)


def test_bundle_of_an_app_is_small_and_names_its_hash() -> None:
    pyproject = """
    [project]
    name = "x"
    version = "1"
    [tool.flwr.app]
    publisher = "x"
    [tool.flwr.app.components]
    serverapp = "a:b"
    clientapp = "a:b"
    """
    request = flower_private.start_request(pyproject, {"run-dir": "there"})
    assert len(request.fab.content) < 2000
    assert request.fab.hash_str == hashlib.sha256(request.fab.content).hexdigest()
    assert request.override_config["run-dir"].string == "there"
