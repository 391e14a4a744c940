"""Breaks the trace loaders: `python benchmarks/trace_mutations.py [--formats ...] [--json]`.

Every format's small valid trace (mutation_bases.py) is damaged `--count` times by rows and as
often by files (mutating.py), and converted. Allowed is a table that loads, whose account adds up to
the rows that are physically there and from which an episode can be drawn, or a `TraceError` of one
line that names a file. All else is a bug, and is printed with the command that repeats it.

Conversions run in child processes, at most `--jobs` at a time: a library that kills its process is
a bug, not the end. `--case FORMAT/KIND/NUMBER --keep FOLDER` writes one damaged trace there.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import parser, print_figures
from mutating import damage_file, damage_header, damage_rows
from mutation_bases import BASES
from mutation_checks import Outcome, outcome_of
from mutation_files import Base, rendered

from marl_sched.workload.raw.registry import FORMATS

KINDS = ("rows", "files")
ROWS_A_FILE = 4
"""Damaged rows of one converted trace: as many conversions fewer."""
LARGEST_BYTES = 8 << 30
SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


def damaged(base: Base, kind: str, number: int, seed: int) -> tuple[dict[str, bytes | None], str]:
    """Return a damaged trace's files, and a rule that is turned ('': none)."""
    draws = random.Random(f"{seed}/{base.name}/{kind}/{number}")
    turned = ""
    if draws.random() < 0.3:
        rule = draws.choice([rule for rule in FORMATS[base.format].rules if len(rule.actions) > 1])
        turned = f"{rule.name}={draws.choice(rule.actions)}"
    if kind == "rows":
        return dict(rendered(base, damage_rows(draws, base.tables, ROWS_A_FILE))), turned
    tables = list(base.tables)
    chance = draws.random()
    if chance < 0.15:
        place = draws.randrange(len(tables))
        tables[place] = damage_header(draws, tables[place])
    elif chance < 0.3:
        tables = damage_rows(draws, tables, draws.randint(1, 3))
    files: dict[str, bytes | None] = dict(rendered(base, tables))
    names = list(files)
    if draws.random() < 0.05 and len(names) > 1:  # a file is missing, or holds another table
        lost = names.pop(draws.randrange(len(names)))
        files[lost] = files[draws.choice(names)]
        if draws.random() < 0.5:
            del files[lost]
        return files, turned
    name = draws.choice(names)
    content = files[name]
    assert content is not None
    files[name] = damage_file(draws, content)
    return files, "file-cut-short=keep" if draws.random() < 0.3 and base.name not in (
        "azure-packing-2020",
    ) else turned


@dataclass
class Tally:
    """What came out of the conversions of one format and kind.

    Attributes:
        outcomes: How many, by kind of outcome.
        bugs: Case and message.
        peak_mb: Largest memory of a process.
        slowest_s: Slowest conversion.
        seconds: Wall time.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    bugs: list[str] = field(default_factory=list)
    peak_mb: float = 0.0
    slowest_s: float = 0.0
    seconds: float = 0.0

    def add(self, case: str, outcome: Outcome) -> None:
        """Count a conversion."""
        self.outcomes[outcome.kind] += 1
        if outcome.kind == "bug":
            self.bugs.append(f"{case}: {outcome.detail}")


def conversions(
    base: Base, kind: str, numbers: range, seed: int
) -> Iterator[tuple[int, Outcome, float]]:
    """Yield number, outcome and seconds of each conversion; before it, one without an outcome."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        for number in numbers:
            yield number, Outcome(""), 0.0
            files, turned = damaged(base, kind, number, seed)
            start = time.perf_counter()
            outcome = outcome_of(base, files, (turned,) if turned else (), Path(folder))
            detail = " ".join(f"{outcome.detail} [{turned}]".split())
            yield number, Outcome(outcome.kind, detail), time.perf_counter() - start


def work(base: Base, kind: str, numbers: range, seed: int) -> None:
    """Convert, and print a line before and one after each: `NUMBER`, then `kind seconds detail`."""
    resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_BYTES, LARGEST_BYTES))
    for number, outcome, seconds in conversions(base, kind, numbers, seed):
        if outcome.kind:
            print(f"{outcome.kind}\t{seconds:.4f}\t{outcome.detail}")
        else:
            print(number, flush=True)
    print(f"peak\t{_peak_mb():.0f}\t")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(base: Base, kind: str, numbers: range, options: argparse.Namespace) -> Tally:
    """Convert in child processes, a new one after each that dies."""
    tally, start, first = Tally(), time.perf_counter(), numbers.start
    if not options.jobs:
        for number, outcome, seconds in conversions(base, kind, numbers, options.seed):
            if outcome.kind:
                tally.add(f"{base.name}/{kind}/{number}", outcome)
                tally.slowest_s = max(tally.slowest_s, seconds)
        tally.peak_mb = _peak_mb()
        return tally
    while first < numbers.stop:
        command = [sys.executable, __file__, "--seed", str(options.seed)]
        command += ["--work", base.name, kind, str(first), str(numbers.stop)]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        )
        first = _follow(child, f"{base.name}/{kind}", first, tally, options.messages)
    tally.seconds = time.perf_counter() - start
    return tally


def _follow(
    child: subprocess.Popen[str], where: str, first: int, tally: Tally, messages: Path | None
) -> int:
    """Read what a child tells until it ends, and return the next number."""
    number, is_open, said = first, False, []
    assert child.stdout is not None
    for line in child.stdout:
        if line[:1].isdigit():
            number, is_open = int(line), True
            continue
        kind, seconds, detail = line.rstrip("\n").split("\t", 2)
        if kind == "peak":
            tally.peak_mb = max(tally.peak_mb, float(seconds))
            said.append(f"{where}\tpeak_mb\t{seconds}\t\n")
            continue
        is_open = False
        tally.add(f"{where}/{number}", Outcome(kind, detail))
        tally.slowest_s = max(tally.slowest_s, float(seconds))
        said.append(f"{where}/{number}\t{kind}\t{seconds}\t{detail}\n")
    code = child.wait()
    if is_open or code:
        tally.add(f"{where}/{number}", Outcome("bug", f"the process ended with {code}"))
        said.append(f"{where}/{number}\tbug\t0\tprocess ended with {code}\n")
    if messages is not None:
        with messages.open("a") as file:
            file.writelines(said)
    return number + 1


def chunks(options: argparse.Namespace) -> Iterator[tuple[Base, str, range]]:
    """Yield what is converted by one call of `run`."""
    for name in options.formats:
        for kind in options.kinds:
            count = options.count if kind == "files" else -(-options.count // ROWS_A_FILE)
            for first in range(options.first, options.first + count, options.chunk):
                end = min(first + options.chunk, options.first + count)
                yield BASES[name], kind, range(first, end)


def figures(options: argparse.Namespace) -> dict[str, Any]:
    """Convert all, and return the figures."""
    tallies: dict[str, Tally] = {}
    with ThreadPoolExecutor(options.jobs or 1) as pool:
        todo = list(chunks(options))
        done = pool.map(lambda chunk: run(*chunk, options), todo)
        for (base, kind, _), tally in zip(todo, done, strict=True):
            whole = tallies.setdefault(f"{base.name} {kind}", Tally())
            whole.outcomes += tally.outcomes
            whole.bugs += tally.bugs
            whole.peak_mb = max(whole.peak_mb, tally.peak_mb)
            whole.slowest_s = max(whole.slowest_s, tally.slowest_s)
            whole.seconds += tally.seconds
    found: dict[str, Any] = {
        name: {**tally.outcomes, "peak_mb": tally.peak_mb, "slowest_s": tally.slowest_s}
        for name, tally in tallies.items()
    }
    found["bugs"] = [bug for tally in tallies.values() for bug in tally.bugs]
    return found


def keep(case: str, folder: Path, seed: int) -> None:
    """Write one damaged trace, and say which rule is turned and what comes of it."""
    name, kind, number = case.rsplit("/", 2)
    files, turned = damaged(BASES[name], kind, int(number), seed)
    for file, content in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)
    with tempfile.TemporaryDirectory() as scratch:
        outcome = outcome_of(BASES[name], files, (turned,) if turned else (), Path(scratch))
    print(f"{turned or 'no rule turned'}: {outcome.kind} {outcome.detail}")


def main() -> int:
    """Run what the command line asks for; 1 if there is a bug."""
    arguments = parser(__doc__)
    arguments.add_argument("--formats", nargs="+", choices=list(BASES), default=list(BASES))
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments.add_argument("--count", type=int, default=10_000, help="rows and files, a format")
    arguments.add_argument("--first", type=int, default=0, help="number of the first")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--jobs", type=int, default=2, help="processes at a time; 0: this one")
    arguments.add_argument("--chunk", type=int, default=2500, help="conversions a process")
    arguments.add_argument("--messages", type=Path, help="also append a line a conversion here")
    arguments.add_argument("--case", help="one case, FORMAT/KIND/NUMBER")
    arguments.add_argument("--keep", type=Path, help="where to write it")
    arguments.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.work:
        name, kind, first, end = options.work
        work(BASES[name], kind, range(int(first), int(end)), options.seed)
        return 0
    if options.case:
        keep(options.case, options.keep, options.seed)
        return 0
    found = figures(options)
    print_figures(found, options.json)
    return 1 if found["bugs"] else 0


if __name__ == "__main__":
    sys.exit(main())
