"""Every file in configs/, and what loading, writing and overriding do."""

import json
from pathlib import Path

import pytest

from marl_sched.config import Experiment, dump_config, load_config
from marl_sched.config.loading import json_schema
from marl_sched.config.reference import reference
from marl_sched.config.yaml_text import parse_yaml, render_yaml

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
BASE = ROOT / "configs" / "base.yaml"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_loads_writes_and_loads_again_equal(path: Path, tmp_path: Path) -> None:
    experiment = load_config(path)
    written = tmp_path / "config.yaml"
    written.write_text(dump_config(experiment), encoding="utf-8")
    assert load_config(written) == experiment


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_written_config_names_every_field(path: Path) -> None:
    written = parse_yaml(dump_config(load_config(path)))
    assert set(written) == set(Experiment.model_fields)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_is_named_like_its_file(path: Path) -> None:
    assert load_config(path).name == path.stem


def test_adding_a_zone_is_adding_an_item(tmp_path: Path) -> None:
    data = parse_yaml(BASE.read_text(encoding="utf-8"))
    data["zones"].append(data["zones"][0] | {"name": "zone_3"})
    path = tmp_path / "four.yaml"
    path.write_text(render_yaml(data), encoding="utf-8")
    assert load_config(path).zone_names == ["zone_0", "zone_1", "zone_2", "zone_3"]


def test_overrides_apply_in_order_and_make_missing_sections() -> None:
    overrides = ["seed=5", "zones[1].machines[0].count = 9", "sla.late_base_s=7", "seed=6"]
    experiment = load_config(BASE, overrides)
    assert experiment.seed == 6
    assert experiment.zones[1].machines[0].count == 9
    assert experiment.sla.late_base_s == 7.0


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.read_bytes())
    assert load_config(path) == load_config(BASE)


def test_path_of_a_trace_is_relative_to_its_file(tmp_path: Path) -> None:
    experiment = load_config(
        BASE, ["workload={kind: trace, path: hour.parquet}", "episode.horizon_s=900"]
        + [f"zones[{zone}].mix=null" for zone in range(3)],
    )  # fmt: skip
    assert experiment.workload.kind == "trace"
    assert experiment.workload.path == str(BASE.parent / "hour.parquet")


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "{a: 1e-3, b: no, c: 30:00, d: 2001-01-01, e: .5, f: ~, g: true, h: 0x10, i: -3}"
    assert parse_yaml(text) == {
        "a": 0.001, "b": "no", "c": "30:00", "d": "2001-01-01",
        "e": 0.5, "f": None, "g": True, "h": "0x10", "i": -3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", ["1e3", "no", "~", "", "a: b", "x\ny", "é", 1e-5, 1.0, True, None]
)
def test_what_is_written_reads_back_as_the_same_value(value: object) -> None:
    back = parse_yaml(render_yaml({"key": value}))["key"]
    assert back == value
    assert type(back) is type(value)


def test_example_of_the_readme_loads(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "example.yaml"
    path.write_text(readme.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    assert load_config(path).zone_names == ["zone_a", "zone_b"]


def test_every_field_is_documented() -> None:
    schema = json.loads(json_schema())
    models = {"Experiment": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, model in models.items()
        for key, field in model["properties"].items()
        # A section whose field says what its model says leaves the words to the model.
        if not field.get("description") and "$ref" not in field
    ]
    bare += [name for name, model in models.items() if not model.get("description")]
    assert bare == []


def test_configuration_page_is_fresh() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "run `make docs`"


def test_json_schema_is_fresh() -> None:
    schema = (ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8")
    assert schema == json_schema(), "run `make docs`"
