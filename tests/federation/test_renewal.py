"""What the ServerApp makes anew when it is handed other zones, and what it refuses."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from outboxes import NAMES, three_zones

from federation.exchange_hub import ExchangeHub
from federation.exchange_meeting import HubLimits
from federation.local_run import open_session
from federation.renewal import Renewal
from federation.session import Session
from federation.wanted_config import Wanted
from marl_sched.config import Experiment, dump_config
from marl_sched.run_folder import RunFolder

pytestmark = pytest.mark.network


class Bench:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        experiment = three_zones()
        run = RunFolder.create(folder / "run", experiment)
        limits = HubLimits(min_zones=0)
        self.hub = stack.enter_context(ExchangeHub(experiment, "127.0.0.1:0", limits=limits))
        self.wanted = Wanted(folder)
        self.renewal = Renewal(Wanted(folder), self.hub, run.path, stack)
        self.renewal.prepare(experiment)
        self.notes: list[tuple[str, dict[str, Any]]] = []
        session = open_session(experiment, run, self.hub)
        vars(session)["note"] = lambda kind, what: self.notes.append((kind, dict(what)))
        self.session = session

    def renew(self) -> Session | None:
        return self.renewal.renew(self.session)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


def with_zones(*names: str) -> Experiment:
    first = three_zones()
    zones = [each for each in first.zones if each.name in names]
    added = [name for name in names if name not in NAMES]
    zones += [first.zones[0].model_copy(update={"name": name}) for name in added]
    return first.model_copy(update={"zones": zones})


def test_nothing_handed_over_is_no_change(bench: Bench) -> None:
    assert bench.renew() is None
    bench.wanted.write(three_zones())
    assert bench.renew() is None


def test_other_zones_are_taken_once_and_meet_in_the_exchange(bench: Bench) -> None:
    bench.wanted.write(with_zones("a", "c", "d"))
    session = bench.renew()
    assert session is not None
    assert session.experiment == with_zones("a", "c", "d")
    assert sorted(bench.hub.open(("a", "c", "d"), 1, 1)) == ["a", "c", "d"]
    bench.session = session
    assert bench.renew() is None
    assert bench.notes == []


def test_views_of_a_new_zone_are_shown(bench: Bench) -> None:
    before = bench.hub.watch
    bench.wanted.write(with_zones("a", "d"))
    assert bench.renew() is not None
    assert bench.hub.watch != before


@pytest.mark.parametrize(
    ("experiment", "problem"),
    [
        (three_zones(rounds=9), "training.rounds differs from the run's"),
        (with_zones(*(f"z{number}" for number in range(9))), "9 zones, expected at most 6"),
    ],
)
def test_what_cannot_be_taken_is_noted_once_and_the_run_goes_on(
    bench: Bench, experiment: Experiment, problem: str
) -> None:
    bench.wanted.write(experiment)
    assert [bench.renew(), bench.renew()] == [None, None]
    ((kind, what),) = bench.notes
    assert kind == "config"
    assert problem in what["problem"]
    assert sorted(bench.hub.open(NAMES, 1, 1)) == list(NAMES)


def test_file_that_is_none_of_ours_is_noted(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(dump_config(three_zones())[:-40] + "\nzones: [")
    assert bench.renew() is None
    assert [kind for kind, _ in bench.notes] == ["config"]
