"""Who becomes which zone: nodes that answer, are silent, die, come back, claim the same name."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from flwr.app import Error, Message
from flwr.serverapp import Grid
from zone_double import experiment_of

from federation.flower_private import claim_identity, set_message_id
from federation.greeting import Hello, ZoneStatus, decode_hello, encode_status
from federation.messages import FAILED, STALE
from federation.roster import Roster
from federation.seats import Seat
from federation.session import Patience
from marl_sched.config import Experiment
from marl_sched.errors import RunError
from zones.records import Assignment

EXPERIMENT = experiment_of("federation.quorum=2")
PATIENCE = Patience(wait_s=0.3, answer_s=0.3, poll_s=0.01, n_returns=2)
LONG = Patience(wait_s=20.0, answer_s=20.0, poll_s=0.01)


class Node:
    """A node as the roster sees it."""

    def __init__(
        self, name: str = "", *, answers: bool = True, n_unready: int = 0, problem: str = ""
    ) -> None:
        self.name, self.answers, self.n_unready = name, answers, n_unready
        self.was = Assignment("", 0)
        self.told: list[Hello] = []
        self.problem = problem
        self.error: int | None = None

    def greet(self, hello: Hello) -> ZoneStatus:
        self.told.append(hello)
        if hello.zone:
            self.was = Assignment(hello.zone, hello.epoch)
        is_ready = self.n_unready == 0
        self.n_unready = max(0, self.n_unready - bool(hello.zone))
        zone, epoch = self.was.zone, self.was.epoch
        return ZoneStatus(self.name, zone, epoch, is_ready, self.problem)


class FakeGrid(Grid):
    """Nodes by id; those that do not answer keep the message, as a SuperLink does."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        claim_identity(1, 1)
        self.nodes = nodes
        self._waiting: dict[str, Message] = {}
        self._numbers: Iterator[int] = iter(range(1, 10_000))
        self.drops: set[int] = set()
        """Nodes whose messages get lost."""

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"query-{next(self._numbers)}")
            set_message_id(message, ids[-1])
            if message.metadata.dst_node_id not in self.drops:
                self._waiting[ids[-1]] = message
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for message_id in list(message_ids):
            message = self._waiting.get(message_id)
            if message is None:
                continue
            node = self.nodes.get(message.metadata.dst_node_id)
            if node is not None and not node.answers:
                continue
            del self._waiting[message_id]
            if node is None or node.error is not None:
                code = FAILED if node is None or node.error is None else node.error
                replies.append(Message(Error(code, "no"), reply_to=message))
                continue
            hello = decode_hello(message.content)
            assert hello is not None
            replies.append(Message(encode_status(node.greet(hello)), reply_to=message))
        return replies

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **more: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        raise NotImplementedError


class Watched:
    def __init__(
        self,
        nodes: dict[int, Node],
        table: dict[str, Seat] | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self.grid = FakeGrid(nodes)
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.roster = Roster(
            self.grid,
            EXPERIMENT,
            patience,
            table or {},
            lambda kind, what: self.notes.append((kind, dict(what))),
            threading.Event(),
        )
        self._shift_s = 0.0
        self.roster._questions.now = self._now

    @property
    def who(self) -> dict[str, int]:
        return {zone: node_id for zone, (node_id, _) in self.roster.seats.items()}

    def epochs(self) -> dict[str, int]:
        return {zone: claim.epoch for zone, (_, claim) in self.roster.seats.items()}

    def refresh(self, times: int = 1) -> None:
        """Look several times, as the roster does between rounds that take a while."""
        for _ in range(times):
            self._shift_s += 10.0
            self.roster.refresh()

    def missing(self) -> dict[str, str]:
        """Return the zones that were last said to be missing, with the reasons."""
        said = [what for kind, what in self.notes if kind == "missing"]
        assert said[-1]["zones"] == sorted(said[-1]["why"])
        why: dict[str, str] = said[-1]["why"]
        return why

    def _now(self) -> float:
        return time.monotonic() + self._shift_s


@pytest.fixture(autouse=True)
def _identity() -> None:
    claim_identity(1, 1)


def test_named_nodes_get_their_zones_whatever_their_ids() -> None:
    watched = Watched({7: Node("zone_2"), 8: Node("zone_0"), 9: Node("zone_1")})
    watched.roster.refresh()
    assert watched.who == {"zone_0": 8, "zone_1": 9, "zone_2": 7}
    assert watched.epochs() == {"zone_0": 1, "zone_1": 1, "zone_2": 1}


def test_free_nodes_get_free_zones_in_order_and_the_rest_are_spares() -> None:
    nodes = {5: Node(), 6: Node("zone_1"), 7: Node(), 8: Node()}
    watched = Watched(nodes)
    watched.roster.refresh()
    assert set(watched.who) == {"zone_0", "zone_1", "zone_2"}
    assert watched.who["zone_1"] == 6
    spare = ({5, 7, 8} - set(watched.who.values())).pop()
    assert nodes[spare].was == Assignment("", 0)


def test_known_nodes_are_not_asked_again() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    n_told = [len(node.told) for node in nodes.values()]
    watched.refresh(5)
    assert [len(node.told) for node in nodes.values()] == n_told


def test_zone_that_is_not_ready_is_asked_again_and_waited_for() -> None:
    patience = Patience(wait_s=10.0, answer_s=1.0, poll_s=0.01)
    nodes = {5: Node("zone_0"), 6: Node("zone_1", n_unready=2), 7: Node("zone_2")}
    watched = Watched(nodes, patience=patience)
    watched.roster.refresh()
    assert set(watched.who) == {"zone_0", "zone_1", "zone_2"}
    assert watched.epochs()["zone_1"] == 1


def test_run_goes_on_with_a_quorum_and_says_who_is_missing() -> None:
    watched = Watched({5: Node("zone_0"), 6: Node("zone_2"), 7: Node("zone_1", answers=False)})
    watched.roster.refresh()
    assert set(watched.who) == {"zone_0", "zone_2"}
    reason = "no process of it is there (1 have not said yet what they are)"
    assert watched.missing() == {"zone_1": reason}


def test_too_few_zones_end_the_run() -> None:
    watched = Watched({5: Node("zone_0")})
    with pytest.raises(RunError, match=r"1 zones are left, expected at least federation\.quorum"):
        watched.roster.refresh()


def test_lost_zone_returns_between_rounds_under_a_new_epoch() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    watched.roster.commit(4, ["zone_0", "zone_1", "zone_2"])
    nodes[6].answers = False
    watched.roster.remove({"zone_1": "its stream broke"})
    watched.refresh(3)
    assert set(watched.who) == {"zone_0", "zone_2"}
    nodes[6].answers = True
    watched.refresh(3)
    assert watched.who["zone_1"] == 6
    assert watched.epochs() == {"zone_0": 1, "zone_1": 2, "zone_2": 1}
    assert nodes[6].told[-1].last_round == 4


def test_spare_takes_a_lost_zone_and_the_old_process_becomes_a_spare() -> None:
    nodes = {5: Node(), 6: Node(), 7: Node(), 8: Node()}
    watched = Watched(nodes)
    watched.roster.refresh()
    lost = watched.who["zone_1"]
    spare = (set(nodes) - set(watched.who.values())).pop()
    nodes[lost].answers = False
    watched.roster.remove({"zone_1": "stopped"})
    watched.refresh(3)
    assert watched.who["zone_1"] == spare
    assert watched.epochs()["zone_1"] == 2
    nodes[lost].answers = True
    watched.refresh(4)
    assert watched.who["zone_1"] == spare
    assert nodes[lost].told[-1].zone == ""


def test_node_that_is_lost_too_often_stays_out() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    for _ in range(PATIENCE.n_returns):
        watched.roster.remove({"zone_1": "nan"})
        watched.refresh(3)
        assert "zone_1" in watched.who
    watched.roster.remove({"zone_1": "nan"})
    watched.refresh(5)
    assert "zone_1" not in watched.who


def test_losses_are_not_forgotten_by_leaving() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    for _ in range(PATIENCE.n_returns + 1):
        watched.roster.remove({"zone_1": "nan"})
        gone = nodes.pop(6)
        watched.refresh()
        nodes[6] = gone
        watched.refresh(3)
    assert "zone_1" not in watched.who


def test_name_claimed_twice_is_refused_to_the_newer_one() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    nodes[3] = Node("zone_1")
    watched.refresh(6)
    assert watched.who["zone_1"] == 6
    assert "zone zone_1 is node 6 already, node 3 was started for it" in nodes[3].told[-1].refusal
    assert [kind for kind, _ in watched.notes].count("refused") == 1


def test_name_of_a_dead_process_goes_to_the_new_one_once_it_is_gone() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    nodes[6].answers = False
    nodes[8] = Node("zone_1")
    watched.refresh(4)
    assert watched.who["zone_1"] == 6
    del nodes[6]
    watched.refresh(4)
    assert watched.who["zone_1"] == 8
    assert watched.epochs()["zone_1"] == 2
    assert all(not hello.refusal for hello in nodes[8].told)


def test_node_of_an_unknown_zone_is_refused_and_the_run_goes_on() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_9")}
    watched = Watched(nodes)
    watched.roster.refresh()
    watched.refresh(3)
    assert set(watched.who) == {"zone_0", "zone_1"}
    assert "it is zone 'zone_9', expected one of zone_0, zone_1" in nodes[7].told[-1].refusal


def test_question_that_was_passed_over_is_asked_again() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    nodes[6].error = STALE
    watched = Watched(nodes)
    watched.roster.refresh()
    assert "zone_1" not in watched.who
    nodes[6].error = None
    watched.refresh(4)
    assert watched.who["zone_1"] == 6


def test_question_that_is_never_answered_is_asked_again() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.grid.drops.add(6)
    watched.roster.refresh()
    assert "zone_1" not in watched.who
    watched.grid.drops.clear()
    watched.refresh(2)
    assert not nodes[6].told  # it is given time
    watched.refresh(4)
    assert watched.who["zone_1"] == 6


def test_challenge_that_is_never_answered_is_put_again() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    watched.grid.drops.add(6)
    nodes[3] = Node("zone_1")
    watched.refresh(2)
    watched.grid.drops.clear()
    watched.refresh(8)
    assert watched.who["zone_1"] == 6
    assert "zone zone_1 is node 6 already" in nodes[3].told[-1].refusal


def test_resumed_run_gives_every_free_node_the_zone_it_was() -> None:
    table = {"zone_0": Seat(9, 3, 5), "zone_1": Seat(8, 1, 5), "zone_2": Seat(7, 2, 5)}
    nodes = {7: Node(), 8: Node(), 9: Node()}
    watched = Watched(nodes, table)
    watched.roster.refresh()
    assert watched.who == {"zone_0": 9, "zone_1": 8, "zone_2": 7}
    assert watched.epochs() == {"zone_0": 4, "zone_1": 2, "zone_2": 3}
    assert [node.told[-1].last_round for node in nodes.values()] == [5, 5, 5]


def test_epoch_is_above_what_a_node_says_that_it_has() -> None:
    node = Node("zone_1")
    node.was = Assignment("zone_1", 9)
    watched = Watched({5: Node("zone_0"), 6: node, 7: Node("zone_2")})
    watched.roster.refresh()
    assert watched.epochs()["zone_1"] == 10


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**62, 2**40 + 1])
def test_epoch_that_no_run_reaches_is_not_believed(epoch: int) -> None:
    node = Node("zone_1")
    node.was = Assignment("zone_1", epoch)
    watched = Watched({5: Node("zone_0"), 6: node, 7: Node("zone_2")})
    watched.roster.refresh()
    assert watched.epochs()["zone_1"] == 1


def test_what_a_node_says_of_itself_is_short_and_one_line() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2"), 8: Node("x" * 64)}
    nodes[6].problem = "\x1b[2J\n" + "why " * 1000
    watched = Watched(nodes)
    watched.roster.refresh()
    (problem,) = {what["problem"] for kind, what in watched.notes if kind == "problem"}
    assert problem.startswith(" [2J why why")
    assert len(problem) <= 500
    (reason,) = {what["reason"] for kind, what in watched.notes if kind == "refused"}
    assert "name of 64 characters, expected at most 63" in reason


def test_problem_of_a_node_is_told_and_does_not_end_the_run() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    nodes[6].problem = "this host has flwr 1.0"
    watched = Watched(nodes)
    watched.roster.refresh()
    assert set(watched.who) == {"zone_0", "zone_2"}
    assert ("problem", {"zone": "zone_1", "problem": "this host has flwr 1.0"}) in watched.notes


def test_zone_that_leaves_between_rounds_is_told() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    del nodes[6]
    watched.refresh()
    assert set(watched.who) == {"zone_0", "zone_2"}
    assert ("left", {"zone": "zone_1"}) in watched.notes


def test_answer_that_makes_no_sense_bars_the_node() -> None:
    class Odd(Node):
        def greet(self, hello: Hello) -> ZoneStatus:
            return ZoneStatus("zone_1", "zone_1", "one", True)  # type: ignore[arg-type]

    watched = Watched({5: Node("zone_0"), 6: Odd("zone_1"), 7: Node("zone_2")})
    watched.roster.refresh()
    assert set(watched.who) == {"zone_0", "zone_2"}
    reasons = [what["reason"] for kind, what in watched.notes if kind == "refused"]
    assert "epoch = 'one'" in reasons[0]


def test_named_node_gets_its_zone_from_a_free_one_that_came_first() -> None:
    nodes = {5: Node(), 6: Node(), 7: Node()}
    watched = Watched(nodes, patience=LONG)
    for _ in range(3):
        watched.roster._step()
    assert [node.was.zone for node in nodes.values()] == ["zone_0", "zone_1", "zone_2"]
    nodes[9] = Node("zone_0")
    del nodes[7]
    watched.roster.refresh()
    # The free one makes room at once, and takes what is left.
    assert watched.who == {"zone_0": 9, "zone_1": 6, "zone_2": 5}
    assert watched.epochs() == {"zone_0": 2, "zone_1": 1, "zone_2": 2}


def test_named_node_gets_its_zone_later_and_no_round_is_without_it() -> None:
    nodes = {5: Node(), 6: Node(), 7: Node()}
    watched = Watched(nodes)
    watched.roster.refresh()
    assert watched.who["zone_1"] == 6
    nodes[9] = Node("zone_1", n_unready=2)
    for _ in range(4):
        watched.refresh()
        assert watched.who["zone_1"] == 6
        assert watched.epochs()["zone_1"] == 1
    watched.refresh(4)
    assert watched.who == {"zone_0": 5, "zone_1": 9, "zone_2": 7}
    assert watched.epochs()["zone_1"] == 2
    assert nodes[6].told[-1].zone == ""


def test_free_node_that_gave_its_zone_back_takes_the_next_one_that_is_lost() -> None:
    nodes = {5: Node(), 6: Node(), 7: Node(), 9: Node("zone_1")}
    watched = Watched(nodes)
    watched.roster.refresh()
    spare = ({5, 6, 7} - set(watched.who.values())).pop()
    lost = watched.who["zone_2"]
    del nodes[lost]
    watched.refresh(4)
    assert watched.who["zone_2"] == spare
    assert watched.who["zone_1"] == 9


def test_named_node_that_was_lost_gets_its_zone_back_from_the_spare() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    nodes[8] = Node()
    nodes[6].answers = False
    watched.roster.remove({"zone_1": "stopped"})
    watched.refresh(3)
    assert watched.who["zone_1"] == 8
    nodes[6].answers = True
    watched.refresh(4)
    assert watched.who["zone_1"] == 6
    assert watched.epochs()["zone_1"] == 3
    assert nodes[8].told[-1].zone == ""


def test_losses_of_a_zone_do_not_count_for_the_node_that_waits_for_it() -> None:
    nodes = {5: Node("zone_0"), 6: Node(), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    nodes[9] = Node("zone_1", n_unready=100)
    watched.refresh(2)
    watched.roster.remove({"zone_1": "its stream broke"})
    waiting, lost = (watched.roster._nodes[number] for number in (9, 6))
    assert (waiting.n_losses, lost.n_losses) == (0, 1)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (None, "no process of it is there"),
        (Node("zone_1", n_unready=1000), "its process is there but not ready: it still prepares"),
        (Node("zone_1", problem="a: no such trace"), "not ready: a: no such trace"),
        (Node("zone_9"), "no process of it is there"),
    ],
)
def test_reason_why_a_zone_is_missing_is_told(node: Node | None, reason: str) -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_2")} | ({} if node is None else {7: node})
    watched = Watched(nodes)
    watched.roster.refresh()
    why = watched.missing()["zone_1"]
    assert why.endswith(reason)


def test_end_of_a_run_with_too_few_zones_names_every_reason() -> None:
    watched = Watched({5: Node("zone_0"), 6: Node("zone_1", n_unready=1000)})
    with pytest.raises(RunError, match=r"zone_1: its process is there but not .*; zone_2: no pro"):
        watched.roster.refresh()


def test_added_zone_is_not_waited_for_and_joins_once_it_is_ready() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    assert set(watched.who) == {"zone_0", "zone_1", "zone_2"}
    assert {zone_names(node.told[-1]) for node in nodes.values()} == {"zone_0 zone_1 zone_2 zone_3"}
    assert set(watched.epochs().values()) == {1}
    nodes[8] = Node("zone_3", n_unready=2)
    watched.refresh(4)
    assert set(watched.who) == {"zone_0", "zone_1", "zone_2"}
    watched.refresh(4)
    assert watched.who["zone_3"] == 8
    assert [what["zone"] for kind, what in watched.notes if kind == "joined"] == [
        *("zone_0", "zone_1", "zone_2", "zone_3")
    ]


def test_zones_are_asked_to_prepare_for_the_change_and_waited_for() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes, patience=LONG)
    watched.roster.refresh()
    nodes[6].n_unready = 2
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    assert set(watched.who) == {"zone_0", "zone_1", "zone_2"}


def test_zone_that_does_not_prepare_in_time_is_left_out() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    nodes[6].answers = False
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    watched.roster.refresh()
    assert set(watched.who) == {"zone_0", "zone_2"}


def test_spare_takes_an_added_zone() -> None:
    nodes = {number: Node() for number in (5, 6, 7, 8)}
    watched = Watched(nodes)
    watched.roster.refresh()
    spare = (set(nodes) - set(watched.who.values())).pop()
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    watched.refresh(2)
    assert watched.who["zone_3"] == spare


def test_added_zone_without_a_process_is_told_once() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2")}
    watched = Watched(nodes)
    watched.roster.refresh()
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    watched.refresh(4)
    assert watched.missing() == {"zone_3": "no process of it is there"}
    assert [kind for kind, _ in watched.notes].count("missing") == 1


def test_node_of_a_removed_zone_is_refused_if_named_and_else_a_spare() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node()}
    watched = Watched(nodes)
    watched.roster.refresh()
    assert watched.who["zone_2"] == 7
    watched.roster.adopt(with_zones("zone_0", "zone_1"))
    watched.refresh(3)
    assert watched.who == {"zone_0": 5, "zone_1": 6}
    assert nodes[7].told[-1].zone == ""
    assert not nodes[7].told[-1].refusal
    watched.roster.adopt(with_zones("zone_0", "zone_2"))
    watched.refresh(3)
    assert watched.who == {"zone_0": 5, "zone_2": 7}
    assert watched.epochs() == {"zone_0": 1, "zone_2": 2}
    assert nodes[6].told[-1].refusal == "zone zone_1 is not in the configuration any more"
    assert [what["zone"] for kind, what in watched.notes if kind == "left"] == ["zone_2", "zone_1"]


def test_node_that_came_before_its_zone_was_added_is_let_in_then() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2"), 8: Node("zone_3")}
    watched = Watched(nodes)
    watched.roster.refresh()
    watched.refresh(2)
    assert nodes[8].told[-1].refusal
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    watched.refresh(2)
    assert watched.who["zone_3"] == 8


def test_answer_to_the_old_experiment_does_not_count_for_the_new_one() -> None:
    nodes = {5: Node("zone_0"), 6: Node("zone_1"), 7: Node("zone_2", n_unready=1)}
    watched = Watched(nodes, patience=replace(PATIENCE, wait_s=0.0, answer_s=0.05))
    watched.roster._step()
    watched.roster._step()  # zone_2 is asked whether it is what it was told to be
    node = watched.roster._nodes[7]
    asked = node.query
    assert asked is not None
    nodes[7].answers = False
    watched.roster.adopt(with_zones("zone_0", "zone_1", "zone_2", "zone_3"))
    assert node.query != asked


def with_zones(*names: str) -> Experiment:
    """The experiment with other zones, all like its first."""
    first = EXPERIMENT.zones[0]
    zones = [first.model_copy(update={"name": name}) for name in names]
    return EXPERIMENT.model_copy(update={"zones": zones})


def zone_names(hello: Hello) -> str:
    return " ".join(zone["name"] for zone in yaml.safe_load(hello.config)["zones"])


def test_node_that_may_not_have_the_zone_it_names_is_refused_and_the_zone_stays_free() -> None:
    watched = Watched({7: Node("zone_0"), 8: Node("zone_1"), 9: Node("zone_2"), 10: Node()})
    watched.roster.objection = lambda node_id, zone: "another key" if node_id == 8 else ""
    watched.refresh(3)
    assert watched.who == {"zone_0": 7, "zone_1": 10, "zone_2": 9}
    assert ("refused", {"node": "8", "reason": "another key"}) in watched.notes
