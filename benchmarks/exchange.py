"""What the exchange costs: `python benchmarks/exchange.py [--zones 3,8] [--round]`.

1. CPU time of a window boundary of configs/base.yaml (three zones in one thread, LocalExchange, 16
replicas): closing the window, what is sent, taking it in, and opening the next one up to its first
decisions; in microseconds a boundary of all zones, and as a share of a round with a rule
(simulator, observations, decisions, rewards). `barrier_us` is the exchange itself: empty outboxes
of three zones posted and collected.
2. Local against remote: zones that do nothing but to exchange hand-made outboxes (16 replicas, six
   offloads, notices and settlements each a window), in threads over a LocalExchange, and a process
   each around a hub over gRPC on loopback; wall time a step, at 3 and 8 zones, or as many as
   `--zones` says. `hub_cpu_us` and `zone_cpu_us` are the CPU time of a step in the hub, for all
   zones, and in one zone, gRPC's threads included. `transport` is what a zone waits from the moment
   the slowest has its outbox ready until it has everybody's.
3. With --round: the first training round of configs/base.yaml, a process a zone; target:
   `transport_share` is at most 15%. Waiting for slower zones is `skew`, not transport.

With fewer cores than zones and hub, the transport holds waits for a core, in which another zone
works: `transport_cpu_share` is the CPU time of hub and zones for the exchange over all CPU time.
"""

import time
from pathlib import Path

import numpy as np
from measuring import cpu_seconds, parser, print_figures
from remote import Play, figures, in_processes, in_threads, play_hand_made, play_round

from marl_sched.agents.heuristics import make_policy
from marl_sched.cluster.exchange import LocalExchange, Outbox
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment, load_config
from marl_sched.envs.vector import VectorEnv

BASE = Path(__file__).parents[1] / "configs" / "base.yaml"
RULE = "least-allocated"


def play(experiment: Experiment, n_replicas: int) -> dict[str, float]:
    """Play one episode a replica; return the boundaries' us a window and their share."""
    env = VectorEnv(experiment, n_replicas)
    env.reset("train", range(n_replicas))
    boundary_s, n_windows, n_offloads, n_decisions = 0.0, 0, 0, 0
    layout = next(iter(env.zones.values())).layout
    policy = make_policy(RULE, layout, experiment)
    policy.reset(n_replicas, np.random.default_rng(1))
    start = time.process_time()
    while not env.done:
        for zone in env.zones.values():
            while (observation := zone.observe()) is not None:
                actions = policy.act(observation)
                n_decisions += len(actions)
                n_offloads += int((actions >= zone.n_machines).sum())
                zone.step(actions)
        boundary_s += cpu_seconds(env.end_window)
        n_windows += 1
        for zone in env.zones.values():
            zone.settlements()
    total_s = time.process_time() - start
    return {
        "boundary_us": 1e6 * boundary_s / n_windows,
        "share_of_round": boundary_s / total_s,
        "decisions_per_window": n_decisions / n_windows,
        "offloads_per_window": n_offloads / n_windows,
    }


def barrier_us(names: list[str], n_steps: int) -> float:
    """Return the time of posting and collecting empty outboxes of all zones, a step."""
    exchange = LocalExchange(names)
    empty = np.zeros((0, 8))
    moments = np.zeros((1, 2, 3))

    def steps() -> None:
        for step in range(n_steps):
            for name in names:
                exchange.post(Outbox(name, step, empty, empty, empty, None, moments))
            for name in names:
                exchange.collect(name, step)

    return 1e6 * cpu_seconds(steps) / n_steps


def zones_apart(n_zones: int, n_replicas: int) -> dict[str, dict[str, float]]:
    """Return the figures of hand-made steps among copies of the base's zones."""
    base = load_config(
        BASE,
        (
            f"training={{replicas: {n_replicas}, rounds: 1, episodes_per_round: 2, "
            "validation_episodes: 0}",
        ),
    )
    zones = [
        base.zones[number % len(base.zones)].model_copy(update={"name": f"zone_{number}"})
        for number in range(n_zones)
    ]
    experiment = base.model_copy(update={"zones": zones})
    return {
        "local": figures([*in_threads(experiment, play_hand_made).values()]),
        "remote": _remote(experiment, play_hand_made),
    }


def _remote(experiment: Experiment, play_zone: Play) -> dict[str, float]:
    marks, hub_cpu_s = in_processes(experiment, play_zone)
    return figures([*marks.values()], hub_cpu_s)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--replicas", type=int, default=16, metavar="E")
    arguments.add_argument("--zones", type=_numbers, default=[3, 8], metavar="Z,Z")
    arguments.add_argument("--round", action="store_true", help="train a round of base.yaml")
    given = arguments.parse_args()
    warm_up()
    experiment = load_config(BASE, (f"training.replicas={given.replicas}",))
    found = {
        **play(experiment, given.replicas),
        "barrier_us": barrier_us(sorted(experiment.zone_names), 2_000),
        **{f"{n} zones": zones_apart(n, given.replicas) for n in given.zones},
    }
    if given.round:
        found["round"] = _remote(experiment, play_round)
    print_figures(found, given.json)


if __name__ == "__main__":
    main()
