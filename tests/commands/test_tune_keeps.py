import json
from pathlib import Path

import pytest

from marl_sched.commands.tuning import _refuse_weaker
from marl_sched.config import Tuning
from marl_sched.errors import RunError


def test_weights_tuned_harder_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(json.dumps({"evaluations": 250, "episodes": 40, "weights": {}}))
    with pytest.raises(RunError, match="250 evaluations on 40 episodes, more than 6 on 2"):
        _refuse_weaker(path, Tuning(evaluations=6, episodes=2))
    _refuse_weaker(path, Tuning(evaluations=250, episodes=40))


def test_a_broken_file_of_weights_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text("{")
    _refuse_weaker(path, Tuning())
    assert path.read_text() == "{"
