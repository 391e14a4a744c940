"""What the models say about a field, in words: for messages and for docs/configuration.md."""

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from marl_sched.config.base import NAME_PATTERN

_BOUNDS: dict[type, tuple[str, str]] = {
    Gt: (">", "gt"),
    Ge: (">=", "ge"),
    Lt: ("<", "lt"),
    Le: ("<=", "le"),
}
_SCALARS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
}


def members(annotation: Any) -> list[Any]:
    """Return the alternatives of a union without None; a single type is its only alternative."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return [member for member in get_args(annotation) if member is not NoneType]
    return [annotation]


def is_model(annotation: Any) -> bool:
    """Return whether an annotation is one of our models."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def kind_of(model: type[BaseModel]) -> str | None:
    """Return the value of `kind` that chooses this model out of a union, or None."""
    field = model.model_fields.get("kind")
    values = get_args(field.annotation) if field is not None else ()
    return values[0] if len(values) == 1 else None


def expected(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return what a value must be, as in `expected an integer > 0`."""
    details = list(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        details += more
    details = [part for detail in details for part in _parts(detail)]
    alternatives = members(annotation)
    if len(alternatives) > 1:
        if not all(is_model(member) for member in alternatives):
            return " or ".join(expected(member) for member in alternatives)
        kinds = " or ".join(str(kind_of(member)) for member in alternatives)
        return f"a mapping with kind: {kinds}"
    if alternatives[0] is not annotation:  # X | None
        return f"{expected(alternatives[0], details)} or null"
    return _words(annotation, details)


def expected_of(field: FieldInfo) -> str:
    """Return what the value of a model's field must be."""
    return expected(field.annotation, field.metadata)


def _parts(detail: Any) -> list[Any]:
    return list(detail.metadata) if isinstance(detail, FieldInfo) else [detail]


def _words(plain: Any, details: list[Any]) -> str:
    origin = get_origin(plain)
    if origin is Literal:
        *others, last = (str(value) for value in get_args(plain))
        return f"{', '.join(others)} or {last}" if others else last
    if origin is list:
        return f"a list{_length(details)} of {_plural(expected(get_args(plain)[0]))}"
    if origin is dict:
        return f"a mapping of names to {_plural(expected(get_args(plain)[1]))}"
    if is_model(plain):
        return f"a mapping with the keys {', '.join(plain.model_fields)}"
    if any(getattr(detail, "pattern", None) == NAME_PATTERN for detail in details):
        return "a name (a letter, then at most 62 letters, digits, '_', '.' or '-')"
    bounds = [
        f"{sign} {getattr(detail, attribute):g}"
        for kind, (sign, attribute) in _BOUNDS.items()
        for detail in details
        if isinstance(detail, kind)
    ]
    return " ".join([_SCALARS[plain], " and ".join(bounds)]).rstrip()


def _length(details: list[Any]) -> str:
    low = next((detail.min_length for detail in details if isinstance(detail, MinLen)), 0)
    high = next((detail.max_length for detail in details if isinstance(detail, MaxLen)), None)
    if high is not None:
        return f" (exactly {low})" if low == high else f" ({low} to {high})"
    return f" (at least {low})" if low else ""


def _plural(words: str) -> str:
    """Turn `an integer > 0` into `integers > 0`."""
    article, _, rest = words.partition(" ")
    if article not in ("a", "an"):
        return words
    noun, _, bounds = rest.partition(" ")
    return f"{noun}s {bounds}".rstrip()
