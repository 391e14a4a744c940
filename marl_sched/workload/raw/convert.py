"""A raw trace becomes a task table, its zones and its account."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marl_sched.errors import TraceError
from marl_sched.files import naming
from marl_sched.workload.raw.account import Account, account_path
from marl_sched.workload.raw.formats import Format, Loaded, Sources
from marl_sched.workload.raw.machines import write_zones
from marl_sched.workload.raw.registry import FORMATS
from marl_sched.workload.raw.rules import Rules
from marl_sched.workload.raw.values import LARGEST_MACHINE


@dataclass(frozen=True)
class Conversion:
    """What a user asks for.

    Attributes:
        format: Name of the format.
        sources: Folders, files, TABLE=FILE.
        out: The task table to write; account and zones are written beside it.
        turned: RULE=ACTION texts.
        reference: The trace's largest machine where the user knows better, by resource.
        mapping: The column mapping, for the format that needs one.
    """

    format: str
    sources: tuple[str, ...]
    out: Path
    turned: tuple[str, ...] = ()
    reference: Mapping[str, int] | None = None
    mapping: Path | None = None


@dataclass(frozen=True)
class Converted:
    """What was written: the account, and the files."""

    account: Account
    files: tuple[Path, ...]


def find_format(name: str) -> Format:
    """Return a format by name.

    Raises:
        TraceError: There is none.
    """
    if name not in FORMATS:
        raise TraceError(f"no format {name!r}, expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def convert(
    wish: Conversion,
    on_files: Callable[[Iterable[Path]], None] = lambda _: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Converted:
    """Read a raw trace and write what it holds; files of the same names are replaced.

    Args:
        wish: What to do.
        on_files: Told once which files will be read.
        on_bytes: Told the bytes read since it was told last.

    Raises:
        TraceError: An argument, a file, a rule or the output is not as it must be; nothing is
            written.
        OSError: The output cannot be written.
    """
    found = find_format(wish.format)
    if found.needs_mapping != (wish.mapping is not None):
        need = "needs" if found.needs_mapping else "takes no"
        raise TraceError(f"{found.name} {need} --mapping FILE")
    if not wish.out.parent.is_dir():
        raise TraceError(f"{wish.out}: no such folder {wish.out.parent}")
    rules = Rules.of(found.name, found.rules, wish.turned)
    files = found.files(wish.sources)
    on_files(path for paths in files.values() for path in paths)
    account = Account(found.name, rules)
    with naming(wish.out):
        folder = tempfile.TemporaryDirectory(prefix=".trace-", dir=wish.out.parent)
    with folder as scratch:
        loaded = found.load(
            Sources(
                files=files,
                rules=rules,
                account=account,
                reference=_reference(found, wish.reference or {}),
                scratch=Path(scratch),
                mapping=wish.mapping,
                on_bytes=on_bytes,
            )
        )
        account.check()
        with naming(wish.out):
            written = _write(Path(scratch) / wish.out.name, loaded, account)
            # All or nothing: a full disk has shown by now.
            moved = [path.replace(wish.out.with_name(path.name)) for path in written]
    return Converted(account, tuple(moved))


def _reference(found: Format, given: Mapping[str, int]) -> dict[str, int]:
    if given and not found.reference:
        raise TraceError(
            f"--reference {', '.join(given)}: {found.name} has absolute amounts, expected none"
        )
    if unknown := [name for name in given if name not in found.reference]:
        raise TraceError(
            f"--reference {', '.join(unknown)}: {found.name} has relative amounts of "
            f"{', '.join(found.reference)} only"
        )
    for name, amount in given.items():
        if not 0 < amount <= LARGEST_MACHINE:
            raise TraceError(f"--reference {name}={amount}, expected 1 to {LARGEST_MACHINE}")
    return {**found.reference, **given}


def _write(out: Path, loaded: Loaded, account: Account) -> list[Path]:
    written = []
    tasks = loaded.tasks
    if tasks is not None:
        tasks.write(out)
        written.append(out)
        account.facts |= {
            "file": out.name,
            "n_jobs": tasks.n_jobs,
            "n_tasks": tasks.n_tasks,
            "n_edges": len(tasks.parents),
            "n_instances": tasks.n_instances,
            "resources": list(tasks.resources),
            "reference": tasks.info.reference,
        }
    if loaded.zones:
        path = out.with_name(f"{out.stem}.zones.yaml")
        write_zones(path, loaded.zones, loaded.resources)
        written.append(path)
        account.facts |= {
            "zones_file": path.name,
            "n_zones": len(loaded.zones),
            "n_machines": sum(len(zone.capacity) for zone in loaded.zones),
        }
    path = account_path(out)
    account.write(path)
    return [*written, path]
