"""What is shown of a run is a setting that results do not depend on."""

from pathlib import Path

import pytest

from marl_sched.config import load_config
from marl_sched.config.hashing import config_hash, environment_hash
from marl_sched.errors import ConfigError

BASE = Path(__file__).parents[2] / "configs" / "base.yaml"


def test_views_are_on_where_nothing_is_said() -> None:
    live = load_config(BASE).live
    assert (live.views, live.period_s) == ("decisions", 0.5)


def test_hashes_are_blind_to_what_is_shown() -> None:
    shown, hidden = load_config(BASE), load_config(BASE, ["live.views=none", "live.period_s=9.0"])
    assert shown != hidden
    assert config_hash(shown) == config_hash(hidden)
    assert environment_hash(shown) == environment_hash(hidden)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("live.period_s=0.1", r"live\.period_s = 0\.1, expected .*0\.5"),
        ("live.views=all", r"live\.views = .?all.?, expected .*decisions"),
        ("live.view=none", r"live\.view"),
    ],
)
def test_setting_that_is_wrong_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(BASE, [override])
