"""Whether the page stays light: `python benchmarks/dashboard_soak.py [--minutes 10] [--json]`.

A made-up run of 64 zones x 200 machines writes every view twice a second and a round every 20 s; a
headless Chromium has the page open. Every 10 s the browser's heap is measured after a garbage
collection. Bars, the second half of the time against the second quarter: the heap grows by at most
5 %, the number of nodes by at most 2 %, and the page answers within 100 ms in the median.

Needs playwright and a Chromium (apt install chromium); exits with 1 if a bar is missed.
"""

import resource
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from measuring import parser, print_figures
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
# The root before the tests, which have a folder of the same name as the package.
sys.path += [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "dashboard")]

from run_files import RunFiles, experiment  # noqa: E402 - the path comes first
from served import chromium_path, quiet, serving  # noqa: E402

PERIOD_S = 0.5
SAMPLE_S = 10.0
ROUND_S = 20.0
N_DRAWN = 8
"""Different views of a zone, made before: making them would take what is to be measured."""
LARGEST_GROWTH = {"heap": 1.05, "nodes": 1.02}
LARGEST_DELAY_MS = 100.0


class Writer(threading.Thread):
    """Writes as a run does, until it is stopped."""

    def __init__(self, run: RunFiles) -> None:
        """Draw the views of a run."""
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.n_written = 0
        self._run = run
        self._drawn = {zone: [run.view(zone) for _ in range(N_DRAWN)] for zone in run.zones}

    def run(self) -> None:
        """Replace every view twice a second, and add a round every 20 s."""
        start, n_looks, number = time.monotonic(), 0, 0
        live = self._run.folder / "live"
        live.mkdir(exist_ok=True)
        while not self.stop.wait(max(0.0, start + n_looks * PERIOD_S - time.monotonic())):
            n_looks += 1
            if n_looks * PERIOD_S > number * ROUND_S:
                number += 1
                self._run.round(number)
                self._run.validation(number, 0.5 + 1 / number)
            for zone, views in self._drawn.items():
                changes = {"time": time.time(), "round": number, "n_decisions": 900 * n_looks}
                view = views[n_looks % N_DRAWN].model_copy(update=changes)
                path = live / f"{zone}.json"
                path.with_suffix(".tmp").write_bytes(view.encoded())
                path.with_suffix(".tmp").replace(path)
                self.n_written += 1


def sample(page: Any, devtools: Any) -> dict[str, float]:
    """Return what the page holds after a garbage collection, and how soon it answers."""
    devtools.send("HeapProfiler.collectGarbage")
    found = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
    script = """() => new Promise((done) => {
        const start = performance.now();
        setTimeout(() => done(performance.now() - start), 0);
    })"""
    delays = [page.evaluate(script) for _ in range(10)]
    return {
        "heap_mib": found["JSHeapUsedSize"] / 2**20,
        "nodes": found["Nodes"],
        "task_s": found["TaskDuration"],
        "delay_ms": statistics.median(delays),
    }


def watch(address: str, n_zones: int, seconds: float) -> tuple[list[dict[str, float]], list[str]]:
    """Keep the page open; return the samples, and errors of the page."""
    errors: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        page.on("pageerror", lambda error: errors.append(str(error)))
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        page.goto(address)
        page.locator(".tile").nth(n_zones - 1).wait_for()
        samples: list[dict[str, float]] = []
        start = time.monotonic()
        while (elapsed_s := time.monotonic() - start) < seconds or len(samples) < 4:
            page.wait_for_timeout(1000 * min(SAMPLE_S, seconds / 8))
            samples.append({"at_s": elapsed_s, **sample(page, devtools)})
            page.mouse.wheel(0, 300 if len(samples) % 2 else -300)
        browser.close()
    return samples, errors


def growth(samples: list[dict[str, float]], key: str) -> float:
    """Return the mean of the second half over that of the second quarter."""
    values = [one[key] for one in samples]
    half = len(values) // 2
    return statistics.mean(values[half:]) / statistics.mean(values[len(values) // 4 : half])


def measure(minutes: float, n_zones: int, n_machines: int) -> dict[str, Any]:
    """Return the figures of one soak."""
    made_up = experiment(n_zones, n_machines, training={"rounds": 100_000})
    with tempfile.TemporaryDirectory() as folder:
        run = RunFiles(Path(folder) / "run", made_up).create()
        writer = Writer(run)
        writer.start()
        try:
            with serving(quiet(run.folder, poll_s=PERIOD_S)) as address:
                before = resource.getrusage(resource.RUSAGE_SELF)
                samples, errors = watch(address, n_zones, 60 * minutes)
                after = resource.getrusage(resource.RUSAGE_SELF)
        finally:
            writer.stop.set()
            writer.join()
    seconds = samples[-1]["at_s"]
    return {
        "zones": n_zones,
        "machines_a_zone": n_machines,
        "seconds": round(seconds, 1),
        "views_a_second": round(writer.n_written / seconds, 1),
        "heap_mib": round(samples[-1]["heap_mib"], 2),
        "heap_growth": round(growth(samples, "heap_mib"), 4),
        "nodes": samples[-1]["nodes"],
        "nodes_growth": round(growth(samples, "nodes"), 4),
        "page_cpu_share": round(
            (samples[-1]["task_s"] - samples[0]["task_s"]) / (seconds - samples[0]["at_s"]), 3
        ),
        "server_and_writer_cpu_share": round((after.ru_utime - before.ru_utime) / seconds, 3),
        "delay_ms": round(statistics.median(one["delay_ms"] for one in samples), 1),
        "errors": errors,
    }


def missed(figures: dict[str, Any]) -> list[str]:
    """Return the bars that are missed."""
    found = [
        f"{name} grows by {figures[f'{name}_growth']}, expected at most {most}"
        for name, most in LARGEST_GROWTH.items()
        if figures[f"{name}_growth"] > most
    ]
    if figures["delay_ms"] > LARGEST_DELAY_MS:
        found.append(f"delay_ms = {figures['delay_ms']}, expected at most {LARGEST_DELAY_MS:g}")
    return found + figures["errors"]


def main() -> int:
    """Measure, print, and say whether the bars are kept."""
    arguments = parser(__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    arguments.add_argument("--zones", type=int, default=64, help="default: 64")
    arguments.add_argument("--machines", type=int, default=200, help="a zone")
    given = arguments.parse_args()
    figures = measure(given.minutes, given.zones, given.machines)
    print_figures(figures, given.json)
    problems = missed(figures)
    for problem in problems:
        print(f"missed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
