"""Read one YAML file and its overrides; say exactly what is wrong with them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from marl_sched.config.experiment import Experiment
from marl_sched.errors import ConfigError

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Load and check an experiment.

    Args:
        path: A YAML file.
        overrides: `key=value` pairs as the commands' --set takes them: the key is a dotted path
            (`zones[0].load`), the value is YAML.

    Raises:
        ConfigError: The file cannot be read, or a key or value is not valid; the message names
            file, key, value and what is allowed.
    """
    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, got {type(data).__name__}")
    for override in overrides:
        _apply(data, override, path)
    data = _resolve_trace_path(data, path)
    try:
        return Experiment.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_describe(error, data)}") from None


def dump_config(experiment: Experiment) -> str:
    """Return an experiment as YAML, every field written out: what really runs."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False)


def _resolve_trace_path(data: dict[str, Any], path: Path) -> dict[str, Any]:
    workload = data.get("workload")
    if not isinstance(workload, dict) or workload.get("kind") != "trace":
        return data
    trace = workload.get("path")
    if not isinstance(trace, str) or trace.startswith("package:") or Path(trace).is_absolute():
        return data
    return data | {"workload": workload | {"path": str((path.parent / trace).resolve())}}


def _apply(data: dict[str, Any], override: str, path: Path) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {override}: expected key=value")
    steps: list[str | int] = [
        int(index) if index else name for name, index in _STEP.findall(key.strip())
    ]
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {override}: the value is not YAML") from None
    target: Any = data
    for step in steps[:-1]:
        try:
            if isinstance(target, dict) and step not in target:
                target[step] = {}
            target = target[step]
        except (IndexError, KeyError, TypeError):
            raise ConfigError(f"--set {override}: {path} has no {key}") from None
    try:
        target[steps[-1]] = value
    except (IndexError, TypeError):
        raise ConfigError(f"--set {override}: {path} has no {key}") from None


def _describe(error: ValidationError, data: dict[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    location = _location(first["loc"], data)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if not location:
        return message + more
    if first["type"] == "missing":
        return f"{location} is missing: it must be given{more}"
    if first["type"] == "extra_forbidden":
        return f"{location} is not a known key; see `marl-sched show-config --schema`{more}"
    return f"{location} = {first['input']!r}, expected: {_lower(message)}{more}"


def _location(steps: tuple[int | str, ...], data: Any) -> str:
    """Join the steps of a pydantic location that exist in the file (discriminator tags do not)."""
    text = ""
    node: Any = data
    for number, step in enumerate(steps):
        if isinstance(step, int):
            text += f"[{step}]"
            node = node[step] if isinstance(node, list) and step < len(node) else None
        elif isinstance(node, dict) and (step in node or number == len(steps) - 1):
            text += f".{step}" if text else step
            node = node.get(step)
        elif node is None:
            text += f".{step}"
    return text


def _lower(message: str) -> str:
    message = message.removeprefix("Input should be ")
    return message[:1].lower() + message[1:]
