"""Turn what pydantic found into the house form: `zones[1].name = 4, expected a name (...)`."""

from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from marl_sched.config.base import WHOLE_FILE
from marl_sched.config.schema import expected, expected_of, is_model, kind_of, members
from marl_sched.config.yaml_text import show_value


@dataclass(frozen=True)
class Place:
    """A place in a file."""

    path: str
    """How it is written: zones[1].machines[0].count."""
    model: type[BaseModel] | None
    """The model it is a field of, if any."""
    annotation: Any
    """Its type; None for a key that the model does not have."""
    expected: str
    """What may stand there."""


def problems(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return every problem of a file as `path = value, expected ...`, in the order of the file."""
    found: list[str] = []
    for details in error.errors(include_url=False):
        if details["type"] == WHOLE_FILE:
            found += details["ctx"]["problems"]
        else:
            found.append(_describe(details, model))
    return found


def locate(steps: tuple[int | str, ...], model: type[BaseModel]) -> Place:
    """Follow a location of pydantic through the models; tags of unions are not in the file."""
    path, inside, words = "", None, expected(model)
    here: Any = model
    for step in steps:
        if step == "[key]":
            words = "names as keys"
            continue
        alternatives = members(here)
        tagged = [member for member in alternatives if is_model(member) and kind_of(member) == step]
        if len(alternatives) > 1 and tagged:
            here = tagged[0]
            continue
        plain = alternatives[0]
        path += f"[{step}]" if get_origin(plain) is list else f".{step}" if path else f"{step}"
        inside = plain if is_model(plain) else None
        here, words = _child(plain, step)
    return Place(path, inside, here, words)


def _child(plain: Any, step: int | str) -> tuple[Any, str]:
    """Return the annotation of what lies one step below, and what it must be."""
    if is_model(plain):
        field: FieldInfo | None = plain.model_fields.get(step)
        return (field.annotation, expected_of(field)) if field is not None else (None, "")
    if get_origin(plain) in (list, dict):
        child = get_args(plain)[-1]
        return child, expected(child)
    return None, ""


def _describe(details: ErrorDetails, model: type[BaseModel]) -> str:
    place = locate(details["loc"], model)
    kind, value = details["type"], details["input"]
    if kind == "value_error":  # a model that compares its own fields; see base.Model
        return f"{place.path}.{details['ctx']['error']}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        kinds = " or ".join(str(kind_of(member)) for member in members(place.annotation))
        given = f" = {show_value(value['kind'])}" if "kind" in value else " is missing"
        return f"{place.path}.kind{given}, expected {kinds}"
    if kind == "missing":
        return f"{place.path} is missing, expected {place.expected}"
    if kind in ("extra_forbidden", "invalid_key") and place.model is not None:
        keys = ", ".join(place.model.model_fields)
        given = f" = {show_value(value)}" if kind == "extra_forbidden" else ""
        return f"{place.path}{given} is not a known key, expected one of {keys}"
    return f"{place.path} = {show_value(value)}, expected {place.expected}"
