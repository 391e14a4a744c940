"""`marl-sched compose`, and the compose file that it starts from."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from marl_sched.compose_file import compose_file
from marl_sched.config import load_config
from marl_sched.errors import ConfigError

ROOT = Path(__file__).parents[2]
BASE = ROOT / "configs" / "base.yaml"


def printed(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose_file(load_config(config), config))
    return found


def test_the_package_has_the_repositorys_compose_file() -> None:
    shipped = ROOT / "marl_sched" / "data" / "stack.yaml"
    assert shipped.read_bytes() == (ROOT / "docker-compose.yml").read_bytes()


def test_every_zone_is_a_service_with_a_volume_of_its_own() -> None:
    found = printed(BASE)
    zones = load_config(BASE).zone_names
    assert list(found["services"]) == ["certs", "superlink", "dashboard", *zones]
    for zone in zones:
        service = found["services"][zone]
        assert f"--zone={zone}" in service["command"]
        assert f"{zone}:/srv/zone" in service["volumes"]
        assert service["read_only"] is True
        assert "deploy" not in service
        assert zone in found["volumes"]


def test_what_the_services_share_is_as_in_the_repositorys_file() -> None:
    expected = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    found = printed(BASE)
    for name in ("certs", "dashboard"):
        want, got = expected["services"][name], found["services"][name]
        assert {k: v for k, v in got.items() if k != "volumes"} == {
            k: v for k, v in want.items() if k != "volumes"
        }
    assert found["networks"] == expected["networks"]


def test_the_containers_see_the_folder_of_the_configuration() -> None:
    found = printed(BASE)
    for name in ("superlink", "dashboard", "zone_0"):
        mounts = [v for v in found["services"][name]["volumes"] if isinstance(v, dict)]
        assert [(m["source"], m["target"]) for m in mounts] == [
            (str(ROOT / "configs"), "/srv/configs")
        ]
    assert found["services"]["superlink"]["command"][1] == "/srv/configs/base.yaml"


def test_a_zone_called_like_a_service_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(BASE.read_text().replace("name: zone_0", "name: superlink"))
    with pytest.raises(ConfigError, match="zone superlink: the stack has a service of that name"):
        compose_file(load_config(config), config)


@pytest.mark.parametrize("name", ["pki", "join", "run"])
def test_a_zone_does_not_get_a_volume_of_the_coordinator(tmp_path: Path, name: str) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(BASE.read_text().replace("name: zone_0", f"name: {name}"))
    with pytest.raises(ConfigError, match=f"zone {name}: the stack has a volume of that name"):
        compose_file(load_config(config), config)


def test_names_of_files_are_no_variables_and_no_lines(tmp_path: Path) -> None:
    folder = tmp_path / "a$HOME"
    folder.mkdir()
    config = folder / "my\n$X.yaml"
    config.write_bytes(BASE.read_bytes())
    found = printed(config)
    assert found["services"]["superlink"]["command"][1] == "/srv/configs/my\n$$X.yaml"
    mounts = [m for m in found["services"]["zone_0"]["volumes"] if isinstance(m, dict)]
    assert [m["source"] for m in mounts] == [str(folder).replace("$", "$$")]


def test_a_trace_that_containers_would_not_see_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "configs" / "demo.yaml").read_text(encoding="utf-8")
    (tmp_path / "configs").mkdir()
    config = tmp_path / "configs" / "my.yaml"
    config.write_text(text.replace("package:alibaba-v2018-hour", "../mine.parquet"))
    with pytest.raises(ConfigError, match=r"mine\.parquet, expected a file below .*configs"):
        compose_file(load_config(config), config)
    config.write_text(text.replace("package:alibaba-v2018-hour", "mine.parquet"))
    assert "mine" not in compose_file(load_config(config), config)


def test_the_command_prints_the_file_and_nothing_else() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "marl-sched", "compose", BASE],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == compose_file(load_config(BASE), BASE)
    assert done.stderr == ""


def test_only_the_page_is_published_and_on_loopback_only() -> None:
    services = printed(BASE)["services"]
    published = {name: s["ports"] for name, s in services.items() if "ports" in s}
    assert list(published) == ["dashboard"]
    assert all(port.startswith("127.0.0.1:") for port in published["dashboard"])


def test_every_service_gives_up_what_it_does_not_need() -> None:
    for name, service in printed(BASE)["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["init"] is True, name
        assert service["restart"] in ("no", "on-failure:5"), name
