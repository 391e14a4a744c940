from pathlib import Path

import pytest

from marl_sched.comparing.folder import refuse_comparison
from marl_sched.errors import RunError


def test_folder_of_a_run_is_no_comparison(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("name: a\n")
    refuse_comparison(tmp_path)
    refuse_comparison(tmp_path / "nowhere")


def test_comparison_is_named_with_its_runs(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("policies: []\n")
    with pytest.raises(RunError, match=r"expected one of those in .*/runs: none has begun yet"):
        refuse_comparison(tmp_path)
    for name in ("ppo-1", "a-2", "a-1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    with pytest.raises(RunError, match=r"runs: a-1, a-2, ppo-1$"):
        refuse_comparison(tmp_path)
