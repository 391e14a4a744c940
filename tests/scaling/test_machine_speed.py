"""The fixed work that tells how fast the machine is."""

import threading
import time

from federation.scaling.machine_speed import SpeedProbe


def test_probe_takes_a_little_cpu_and_tells_every_figure_once() -> None:
    with SpeedProbe() as probe:
        deadline = time.monotonic() + 30.0
        found = None
        while found is None and time.monotonic() < deadline:
            found = probe.take()
            threading.Event().wait(0.05)
    assert found is not None
    assert 0 < found < 0.5
    probe.take()
    assert probe.take() is None
    assert "speed-probe" not in {thread.name for thread in threading.enumerate()}
