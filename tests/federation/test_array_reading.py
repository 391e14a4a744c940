"""Threads that read arrays at once do not disturb each other, whenever the collector runs."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from federation.messages import Packed, decode_order, encode_order
from federation.weights import WeightSpec
from marl_sched.agents.storage import read_arrays, write_arrays
from zones.records import NetworkPair, RoundOrder

N_THREADS, N_READS = 4, 100


@pytest.fixture
def often_collected() -> Iterator[None]:
    """Collect every few allocations, and let another thread run whenever that is done."""

    def give_way(*_: object) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.set_threshold(5)
    gc.callbacks.append(give_way)
    yield
    gc.callbacks.remove(give_way)
    gc.set_threshold(*threshold)


def _at_once(read: Callable[[], object]) -> list[Exception]:
    errors: list[Exception] = []

    def run() -> None:
        try:
            for _ in range(N_READS):
                read()
        except Exception as error:  # noqa: BLE001 - whatever it is
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60.0)
        assert not thread.is_alive()
    return errors


@pytest.mark.usefixtures("often_collected")
def test_orders_and_files_are_read_in_several_threads(tmp_path: Path) -> None:
    weights = {"a": np.zeros((3, 4), np.float32)}
    write_arrays(tmp_path / "a.npz", "test", {}, weights)
    spec = WeightSpec.of(weights)
    content = encode_order(Packed.of(NetworkPair(weights, weights), spec), RoundOrder(1, 1, ("a",)))

    def read() -> None:
        decode_order(content)
        read_arrays(tmp_path / "a.npz", "test")

    assert not _at_once(read)
