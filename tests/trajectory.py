"""What one zone saw, did and was told, as one digest; also from the command line of a process."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tiny import at_random, machines, tiny, zone

from marl_sched.cluster.exchange import Exchange
from marl_sched.config import Experiment
from marl_sched.envs.zone_env import ZoneEnv
from zones.exchange_client import RemoteExchange
from zones.records import Invitation

FAILING = {"mean_up_s": 30.0, "mean_down_s": 6.0}
TRAIN = (("train", (0, 1)), ("train", (2, 3)))
VALIDATE = (("validation", (0, 1)), ("validation", (2,)))
Episodes = Sequence[tuple[str, Sequence[int]]]


def offloading(max_hops: int = 1, **cluster: object) -> Experiment:
    """Return three zones that offload, fail and settle; the rounds of TRAIN and VALIDATE."""
    return tiny(
        zone("a", machines(2, price_per_hour=2.0), load=1.2, failures=FAILING),
        zone("b", machines(), machines(cpu=8000, speed=1.5)),
        zone("c", machines(), background={"mean": {"cpu_milli": 0.2}, "sd": 0.1, "step_s": 10.0}),
        cluster={"peer_queue_allowance": 0.5, "max_hops": max_hops, **cluster},
        training={
            "replicas": 2,
            "rounds": 1,
            "episodes_per_round": 2,
            "validation_episodes": 3,
        },
        seed=7,
    )


@dataclass(frozen=True)
class Trajectory:
    """Of one zone: the digest of everything, decisions, and offloads among them."""

    digest: str
    n_decisions: int
    n_offloads: int


def play(experiment: Experiment, name: str, exchange: Exchange, episodes: Episodes) -> Trajectory:
    """Play episodes with any unmasked action; every zone draws from its own generator."""
    seen = hashlib.sha256()
    act = at_random(1)
    n_decisions = n_offloads = 0
    for split, numbers in episodes:
        env = ZoneEnv(experiment, name, exchange, len(numbers))
        env.reset(split, numbers)
        while not env.done:
            while (observation := env.observe()) is not None:
                actions = act(name, observation)
                n_decisions += len(actions)
                n_offloads += int((actions >= env.n_machines).sum())
                for array in (*vars(observation).values(), actions):
                    seen.update(np.asarray(array).tobytes())
                env.step(actions)
            env.end_window()
            for array in vars(env.settlements()).values():
                seen.update(array.tobytes())
        sums = env.finish()
        for array in (sums.sums, sums.histogram, sums.cluster_imbalance):
            seen.update(array.tobytes())
    return Trajectory(seen.hexdigest(), n_decisions, n_offloads)


def main(arguments: Mapping[str, str]) -> None:
    """Play TRAIN as one zone of a hub elsewhere and print the trajectory."""
    name, experiment = arguments["zone"], offloading()
    exchange = RemoteExchange(name)
    invitation = Invitation(arguments["address"], bytes.fromhex(arguments["token"]))
    exchange.join(invitation, 1, 1, sorted(experiment.zone_names))
    trajectory = play(experiment, name, exchange, TRAIN)
    exchange.leave()
    sys.stdout.write(json.dumps(vars(trajectory)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
