"""Write docs/configuration.md from the models: `python -m marl_sched.config.reference`."""

import re
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from marl_sched.config.experiment import Experiment
from marl_sched.config.schema import expected_of, is_model, kind_of, members
from marl_sched.config.yaml_text import show_value

_INTRODUCTION = """\
# Configuration

Written by `make docs` from the models in `marl_sched/config`: do not edit.

An experiment is one YAML file. Unknown keys, values of another type and numbers out of range are
errors that name file, key, value and what is allowed. Scalars are those of YAML 1.2 (`1e-3` is a
number, `no` a string); a key that stands twice, aliases and tags are refused.

`marl-sched show-config CONFIG` prints a file with every default written out. Every command that
takes a configuration also takes `--set KEY=VALUE`, as often as needed: `--set zones[0].load=0.9`.
Editors that know the YAML language server complete and check keys if the first line of a file is
`# yaml-language-server: $schema=../docs/config.schema.json`.
"""
_UNITS = {
    "price_per_hour": "currency/h",
    "jobs_per_s": "1/s",
    "offload_s_per_gib": "s/GiB",
}
"""Units of the fields whose name ends otherwise than in its unit."""
_SUFFIXES = {"_s": "s", "_mib": "MiB", "_us": "us"}


def reference() -> str:
    """Return the page: one section a model, in the order of the file."""
    return page(_INTRODUCTION, Experiment)


def page(introduction: str, model: type[BaseModel]) -> str:
    """Return the reference of a YAML file: one section a model, in the order of the file.

    A model that stands in several places has one section, titled with all of them.
    """
    places: dict[type[BaseModel], list[str]] = {}
    for path, part in _sections("", model):
        places.setdefault(part, []).append(path)
    sections = [introduction]
    for part, paths in places.items():
        kind = kind_of(part)
        title = ", ".join(f"`{path}`" for path in paths) if paths[0] else "The file"
        chosen = f" (`kind: {kind}`)" if kind else ""
        summary = (part.__doc__ or "").replace("\n\n", "\n").replace("\n    ", "\n").strip()
        sections.append(f"## {title}{chosen}\n\n{summary}\n\n{_table(part)}")
    return "\n".join(sections)


def _sections(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield a model and all models below it, with the path that leads there."""
    yield path, model
    for name, field in model.model_fields.items():
        below = f"{path}.{name}" if path else name
        for annotation, suffix in _below(field.annotation):
            yield from _sections(below + suffix, annotation)


def _below(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    for member in members(annotation):
        if is_model(member):
            yield member, ""
        elif get_origin(member) is list:
            yield from ((model, f"[]{suffix}") for model, suffix in _below(get_args(member)[0]))
        elif get_origin(member) is dict:
            yield from ((model, f".NAME{suffix}") for model, suffix in _below(get_args(member)[1]))


def _table(model: type[BaseModel]) -> str:
    rows = ["| key | value | default | unit | meaning |", "|---|---|---|---|---|"]
    for name, field in model.model_fields.items():
        meaning = " ".join((field.description or "").split())
        cells = (f"`{name}`", _value(field), _default(field), _unit(name), meaning)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _value(field: FieldInfo) -> str:
    """Return what may stand there; of a model only that it has a section of its own."""
    if any(True for _ in _below(field.annotation)):
        return re.sub(r"( with the keys| with kind:) .*", ", see below", expected_of(field))
    return expected_of(field)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    default = field.default
    return "see below" if isinstance(default, BaseModel) else f"`{show_value(default)}`"


def _unit(name: str) -> str:
    by_suffix = (unit for suffix, unit in _SUFFIXES.items() if name.endswith(suffix))
    return _UNITS.get(name) or next(by_suffix, "")


if __name__ == "__main__":
    sys.stdout.write(reference())
