"""The formats of raw traces: which files, which rules, and the function that loads them.

A format is a module of this folder with a `FORMAT`; to add one, write it and add it to `FORMATS`
in registry.py.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import Account
from marl_sched.workload.raw.assemble import AssembledTasks
from marl_sched.workload.raw.machines import ZoneMachines
from marl_sched.workload.raw.rules import Rule, Rules


@dataclass(frozen=True)
class TableSpec:
    """A table of a format.

    Attributes:
        name: As published; the account names it so.
        what: What a row is, in one line.
        patterns: File names it is published under, as in fnmatch; `FOLDER/NAME` where the names of
            several tables differ by their folder only.
    """

    name: str
    what: str
    patterns: tuple[str, ...]


@dataclass
class Sources:
    """What a loader is given.

    Attributes:
        files: Files by the table's name, in order; only tables that were given.
        rules: The rules and their actions.
        account: Where every row is counted.
        reference: The trace's largest machine, by resource: what relative amounts are relative to.
        scratch: A folder for what does not fit in memory; emptied afterwards.
        mapping: The column mapping, for the format that needs one.
        on_bytes: Told the number of bytes read from disk.
    """

    files: dict[str, list[Path]]
    rules: Rules
    account: Account
    reference: dict[str, int]
    scratch: Path
    mapping: Path | None = None
    on_bytes: Callable[[int], None] = lambda _: None


@dataclass
class Loaded:
    """What a loader gives back: tasks, machines, or both.

    Attributes:
        tasks: The task table.
        zones: The machines.
        resources: The resources of the machines' capacity.
    """

    tasks: AssembledTasks | None = None
    zones: list[ZoneMachines] = field(default_factory=list)
    resources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A format of raw traces.

    Attributes:
        name: As on the command line.
        title: The trace's name and its years, and what of it was at hand to test with.
        tables: Its tables.
        rules: Its rules, in the order they are asked.
        load: Reads the files.
        reference: Its largest machine, by resource; a user may know better (`--reference`). Empty:
            the format has absolute amounts, and the largest machine is not known.
        needs_mapping: It takes a column mapping.
    """

    name: str
    title: str
    tables: tuple[TableSpec, ...]
    rules: tuple[Rule, ...]
    load: Callable[[Sources], Loaded]
    reference: dict[str, int] = field(default_factory=dict)
    needs_mapping: bool = False

    def files(self, sources: Iterable[str]) -> dict[str, list[Path]]:
        """Return the files by table that SOURCE arguments name.

        A source is a folder with files under their published names, a file under one, or
        TABLE=FILE.

        Raises:
            TraceError: There is no such file, or no telling which table it is.
        """
        found: dict[str, list[Path]] = {}
        for source in sources:
            for table, path in self._tables_of(source):
                if path not in found.setdefault(table, []):
                    found[table].append(path)
        if not found:
            raise TraceError(f"{self.name}: no source, expected {self._expected()}")
        return {table.name: found[table.name] for table in self.tables if table.name in found}

    def _tables_of(self, source: str) -> Iterator[tuple[str, Path]]:
        if not source.strip():
            raise TraceError(f"{source!r}: an empty name, expected {self._expected()}")
        table, separator, name = source.partition("=")
        if separator and not Path(source).exists():
            if table not in (spec.name for spec in self.tables):
                known = ", ".join(spec.name for spec in self.tables)
                raise TraceError(f"{source}: {self.name} has no table {table!r}, expected {known}")
            yield table, _existing(Path(name).expanduser())
            return
        path = Path(source).expanduser()
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            matches = [(spec, file) for file in files if (spec := self._spec_of(file))]
            if not matches:
                raise TraceError(f"{path}: holds no table, expected {self._expected()}")
            yield from ((spec.name, file) for spec, file in matches)
            return
        spec = self._spec_of(_existing(path))
        if spec is None and len(self.tables) == 1:
            spec = self.tables[0]
        if spec is None:
            raise TraceError(
                f"{path}: no telling which table this is; write TABLE={path.name} with one of "
                f"{', '.join(spec.name for spec in self.tables)}"
            )
        yield spec.name, path

    def _spec_of(self, path: Path) -> TableSpec | None:
        in_folder = f"{path.resolve().parent.name}/{path.name}"
        for spec in self.tables:
            if any(
                fnmatch.fnmatch(in_folder if "/" in pattern else path.name, pattern)
                for pattern in spec.patterns
            ):
                return spec
        return None

    def _expected(self) -> str:
        return ", ".join(f"{spec.name} ({' or '.join(spec.patterns)})" for spec in self.tables)


def _existing(path: Path) -> Path:
    if not path.is_file():
        problem = "not a file" if path.exists() else "no such file"
        raise TraceError(f"{path}: {problem}")
    return path
