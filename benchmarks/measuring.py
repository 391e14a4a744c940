"""What the benchmarks share: CPU times, their arguments, and how figures are printed."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of one call, over all threads: other processes do not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def median_us(call: Callable[[], object], n_calls: int) -> float:
    """Return the median CPU time of a call in microseconds, after one that does not count."""
    call()
    return 1e6 * statistics.median(cpu_seconds(call) for _ in range(n_calls))


def parser(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser that has `--json` and shows the benchmark's docstring."""
    made = argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def print_figures(figures: Mapping[str, Any], as_json: bool) -> None:
    """Print figures as one JSON object, or as lines; a mapping in them becomes a line an entry."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in _flat(figures).items():
        print(f"{name:48} {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return str(value)


def _flat(figures: Mapping[str, Any]) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            lines |= {f"{name} {key}": part for key, part in _flat(value).items()}
        else:
            lines[name] = value
    return lines
