"""Read and write YAML so that a text has one plain meaning, or a refusal that names the line.

PyYAML speaks YAML 1.1: `no` is false, `30:00` is 1800, `1e-3` is a string, and of two equal keys
the last one wins without a word. Here scalars are those of YAML 1.2's core schema; equal keys,
aliases (a few lines of them can stand for gigabytes) and tags are refused.
"""

import re
from typing import Any

import yaml

from marl_sched.errors import ConfigError

_MAX_SHOWN = 60
_MAX_DEPTH = 30
_SCALARS = (
    ("tag:yaml.org,2002:bool", r"true|false", "tf"),
    ("tag:yaml.org,2002:null", r"~|null|", "~n"),
    ("tag:yaml.org,2002:int", r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        "-+.0123456789",
    ),
)
"""Tag, what it looks like, its first characters. The order counts: an int looks like a float."""


class _Refusal(yaml.MarkedYAMLError):
    """Something that YAML allows and a configuration does not."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars, every key once, no aliases, no tags, no endless nesting."""

    yaml_implicit_resolvers: dict[str | None, list[Any]] = {}  # noqa: RUF012 - PyYAML's own name

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # stubs
        if self._depth > _MAX_DEPTH:
            raise _Refusal(f"expected at most {_MAX_DEPTH} levels of nesting", event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            problem = f"aliases like *{event.anchor} are not read, expected the value written out"
            raise _Refusal(problem, event.start_mark)
        if getattr(event, "tag", None) is not None:
            problem = f"tags like {event.tag} are not read, expected a plain value"
            raise _Refusal(problem, event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    raise _Refusal(f"the key {key!r} stands here twice", key_node.start_mark)
                seen.add(key)
        return mapping


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back as the same value."""

    yaml_implicit_resolvers: dict[str | None, list[Any]] = {}  # noqa: RUF012 - PyYAML's own name

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in _SCALARS:
    for _kind in (_Loader, _Dumper):
        _first_characters = [*_first, ""] if _tag.endswith("null") else list(_first)
        _kind.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first_characters)


def parse_yaml(text: str) -> Any:
    """Return the value of one YAML document.

    Raises:
        ConfigError: The text is not YAML, or uses what a configuration does not allow; the message
            names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        # The context ("while scanning a quoted scalar") helps only where the problem is PyYAML's.
        raise ConfigError(f"{line}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split())) from None
    except ValueError as error:  # an integer of thousands of digits
        raise ConfigError(str(error)) from None


def render_yaml(data: Any) -> str:
    """Return data as YAML that `parse_yaml` reads back equal; keys keep their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def show_value(value: Any) -> str:
    """Return a value as a message shows it: as YAML would write it, short, on one line."""
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )
    text = " ".join(text.removesuffix("\n").removesuffix("\n...").split())
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 4]} ..."
