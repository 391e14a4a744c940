"""Draw generated jobs against the published figures.

python -m marl_sched.workload.generation.figure OUT.png
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from marl_sched.workload.generation.arrivals import DayCurve, draw_arrivals
from marl_sched.workload.generation.calibration import Calibration
from marl_sched.workload.generation.comparison import Sample, dispersion, samples
from marl_sched.workload.generation.jobs import generate

_HORIZONS_S = {"alibaba-v2018": 60_000, "openb": 200 * 86_400}
_LENGTH_S = 1_000_000
"""Of the arrivals whose dispersion is drawn."""
_PANELS = {
    "alibaba-v2018": (
        ("n_tasks", "tasks of a job"),
        ("n_instances", "instances of a task"),
        ("cpu_milli", "cpu request (milli-cores)"),
        ("memory_mib", "memory request (MiB)"),
        ("duration_s", "duration of an instance (s)"),
        ("use:cpu_milli", "cpu used by an instance (milli-cores)"),
        ("use:memory_mib", "memory used by an instance (MiB)"),
        ("gap_s", "gap between jobs (s)"),
    ),
    "openb": (
        ("gpu_milli", "GPU request (thousandths)"),
        ("duration_s", "run time (s)"),
        ("gap_s", "gap between pods (s)"),
    ),
}
_PUBLISHED, _GENERATED = "#c2410c", "#1d4ed8"


def draw(path: Path) -> None:
    """Write the figure of both shipped calibrations."""
    figure, axes = plt.subplots(4, 3, figsize=(11, 12), layout="constrained")
    places = iter(axes.ravel())
    for name, panels in _PANELS.items():
        calibration = Calibration.load(name)
        generator = np.random.default_rng(0)
        horizon_s = _HORIZONS_S[name]
        table = generate(calibration, horizon_s, generator)
        found = samples(table, generator)
        for quantity, title in panels:
            _cumulative(next(places), calibration, quantity, title, found[quantity])
        if name == "alibaba-v2018":
            _dispersion(next(places), calibration, generator)
    figure.suptitle("Generated jobs (lines) and the published figures (dots)")
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _cumulative(
    axes: Axes, calibration: Calibration, quantity: str, title: str, sample: Sample
) -> None:
    published = calibration.published[quantity]
    shares = np.concatenate([np.linspace(0.001, 0.999, 400), 1 - np.geomspace(1e-3, 1e-4, 20)])
    drawn = sample.quantiles(shares)
    axes.step(drawn, shares, where="post", color=_GENERATED, lw=1.5, label="generated")
    axes.plot(published.quantiles, published.shares, "o", color=_PUBLISHED, ms=4, label="published")
    if quantity == "gap_s":
        axes.set_xscale("symlog", linthresh=1)
    elif quantity == "gpu_milli":
        axes.set_xscale("symlog", linthresh=100)
    elif quantity not in ("cpu_milli", "memory_mib"):
        axes.set_xscale("log")
    axes.set_xlim(right=published.quantiles[-1] * 1.5)
    axes.set_ylim(0, 1.02)
    axes.set_title(f"{'OpenB: ' if calibration.name == 'openb' else ''}{title}", fontsize=10)
    axes.set_ylabel("share at or below", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(
        fontsize=7, loc="lower right" if quantity in ("cpu_milli", "memory_mib") else "upper left"
    )


def _dispersion(axes: Axes, calibration: Calibration, generator: np.random.Generator) -> None:
    rate = calibration.arrivals.rate_per_s
    seconds = draw_arrivals(calibration.arrivals, rate, _LENGTH_S, DayCurve(), generator)
    spans = np.unique(np.geomspace(1, 600, 25).astype(int))
    drawn = [dispersion(seconds, int(span), _LENGTH_S) for span in spans]
    axes.plot(spans, drawn, color=_GENERATED, label="generated")
    fitted = [calibration.arrivals.dispersion(int(span)) for span in spans]
    axes.plot(spans, fitted, "--", color=_GENERATED, lw=1, alpha=0.6, label="its formula")
    axes.plot(
        list(calibration.dispersion),
        list(calibration.dispersion.values()),
        "o",
        color=_PUBLISHED,
        ms=5,
        label="published hour",
    )
    axes.plot(spans, np.ones(len(spans)), ":", color="0.4", label="Poisson")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title("dispersion of the counts of jobs", fontsize=10)
    axes.set_xlabel("span (s)", fontsize=8)
    axes.set_ylabel("variance / mean", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper left")


def main(arguments: Sequence[str]) -> int:
    """Draw to the named file."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m marl_sched.workload.generation.figure OUT.png\n")
        return 2
    draw(Path(arguments[0]))
    sys.stderr.write(f"{arguments[0]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
