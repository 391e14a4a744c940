from pathlib import Path

import pytest

from marl_sched.comparing.trained import trained_policies
from marl_sched.errors import ConfigError, RunError


def published(folder: Path) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/best.npz").touch()
    return folder


def comparison(folder: Path) -> Path:
    folder.mkdir()
    (folder / "study.yaml").write_text(
        "policies: [{name: a}, {name: a-b, evaluate: [agent.cvar_alpha=0.5]}, {name: none}]\n"
    )
    for name in ("a-10", "a-2", "a-b-1"):
        published(folder / "runs" / name)
    (folder / "runs/a-3").mkdir()  # has published nothing yet
    return folder


def test_runs_are_training_seeds_of_one_policy(tmp_path: Path) -> None:
    runs = [published(tmp_path / name) for name in ("x", "y")]
    (found,) = trained_policies(runs)
    assert (found.name, found.runs) == ("learned", {1: runs[0], 2: runs[1]})


def test_comparison_gives_all_that_it_has_trained(tmp_path: Path) -> None:
    runs = comparison(tmp_path / "c") / "runs"
    a, b = trained_policies([tmp_path / "c"])
    assert (a.name, a.runs, a.agent) == ("a", {2: runs / "a-2", 10: runs / "a-10"}, ())
    assert list(a.runs) == [2, 10]
    assert (b.name, b.runs, b.agent) == ("a-b", {1: runs / "a-b-1"}, ("agent.cvar_alpha=0.5",))


def test_what_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    one = comparison(tmp_path / "one")
    with pytest.raises(ConfigError, match="is given twice"):
        trained_policies([one, tmp_path / "x/../one"])
    other = comparison(tmp_path / "other")
    with pytest.raises(ConfigError, match="two policies are called a, expected every name once"):
        trained_policies([one, other])


def test_missing_run_and_comparison_without_a_policy_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere: no such run"):
        trained_policies([tmp_path / "nowhere"])
    (tmp_path / "study.yaml").write_text("policies: [{name: a}]\n")
    with pytest.raises(RunError, match="a comparison without a trained policy yet"):
        trained_policies([tmp_path])
