"""The compose file of an experiment: the repository's, with a named service for every zone."""

import copy
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from marl_sched.config import Experiment
from marl_sched.errors import ConfigError, printable
from marl_sched.training_config import require_learners_apart

_CONFIGS = "/srv/configs"
_STATE = "/srv/zone"
_ZONE = "zone"
_HOW_TO_START = "docker compose -f FILE up -d {zone}"

Service = dict[str, Any]


def compose_file(experiment: Experiment, config: Path) -> str:
    """Return the text of a compose file that runs an experiment, a service a zone.

    Args:
        experiment: As read from `config`.
        config: Its file; the containers see the folder that it is in.

    Raises:
        ConfigError: One learner is to have all zones, a zone is called like another service or its
            volume, or the trace is elsewhere.
    """
    require_learners_apart(experiment)
    _require_seen(experiment, config)
    content = yaml.safe_load(_template())
    services = content["services"]
    zone = services.pop(_ZONE)
    for service in (*services.values(), zone):
        for mount in service.get("volumes", ()):
            if isinstance(mount, dict) and mount["target"] == _CONFIGS:
                mount["source"] = _literal(str(config.resolve().parent))
    services["superlink"]["command"][1] = _literal(f"{_CONFIGS}/{config.name}")
    services["superlink"]["command"].append(f"--how-to-start={_HOW_TO_START}")
    shared = tuple(content["volumes"])
    for name in experiment.zone_names:
        if name in services:
            raise ConfigError(
                f"{config}: zone {name}: the stack has a service of that name, expected another "
                f"than {', '.join(services)}"
            )
        if name in content["volumes"]:
            raise ConfigError(
                f"{config}: zone {name}: the stack has a volume of that name, expected another "
                f"than {', '.join(shared)}"
            )
        services[name] = _named(zone, name)
        content["volumes"][name] = {}
    project = {"name": f"marl-sched-{_project(experiment.name)}"}
    kept = {key: content[key] for key in ("services", "networks", "volumes")}
    text = yaml.dump(project | kept, Dumper=_Dumper, sort_keys=False, width=100)
    return _HEAD.format(config=printable(config.name)) + text


_HEAD = """\
# Written by `marl-sched compose {config}`: a service for every zone.
#
#   docker compose -f FILE up                 FILE is where this is kept
#   docker compose -f FILE up -d zone_NAME    one zone alone
#   docker compose -f FILE down -v            leaves nothing
"""


def _require_seen(experiment: Experiment, config: Path) -> None:
    """Check that the containers, which see the folder of the configuration, see all it names."""
    folder = config.resolve().parent
    path = getattr(experiment.workload, "path", "")
    if path and not path.startswith("package:") and not Path(path).is_relative_to(folder):
        raise ConfigError(
            f"{config}: workload.path = {path}, expected a file below {folder}: that is what the "
            "containers see"
        )


class _Dumper(yaml.SafeDumper):
    """Writes everything in full: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _template() -> str:
    return (files("marl_sched") / "data" / "stack.yaml").read_text(encoding="utf-8")


def _named(zone: Service, name: str) -> Service:
    """Return the service of one zone, whose key and learner outlive its container."""
    service = copy.deepcopy(zone)
    service["command"].append(f"--zone={name}")
    service["read_only"] = True
    service["volumes"].insert(0, f"{name}:{_STATE}")
    del service["deploy"]
    return service


def _literal(text: str) -> str:
    """Return a text that compose, which puts variables in, reads as it stands."""
    return text.replace("$", "$$")


def _project(name: str) -> str:
    """Return a name that compose takes for a project."""
    return re.sub(r"[^a-z0-9_-]", "-", name.lower())
