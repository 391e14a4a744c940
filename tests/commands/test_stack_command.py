"""The coordinator's container: what it says before anything runs."""

from pathlib import Path

import pytest

from marl_sched.commands.stack import require_memory, usable
from marl_sched.config import load_config
from marl_sched.errors import RunError
from marl_sched.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "configs" / "demo.yaml").read_text(encoding="utf-8")


class Editor:
    """Stands for the pauses: at each of them the file is written anew, or left alone."""

    def __init__(self, config: Path, *texts: str | None) -> None:
        self._config = config
        self._texts = list(texts)

    def __call__(self, seconds: float) -> None:
        text = self._texts.pop(0)
        if text is not None:
            self._config.write_text(text, encoding="utf-8")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "my.yaml"


def test_what_is_wrong_is_said_once_until_it_is_put_right(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(GOOD.replace("rounds: 8", "rounds: many"), encoding="utf-8")
    edits = Editor(config, None, None, GOOD.replace("seed: 1", "sed: 1"), None, GOOD)
    assert usable(config, tmp_path / "run", edits).training.rounds == 8
    talk = capsys.readouterr().err
    assert talk.count("training.rounds = many") == 1
    assert talk.count("sed") == 1
    assert talk.count("error: ") == 2


def test_a_trace_that_is_missing_is_said_and_waited_for(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(GOOD.replace("package:alibaba-v2018-hour", "mine.parquet"), encoding="utf-8")
    usable(config, tmp_path / "run", Editor(config, GOOD))
    assert "mine.parquet: no such file, expected a task table" in capsys.readouterr().err


def test_an_earlier_run_of_another_configuration_is_kept_and_named(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(GOOD, encoding="utf-8")
    run = tmp_path / "run"
    RunFolder.create(run, load_config(config))
    config.write_text(GOOD.replace("load: 0.45", "load: 0.5"), encoding="utf-8")
    assert usable(config, run, Editor(config, GOOD)).workload.load == 0.45
    talk = capsys.readouterr().err
    assert "workload.load = 0.45" in talk
    assert "`docker compose down -v` forgets the earlier run" in talk


def test_an_earlier_run_goes_on_with_other_zones(config: Path, tmp_path: Path) -> None:
    config.write_text(GOOD, encoding="utf-8")
    run = tmp_path / "run"
    RunFolder.create(run, load_config(config))
    config.write_text(GOOD.replace("name: zone_2", "name: zone_3"), encoding="utf-8")
    assert usable(config, run, Editor(config)).zone_names == ["zone_0", "zone_1", "zone_3"]


def test_too_little_memory_says_what_is_needed() -> None:
    with pytest.raises(RunError, match=r"4 zones: this machine has 2.0 GiB of memory, .*2.9 GiB"):
        require_memory(4, 2048)
    require_memory(1, 2048)
