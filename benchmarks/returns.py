"""How well QR-DQN learns beside SB3-contrib's: `python benchmarks/returns.py [--json]`.

zone_0 of configs/base.yaml alone, a fixed number of machines: ours without a prior, on candidates
and with masks, and SB3's on the flattened observation, where a masked action stands for the first
unmasked one. Equal decisions, replicas, quantiles, hidden layers, batch and updates per decision;
then both play the same validation episodes greedily. The figure is the mean reward of a decision,
beside that of random decisions. One thread.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from measuring import parser, print_figures
from numpy.typing import NDArray
from single_agent import SingleAgentEnv
from training import BASE, N_REPLICAS, ClusterLoop

from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Agent, Experiment, load_config

Decide = Callable[[SingleAgentEnv, NDArray[np.float32]], int]


def mean_reward(experiment: Experiment, decide: Decide, n_episodes: int) -> float:
    """Return the mean reward of a decision over validation episodes."""
    env = SingleAgentEnv(experiment, 0, "validation")
    total, n_decisions = 0.0, 0
    for _ in range(n_episodes):
        flat, _ = env.reset()
        is_over = False
        while not is_over:
            flat, reward, _, is_over, _ = env.step(np.int64(decide(env, flat)))
            total += reward
            n_decisions += 1
    return total / n_decisions


def train_ours(experiment: Experiment, n_decisions: int) -> Decide:
    """Train our learner; return its averaged network's greedy decisions."""
    loop = ClusterLoop(experiment)
    while loop.learner.n_decisions < n_decisions:
        loop.play(N_REPLICAS)
        loop.learner.set_progress(min(loop.learner.n_decisions / n_decisions, 1.0))
    scorer = loop.learner.policy().scorer

    def decide(env: SingleAgentEnv, _flat: NDArray[np.float32]) -> int:
        seen = env.seen
        context = np.concatenate([seen["instance"], seen["zone"]])
        mask = seen["action_mask"][:-1].astype(np.bool_)  # without idle
        return int(scorer.choose(seen["machines"][None], context[None], mask[None])[0])

    return decide


def train_sb3(experiment: Experiment, n_decisions: int) -> Decide:
    """Train SB3-contrib's learner with the same settings; return its greedy decisions."""
    # An optional extra (dev).
    from sb3_contrib import QRDQN
    from stable_baselines3.common.vec_env import DummyVecEnv

    agent = experiment.agent
    makers = [partial(SingleAgentEnv, experiment, 1_000 * e) for e in range(N_REPLICAS)]
    n_steps = max(1, agent.decisions_per_update // N_REPLICAS)
    model = QRDQN(
        "MlpPolicy",
        DummyVecEnv(list(makers)),
        learning_rate=agent.learning_rate,
        buffer_size=n_decisions,
        learning_starts=agent.warmup_decisions,
        batch_size=agent.batch_size,
        gamma=agent.discount,
        train_freq=n_steps,
        gradient_steps=n_steps * N_REPLICAS // agent.decisions_per_update,
        target_update_interval=1_000,
        exploration_fraction=0.3,
        exploration_final_eps=0.03,
        policy_kwargs={"n_quantiles": agent.quantile_count, "net_arch": list(agent.hidden)},
        seed=1,
        device="cpu",
    )
    model.learn(n_decisions)
    return lambda _env, flat: int(model.predict(flat, deterministic=True)[0])


def at_random(seed: int) -> Decide:
    """Return decisions that are drawn evenly from the unmasked ones."""
    rng = np.random.default_rng(seed)

    def decide(env: SingleAgentEnv, _flat: NDArray[np.float32]) -> int:
        return int(rng.choice(np.flatnonzero(env.seen["action_mask"][:-1])))

    return decide


def run(n_decisions: int, n_episodes: int) -> dict[str, Any]:
    """Return every figure of this benchmark."""
    warm_up()
    base = load_config(BASE)
    agent = Agent(prior="none", decisions_per_update=16, warmup_decisions=2_048)
    experiment = base.model_copy(update={"zones": base.zones[:1], "agent": agent})
    deciders = {
        "ours": train_ours(experiment, n_decisions),
        "sb3": train_sb3(experiment, n_decisions),
        "random": at_random(1),
    }
    figures: dict[str, Any] = {"decisions": n_decisions, "episodes": n_episodes}
    return figures | {
        f"mean_reward_{name}": mean_reward(experiment, decide, n_episodes)
        for name, decide in deciders.items()
    }


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--decisions", type=int, default=60_000, metavar="N", help="decisions each learns from"
    )
    arguments.add_argument(
        "--episodes", type=int, default=4, metavar="N", help="validation episodes"
    )
    given = arguments.parse_args()
    torch.set_num_threads(1)
    print_figures(run(given.decisions, given.episodes), given.json)


if __name__ == "__main__":
    main()
