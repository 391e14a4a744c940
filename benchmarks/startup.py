"""How long a user waits: `python benchmarks/startup.py [--json]`.

1. From the start of `marl-sched evaluate configs/base.yaml --policies kube-default` to its first
   decision, kernels compiled before; bar: 3 s.
2. `marl-sched compile` in an empty cache folder; bar: 60 s. About a minute, so only with `--cold`.

Wall time is what the user waits, CPU time what is left of it on a busy machine; the median of
`--runs` starts, the folder of kernels warm in memory.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import parser, print_figures

from marl_sched.commands.warm_up import warm_up

ROOT = Path(__file__).parents[1]
BARS_S = {"first_decision": 3.0, "cold_compilation": 60.0}
COMMAND = "evaluate configs/base.yaml --policies kube-default --set evaluation.episodes=1"
TO_FIRST_DECISION = f"""
import os, sys
import marl_sched.cli

def stop(self, observation):
    sys.stdout.write(" ".join(sorted(sys.modules)))
    sys.stdout.flush()
    os._exit(0)

import marl_sched.agents.heuristics as heuristics
heuristics.FixedRule.act = stop
sys.exit(marl_sched.cli.run({COMMAND.split()!r}))
"""
HEAVY = ("torch", "flwr", "grpc", "matplotlib", "pettingzoo", "gymnasium", "polars", "numba")


def timed(code: str, environment: dict[str, str]) -> tuple[float, float, str]:
    """Run Python code in a process of its own; return wall and CPU seconds and its stdout."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s, done.stdout


def first_decision(n_runs: int) -> dict[str, object]:
    """Return the time from the start of a command to its first decision, and what it loaded."""
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        code = TO_FIRST_DECISION.replace("'evaluate'", f"'evaluate', '--out', {folder!r}")
        runs = [timed(code, {}) for _ in range(n_runs)]
    return {
        "wall_s": statistics.median(run[0] for run in runs),
        "cpu_s": statistics.median(run[1] for run in runs),
        "bar_s": BARS_S["first_decision"],
        "loaded": [name for name in HEAVY if name in runs[-1][2].split()],
    }


def cold_compilation() -> dict[str, object]:
    """Return the time of `marl-sched compile` in an empty cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        code = "from marl_sched.cli import run; import sys; sys.exit(run(['compile']))"
        wall_s, cpu_s, _ = timed(code, {"MARL_SCHED_KERNEL_CACHE": folder})
    return {"wall_s": wall_s, "cpu_s": cpu_s, "bar_s": BARS_S["cold_compilation"]}


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=5, metavar="N", help="starts to time")
    arguments.add_argument("--cold", action="store_true", help="time the compilation too")
    given = arguments.parse_args()
    figures: dict[str, object] = {"first_decision": first_decision(given.runs)}
    if given.cold:
        figures["cold_compilation"] = cold_compilation()
    print_figures(figures, given.json)


if __name__ == "__main__":
    main()
