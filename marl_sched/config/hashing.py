"""Hashes of an experiment: what a result or a tuned file belongs to."""

import hashlib
import json
from pathlib import Path
from typing import Any

from marl_sched.config.experiment import Experiment

_NOT_IN_RESULTS = {"live"}
_NOT_SEEN_BY_RULES = {
    *_NOT_IN_RESULTS,
    "name",
    "reward",
    "agent",
    "teacher",
    "training",
    "federation",
    "evaluation",
    "tuning",
}
_SAID = object()
_SILENT: dict[str, dict[str, object]] = {
    "agent": {"quantiles_tolerance": 0.01, "pilot_rounds": 4, "pilot_seeds": 2},
    "reward": {"resource_weighting": "fixed", "completion": 0.0},
    "objective": {"completion": 0.0},
    "workload": {"max_task_instances": None},
}
"""By section, settings that came after results were recorded, and the value with which they do
nothing: with it the hash is that of a configuration without the setting."""


def config_hash(experiment: Experiment) -> str:
    """Return 16 hex digits over every field of the experiment that results depend on."""
    return _digest(experiment, _NOT_IN_RESULTS)


def environment_hash(experiment: Experiment) -> str:
    """Return 16 hex digits over the fields that decide what a rule meets and is scored by."""
    return _digest(experiment, _NOT_SEEN_BY_RULES)


def without_silent(name: str, section: Any) -> Any:
    """Return a section of an experiment, as dumped, without later settings that do nothing."""
    silent = _SILENT.get(name, {})
    if not silent:
        return section
    return {key: value for key, value in section.items() if silent.get(key, _SAID) != value}


def completed(data: Any) -> Any:
    """Return a configuration as plain data with the later settings that it was written without."""
    if not isinstance(data, dict):
        return data
    later = {
        section: settings | data[section]
        for section, settings in _SILENT.items()
        if isinstance(data.get(section), dict)
    }
    return data | later


def _digest(experiment: Experiment, exclude: set[str]) -> str:
    content = experiment.model_dump(mode="json", exclude=exclude)
    content = {name: without_silent(name, section) for name, section in content.items()}
    if "path" in content["workload"]:
        # Where a trace lies differs between machines, its name does not.
        content["workload"]["path"] = Path(content["workload"]["path"]).name
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
