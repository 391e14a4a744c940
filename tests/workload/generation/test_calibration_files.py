import json
from pathlib import Path
from typing import Any

import pytest

from marl_sched.errors import TraceError
from marl_sched.workload.generation import calibration as module
from marl_sched.workload.generation.calibration import Calibration, shipped
from marl_sched.workload.generation.fit import main

DATA = Path(module.__file__).parents[2] / "data"


def test_both_calibrations_ship() -> None:
    assert shipped() == ("alibaba-v2018", "openb")


@pytest.mark.parametrize("name", shipped())
def test_a_calibration_is_small_and_says_where_it_is_from(name: str) -> None:
    path = DATA / f"generator-{name}.json"
    assert path.stat().st_size <= 60_000
    calibration = Calibration.load(name)
    assert calibration.name == name
    assert "research use" in calibration.source
    assert calibration.method.startswith("python -m marl_sched.workload.generation.fit ")


@pytest.mark.parametrize("name", shipped())
def test_a_path_reads_as_a_name_does(name: str) -> None:
    assert Calibration.load(DATA / f"generator-{name}.json") == Calibration.load(name)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TraceError, match="nothing: no such calibration, expected a file or one of"):
        Calibration.load("nothing")


def broken(tmp_path: Path, change: dict[str, Any]) -> Path:
    path = tmp_path / "broken.json"
    content = json.loads((DATA / "generator-openb.json").read_text())
    path.write_text(json.dumps(content | change))
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": 3}, "name: Input should be a valid string"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"shapes": [[1, 1, 1, 0]]}, "a shape beyond the 1 shapes"),
        ({"shapes": [[1, 1, 1]] * 200}, "a shape without one number a resource"),
        ({"alike": {}}, "missing in margins or alike"),
        ({"classes": []}, "expected them ascending"),
        ({"n_instances": {"kind": "steps", "values": [1.0], "scores": []}}, "as many of each"),
        ({"n_instances": {"kind": "log", "values": [1.0]}}, "expected 81 and none"),
        ({"n_instances": {"kind": "steps", "values": [1, 2], "scores": [9, 0]}}, "scores descend"),
        ({"n_instances": {"kind": "integers", "values": [0], "scores": [9]}}, "values > 0"),
    ],
)
def test_a_broken_calibration_names_file_and_problem(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = broken(tmp_path, change)
    with pytest.raises(TraceError, match=problem) as caught:
        Calibration.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.slow
def test_the_shipped_figures_are_what_the_fit_makes_of_the_files(
    public_traces: Path, tmp_path: Path
) -> None:
    pods = public_traces / "alibaba-v2023-openb" / "openb_pod_list_default.csv"
    out = tmp_path / "openb.json"
    assert main(["openb", str(pods), str(out)]) == 0
    made, ships = Calibration.load(out), Calibration.load("openb")
    assert made.published == ships.published
    assert made.shapes == ships.shapes
    assert made.dispersion == ships.dispersion


def test_fit_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["openb"]) == 2
    assert "PODS.csv OUT" in capsys.readouterr().err


def test_fit_names_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["openb", str(tmp_path / "pods.csv"), str(tmp_path / "out.json")]) == 1
    assert "pods.csv: no such file" in capsys.readouterr().err
