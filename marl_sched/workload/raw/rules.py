"""Named rules for the traps of a trace: what is found, and what is done about it.

A rule has a list of actions it allows; the first is its default, and a user may turn it
(`--rule child-before-parent=drop-edge`). Three actions mean the same in every format: `keep` (the
row stays and is counted), `drop-row` (the row goes), `drop-job` (the row goes, and the rest of its
job with it, counted under `job-incomplete`, since its DAG would be false).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, Self

from marl_sched.errors import TraceError

KEEP = "keep"
DROP_ROW = "drop-row"
DROP_JOB = "drop-job"
STOP = "stop"


@dataclass(frozen=True)
class Rule:
    """A trap of a format.

    Attributes:
        name: In kebab-case, unique within the format.
        what: When a row (edge, file) falls under it, in one line.
        actions: What may be done, the default first.
        of: What is counted.
    """

    name: str
    what: str
    actions: tuple[str, ...]
    of: Literal["rows", "edges", "files"] = "rows"


JOB_INCOMPLETE = Rule(
    "job-incomplete", "valid itself, but another task of its job was dropped", (DROP_ROW,)
)


class Rules:
    """The rules of a format and the action chosen for each, in the order they are asked."""

    def __init__(self, rules: Iterable[Rule], actions: Mapping[str, str]) -> None:
        """Join rules and their actions; `Rules.of` checks what a user asks for."""
        self._rules = {rule.name: rule for rule in rules}
        self._actions = {name: actions.get(name, rule.actions[0]) for name, rule in self}

    @classmethod
    def of(cls, format_name: str, rules: Iterable[Rule], turned: Iterable[str] = ()) -> Self:
        """Return a format's rules with the actions that `RULE=ACTION` texts ask for.

        Raises:
            TraceError: A text has another form, or names a rule or an action that is not there.
        """
        by_name = {rule.name: rule for rule in rules}
        actions: dict[str, str] = {}
        for text in turned:
            name, separator, action = text.partition("=")
            if not separator:
                raise TraceError(f"--rule {text}, expected RULE=ACTION")
            if name not in by_name:
                close = get_close_matches(name, by_name, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise TraceError(
                    f"--rule {text}: {format_name} has no rule {name!r}, expected one of "
                    f"{', '.join(by_name)}{hint}"
                )
            allowed = by_name[name].actions
            if action not in allowed:
                raise TraceError(f"--rule {text}: {name} allows {', '.join(allowed)}")
            if actions.setdefault(name, action) != action:
                raise TraceError(f"--rule {text}: {name} is turned to {actions[name]} too")
        return cls(by_name.values(), actions)

    def __iter__(self) -> Iterator[tuple[str, Rule]]:
        """Yield (name, rule) in order."""
        return iter(self._rules.items())

    def __contains__(self, name: object) -> bool:
        """Return whether the format has a rule of this name."""
        return name in self._rules

    def action(self, name: str) -> str:
        """Return the action chosen for a rule."""
        return self._actions[name]

    def drops(self, name: str) -> bool:
        """Return whether rows under a rule are dropped."""
        return self.action(name) in (DROP_ROW, DROP_JOB)

    def number(self, name: str) -> int:
        """Return a rule's number, 1 for the first; 0 stands for no rule."""
        return list(self._rules).index(name) + 1

    def name(self, number: int) -> str:
        """Return the name of a rule's number."""
        return list(self._rules)[number - 1]
