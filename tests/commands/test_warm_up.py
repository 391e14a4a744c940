import sys

import pytest

from marl_sched import kernel_cache
from marl_sched.commands.warm_up import warm_up
from marl_sched.errors import MarlSchedError

FAILS = "/bin/false"


def test_nothing_is_run_when_the_kernels_are_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_cache, "is_cold", lambda: False)
    monkeypatch.setattr(sys, "executable", FAILS)
    warm_up()  # running anything would fail, and say so
    assert capsys.readouterr() == ("", "")


def test_a_compilation_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "is_cold", lambda: True)
    monkeypatch.setattr(sys, "executable", FAILS)
    with pytest.raises(MarlSchedError, match="could not be compiled"):
        warm_up()
