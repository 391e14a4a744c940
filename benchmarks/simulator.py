"""How fast the simulator is: `python benchmarks/simulator.py [--json]`.

Decisions per CPU second of one core with observations written and rewards settled, on
configs/base.yaml (20 machines a zone, three zones) and on the same with ten times the machines.
The policy is a line of numpy; its time is taken out and reported apart. Of each episode the first
minute fills the cluster and does not count. Bars: at the best number of replicas at least 100,000
decisions/s at 20 machines a zone, 40,000 at 200.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import parser, print_figures
from numpy.typing import NDArray

from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment, load_config
from marl_sched.envs.vector import VectorEnv
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation

BASE = Path(__file__).parents[1] / "configs" / "base.yaml"
BARS = {20: 100_000, 200: 40_000}
N_FILLING_WINDOWS = 12


def experiment_of(n_machines: int) -> Experiment:
    """Return the base experiment with every group of machines multiplied to n_machines a zone."""
    base = load_config(BASE)
    overrides = [
        f"zones[{z}].machines[{g}].count={group.count * n_machines // 20}"
        for z, zone in enumerate(base.zones)
        for g, group in enumerate(zone.machines)
    ]
    return load_config(BASE, overrides)


class Run:
    """Plays every zone in turn with the machine that has most free cpu, else the first open peer.

    Attributes:
        decisions: Decisions played.
        policy_s: CPU seconds of the policy.
    """

    def __init__(self, env: VectorEnv) -> None:
        """Play `env`, which has been reset."""
        self._env = env
        layout = next(iter(env.zones.values())).layout
        self._column = layout.candidate_index("free_share_after:cpu_milli")
        self.decisions = 0
        self.policy_s = 0.0

    def window(self) -> None:
        """Play one window of all zones, the exchange included."""
        for zone in self._env.zones.values():
            self._play(zone)
        self._env.end_window()
        for zone in self._env.zones.values():
            zone.settlements()

    def _play(self, zone: ZoneEnv) -> None:
        while (observation := zone.observe()) is not None:
            start = time.process_time()
            actions = self._act(observation)
            self.policy_s += time.process_time() - start
            self.decisions += len(actions)
            zone.step(actions)

    def _act(self, observation: Observation) -> NDArray[np.int64]:
        machines = slice(0, observation.n_machines)
        free = observation.candidates[:, machines, self._column]
        scores = np.where(observation.mask[:, machines], free, -1.0)
        best = scores.argmax(axis=1)
        nothing_here = scores.max(axis=1) < 0
        return np.asarray(np.where(nothing_here, observation.mask.argmax(axis=1), best))


def measure(experiment: Experiment, n_replicas: int, n_decisions: int) -> dict[str, float]:
    """Return decisions/s and the policy's us a decision over at least n_decisions, if there are."""
    env = VectorEnv(experiment, n_replicas)
    env.reset("train", range(n_replicas))
    run = Run(env)
    for _ in range(N_FILLING_WINDOWS):
        run.window()
    run.decisions, run.policy_s = 0, 0.0
    start = time.process_time()
    while run.decisions < n_decisions and not env.done:
        run.window()
    elapsed = time.process_time() - start
    return {
        "decisions_per_s": run.decisions / (elapsed - run.policy_s),
        "policy_us": 1e6 * run.policy_s / run.decisions,
    }


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--machines", type=int, nargs="+", default=sorted(BARS), metavar="M")
    arguments.add_argument("--replicas", type=int, nargs="+", default=[8, 32, 64, 128], metavar="E")
    arguments.add_argument(
        "--decisions", type=int, default=150_000, metavar="N", help="timed decisions a figure"
    )
    given = arguments.parse_args()
    warm_up()
    figures: dict[str, Any] = {}
    for n_machines in given.machines:
        experiment = experiment_of(n_machines)
        measure(experiment, 1, 1)  # the compiled kernels are loaded
        by_replicas = {f"E={n}": measure(experiment, n, given.decisions) for n in given.replicas}
        best = max(part["decisions_per_s"] for part in by_replicas.values())
        figures[f"machines={n_machines}"] = {
            "best_decisions_per_s": best,
            "bar_decisions_per_s": BARS.get(n_machines),
            **by_replicas,
        }
    print_figures(figures, given.json)


if __name__ == "__main__":
    main()
