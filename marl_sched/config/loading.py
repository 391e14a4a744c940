"""Read one YAML file and its overrides; say exactly what is wrong with them."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marl_sched.config.experiment import Experiment
from marl_sched.config.messages import problems
from marl_sched.config.yaml_text import parse_yaml, render_yaml, show_value
from marl_sched.errors import ConfigError

_KEY = re.compile(r"[^.\[\]\s]+(\[\d{1,6}\])*(\.[^.\[\]\s]+(\[\d{1,6}\])*)*")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_MAX_BYTES = 4 << 20
_MAX_NUMBER = 1e12
"""No honest number of a configuration is larger; in microseconds it still fits an int64."""


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
    data = read_mapping(path)
    given = {_apply(data, override, path): override for override in overrides}
    found = list(_large_numbers(data, ""))
    if not found:
        _resolve_trace_path(data, path)
        try:
            return Experiment.model_validate(data)
        except ValidationError as error:
            found = problems(error, Experiment)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    place = found[0].split(" ", 1)[0]
    source = next((f" with --set {given[key]}" for key in given if _is_within(key, place)), "")
    raise ConfigError(one_line(f"{path}{source}: {found[0]}{more}"))


def dump_config(experiment: Experiment) -> str:
    """Return an experiment as YAML, every field written out: what really runs."""
    return render_yaml(experiment.model_dump(mode="json"))


def json_schema() -> str:
    """Return the JSON schema of a configuration file, for editors."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= Experiment.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _is_within(key: str, place: str) -> bool:
    """Return whether one of two places in a file is the other or lies inside it."""
    short, long = sorted((key, place), key=len)
    return long.startswith(short) and long[len(short) : len(short) + 1] in ("", ".", "[")


def read_mapping(path: Path) -> dict[Any, Any]:
    """Return the mapping that a YAML file holds.

    Raises:
        ConfigError: It cannot be read, is not YAML, or holds something else.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(one_line(f"{path}: cannot be read: {reason}")) from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: expected at most {_MAX_BYTES >> 20} MiB of YAML")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is 0x{raw[error.start]:02x}"
        raise ConfigError(f"{path}: not UTF-8: {place}") from None
    try:
        data = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(one_line(f"{path}: not valid YAML: {error}")) from None
    if data is None:
        raise ConfigError(f"{path}: the file is empty, expected a mapping of keys")
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: {show_value(data)}, expected a mapping of keys")
    return data


def _resolve_trace_path(data: dict[Any, Any], path: Path) -> None:
    """Make the trace's path, which is relative to the file, mean the same from anywhere."""
    workload = data.get("workload")
    if not isinstance(workload, dict):
        return
    trace = workload.get("path")
    if isinstance(trace, str) and trace and not trace.startswith("package:") and "\0" not in trace:
        data["workload"] = workload | {"path": str((path.parent / trace).resolve())}


def _large_numbers(node: Any, path: str) -> Iterator[str]:
    """Yield the numbers that would overflow."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _large_numbers(value, f"{path}.{key}" if path else f"{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _large_numbers(value, f"{path}[{index}]")
    elif isinstance(node, int | float) and _MAX_NUMBER < abs(node) != float("inf"):
        yield f"{path} = {show_value(node)}, expected a number of at most {_MAX_NUMBER:g}"


def _apply(data: dict[Any, Any], override: str, path: Path) -> str:
    """Set one value; return its key."""
    key, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not _KEY.fullmatch(key):
        raise ConfigError(
            one_line(f"--set {override}: expected key=value with a key like zones[0].load")
        )
    try:
        value = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(one_line(f"--set {override}: not valid YAML: {error}")) from None
    steps: list[str | int] = [int(index) if index else name for name, index in _STEP.findall(key)]
    target: Any = data
    walked = ""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        problem = _step_problem(target, step, walked)
        if problem:
            raise ConfigError(one_line(f"--set {override}: {path}: {problem}"))
        if following is None:
            target[step] = value
        elif isinstance(target, dict) and target.get(step) is None:
            target[step] = {}
        target = target[step]
        walked += f"[{step}]" if isinstance(step, int) else f".{step}" if walked else step
    return key


def _step_problem(target: Any, step: str | int, walked: str) -> str | None:
    """Return why a step of a key does not exist in the file, or None."""
    if isinstance(step, str):
        if isinstance(target, dict):
            return None
        return f"{walked} = {show_value(target)} has no key {step}, it is no mapping"
    if not isinstance(target, list):
        return f"{walked} = {show_value(target)} has no index {step}, it is no list"
    if step >= len(target):
        return f"{walked}[{step}] does not exist, expected an index of 0 to {len(target) - 1}"
    return None


def one_line(message: str) -> str:
    """Return a message on one line, without control signs."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
