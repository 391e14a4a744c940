"""The page beside the demo: there while it runs, gone with it."""

import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from marl_sched.commands import demo

pytestmark = pytest.mark.network


def health(address: str) -> int | None:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as reply:
            return int(reply.status)
    except OSError:
        return None


def test_page_is_served_while_the_demo_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(demo, "_PORT", taken.getsockname()[1])  # then it takes another
        with demo._page(tmp_path / "run"):
            found = re.fullmatch(r"watch: (http://127\.0\.0\.1:\d+)\n", capsys.readouterr().err)
            assert found is not None
            deadline = time.monotonic() + 60.0
            while health(found[1]) != 200:
                assert time.monotonic() < deadline, "no page in time"
                time.sleep(0.05)
    assert health(found[1]) is None
