"""How long one decision takes: `python benchmarks/decision.py [--json]`.

Median CPU time in microseconds of `act` on one row (B = 1) with 20, 200 and 2,000 machines and two
peers, for rules and for the learned policy, at the default network and at what `marl-sched prune
--keep 0.5` leaves of it (made-up weights): what a live scheduler waits for.
Numbers only, no bar.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import median_us, parser, print_figures

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.heuristics import make_policy
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.policy import Policy
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import load_config
from marl_sched.observation import Layout, Observation

BASE = Path(__file__).parents[1] / "configs" / "base.yaml"
RULES = ("first-fit", "least-allocated", "kube-default", "tetris", "load-variation-risk")
N_PEERS = 2


def one_row(layout: Layout, n_machines: int) -> Observation:
    """Return one made-up decision; a third of the candidates is masked."""
    rng = np.random.default_rng(1)
    n_candidates = n_machines + N_PEERS
    mask = rng.random((1, n_candidates)) < 2 / 3
    mask[:, 0] = True
    return Observation(
        replica=np.zeros(1, np.int64),
        decision=np.zeros(1, np.int64),
        instance=rng.random((1, len(layout.instance)), np.float32),
        candidates=rng.random((1, n_candidates, len(layout.candidate)), np.float32),
        zone=rng.random((1, len(layout.zone)), np.float32),
        mask=mask,
        n_machines=n_machines,
    )


def policies(layout: Layout) -> dict[str, Policy]:
    """Return the policies to time by name."""
    experiment = load_config(BASE)
    made: dict[str, Policy] = {name: make_policy(name, layout, experiment) for name in RULES}
    architecture = Architecture.of(layout, experiment.agent)
    weights = initial_weights(architecture, np.random.default_rng(1))
    made["learned"] = LearnedPolicy.of(layout, experiment.agent, weights)
    half = experiment.agent.model_copy(
        update={"hidden": [units // 2 for units in experiment.agent.hidden]}
    )
    smaller = initial_weights(Architecture.of(layout, half), np.random.default_rng(1))
    made["learned, pruned to half"] = LearnedPolicy.of(layout, half, smaller)
    for policy in made.values():
        policy.reset(1, np.random.default_rng(1))
    return made


def acting(policy: Policy, row: Observation) -> Callable[[], object]:
    """Return a call that takes the decision once."""
    return lambda: policy.act(row)


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--machines", type=int, nargs="+", default=[20, 200, 2_000], metavar="M")
    arguments.add_argument("--calls", type=int, default=500, metavar="N", help="calls a figure")
    given = arguments.parse_args()
    warm_up()
    layout = Layout(("cpu_milli", "memory_mib"))
    figures: dict[str, Any] = {}
    for name, policy in policies(layout).items():
        figures[name] = {
            f"machines={n}_us": median_us(acting(policy, one_row(layout, n)), given.calls)
            for n in given.machines
        }
    print_figures(figures, given.json)


if __name__ == "__main__":
    main()
