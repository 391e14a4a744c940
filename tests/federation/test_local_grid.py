import threading

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.flower_private import claim_identity
from federation.local_grid import RUN_ID, SERVER_NODE_ID, LocalGrid
from federation.messages import FAILED


def app_that(work: object) -> ClientApp:
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        if isinstance(work, BaseException):
            raise work
        if isinstance(work, threading.Event):
            work.wait(20.0)
        thread = threading.current_thread().name
        return Message(RecordDict({"who": ConfigRecord({"thread": thread})}), reply_to=message)

    return app


def query(node_id: int) -> Message:
    claim_identity(RUN_ID, SERVER_NODE_ID)
    return Message(RecordDict(), node_id, "query")


def test_every_node_answers_from_its_own_thread() -> None:
    with LocalGrid({2: app_that(None), 3: app_that(None)}) as grid:
        replies = grid.send_and_receive([query(2), query(3)], timeout=20.0)
    threads = {r.metadata.src_node_id: r.content.config_records["who"]["thread"] for r in replies}
    assert threads == {2: "zone-2", 3: "zone-3"}


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit("odd")])
def test_what_an_app_raises_becomes_an_error_reply(error: BaseException) -> None:
    with LocalGrid({2: app_that(error)}) as grid:
        (reply,) = grid.send_and_receive([query(2)], timeout=20.0)
        (again,) = grid.send_and_receive([query(2)], timeout=20.0)
    assert reply.error.code == again.error.code == FAILED
    assert reply.error.reason == f"{type(error).__name__}: odd"


def test_message_to_an_unknown_node_is_answered_with_an_error() -> None:
    with LocalGrid({2: app_that(None)}) as grid:
        (message_id,) = grid.push_messages([query(7)])
        (reply,) = grid.pull_messages([message_id])
    assert reply.error.reason == "no node 7"
    assert reply.metadata.reply_to_message_id == message_id


def test_reply_is_pulled_once() -> None:
    with LocalGrid({2: app_that(None)}) as grid:
        (message_id,) = grid.push_messages([query(2)])
        assert grid.close()
        assert len(grid.pull_messages([message_id])) == 1
        assert grid.pull_messages([message_id]) == []


def test_wait_for_a_silent_node_is_bounded() -> None:
    release = threading.Event()
    with LocalGrid({2: app_that(release), 3: app_that(None)}) as grid:
        replies = grid.send_and_receive([query(2), query(3)], timeout=0.1)
        release.set()
    assert [reply.metadata.src_node_id for reply in replies] == [3]


def test_close_ends_all_threads_and_says_when_one_does_not() -> None:
    release = threading.Event()
    grid = LocalGrid({2: app_that(release), 3: app_that(None)})
    grid.push_messages([query(2)])
    assert not grid.close(timeout_s=0.1)
    release.set()
    assert grid.close()
    assert not [t for t in threading.enumerate() if t.name in ("zone-2", "zone-3")]
