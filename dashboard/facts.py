"""What the page says of a configuration, also of one that another version wrote."""

from dataclasses import dataclass, field
from typing import Any

from dashboard.following import text, whole
from marl_sched.config.yaml_text import parse_yaml
from marl_sched.errors import ConfigError

_MAX_ZONES = 1_024


@dataclass(frozen=True)
class Facts:
    """A few values of a config.yaml; None or empty where they are missing.

    Attributes:
        name: Of the experiment.
        seed: Of the experiment.
        n_rounds: Rounds of the run.
        n_validation_episodes: Episodes of a validation.
        machines: Number of machines by zone, in the order of the file.
    """

    name: str = ""
    seed: int | None = None
    n_rounds: int | None = None
    n_validation_episodes: int | None = None
    machines: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, content: bytes) -> "Facts":
        """Take out of a file what is there; whether all of it is valid is not asked here."""
        try:
            found = parse_yaml(content.decode("utf-8-sig"))
        except (ConfigError, UnicodeDecodeError):
            return cls()
        config = _mapping(found)
        training = _mapping(config.get("training"))
        zones = config.get("zones")
        each = [_mapping(zone) for zone in zones[:_MAX_ZONES]] if isinstance(zones, list) else []
        named = {text(zone.get("name"), 80): _n_machines(zone.get("machines")) for zone in each}
        return cls(
            name=text(config.get("name"), 200),
            seed=whole(config.get("seed")),
            n_rounds=whole(training.get("rounds")),
            n_validation_episodes=whole(training.get("validation_episodes")),
            machines={name: n for name, n in named.items() if name},
        )


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _n_machines(groups: Any) -> int | None:
    if not isinstance(groups, list):
        return None
    counts = [whole(_mapping(group).get("count")) for group in groups]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
