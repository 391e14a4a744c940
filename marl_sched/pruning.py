"""Prune the policy of a run, and say what that costs and saves: what `marl-sched prune` does.

    RUN's policy --plays--> recorded decisions --agents/pruning--> smaller policy
                                                                      |  both play the same
                                                                      v  validation episodes
    OUT/checkpoints/best.npz or zones/ZONE/policy-*.npz, pruning.json; the rest is RUN's

OUT is a run's folder to whatever plays policies. Decisions are recorded in other validation
episodes than those that the loss is measured in.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.policies import load_policy, save_policy
from marl_sched.agents.pruning import Rows, prune_policy
from marl_sched.agents.scoring import context_of
from marl_sched.checkpoint import Checkpoint
from marl_sched.config import Experiment, load_config
from marl_sched.envs.vector import VectorEnv
from marl_sched.errors import RunError
from marl_sched.evaluation import EpisodeMetrics, EpisodePlayer
from marl_sched.files import write_atomically
from marl_sched.observation import Layout, Observation
from marl_sched.run_folder import RunFolder, require_new
from marl_sched.statistics import Bootstrap, Ratio, summarize_ratio
from marl_sched.workload.episodes import draw_workload

PRUNING_FILE = "pruning.json"
_RECORDED_EPISODES = 4
_MAX_DECISIONS = 2_000
"""About as many are recorded a zone, evenly over the episodes."""
_LATENCY = "decision_latency_us"

Policies = Mapping[str, LearnedPolicy]
"""By zone; zones may share one."""


@dataclass(frozen=True)
class Pruned:
    """What pruning has made.

    Attributes:
        before: The policies as they were.
        after: The smaller ones.
        ratio: Validation objective after over before, paired over episodes.
        objectives: Mean validation objective before and after.
        decision_us: Mean time of a decision in play, before and after; differs from run to run.
        changed: Share of the recorded decisions that are now taken otherwise.
    """

    before: Policies
    after: Policies
    ratio: Ratio
    objectives: tuple[float, float]
    decision_us: tuple[float, float]
    changed: float


class _Recorder:
    """Plays a policy and keeps every so many-th decision that it was asked for."""

    def __init__(self, policy: LearnedPolicy, step: int) -> None:
        self._policy, self._step = policy, step
        self._n_asked = 0
        self.seen: list[Observation] = []

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Begin episodes."""
        self._policy.reset(n_replicas, generator)

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return the policy's choices."""
        rows = np.arange(-self._n_asked % self._step, len(observation), self._step)
        self._n_asked += len(observation)
        if rows.size:
            self.seen.append(observation.take(rows))
        return self._policy.act(observation)


def open_run(run: Path) -> tuple[Experiment, dict[str, LearnedPolicy]]:
    """Return what a run has trained: its experiment and the published policy of every zone.

    Zones that share a file share the object.

    Raises:
        RunError: No such folder, or policies of another kind.
        ConfigError: Its configuration cannot be read.
        CheckpointError: Nothing was published, or the file is not whole.
    """
    if not run.is_dir():
        raise RunError(f"{run}: no such run; make it: marl-sched train")
    experiment = load_config(RunFolder(run).config_path)
    layout = Layout(tuple(experiment.resources))
    files = RunFolder(run).policy_paths(experiment.zone_names)
    loaded: dict[Path, LearnedPolicy] = {}
    for path in files.values():
        if path not in loaded:
            policy = load_policy(path, layout)
            if not isinstance(policy, LearnedPolicy):
                raise RunError(
                    f"{path}: agent.algorithm = ppo-scorer, expected a policy whose network scores "
                    "candidates"
                )
            loaded[path] = policy
    return experiment, {zone: loaded[path] for zone, path in files.items()}


def prune_all(policies: Policies, experiment: Experiment, n_episodes: int, keep: float) -> Pruned:
    """Prune the policies of all zones and compare them with what they were.

    Args:
        policies: By zone; a network that zones share is pruned once, by what all of them decided.
        experiment: What they play.
        n_episodes: Validation episodes that both are played in.
        keep: Share of the hidden units that is left.
    """
    seen = _record(policies, experiment, n_episodes)
    smaller: dict[int, LearnedPolicy] = {}
    n_changed = n_seen = 0
    for policy in {id(policy): policy for policy in policies.values()}.values():
        own = [o for zone, part in seen.items() if policies[zone] is policy for o in part]
        pruned = smaller[id(policy)] = prune_policy(policy, _rows(policy, own), keep)
        n_seen += sum(len(observation) for observation in own)
        n_changed += sum(int((policy.act(o) != pruned.act(o)).sum()) for o in own)
    after = {zone: smaller[id(policy)] for zone, policy in policies.items()}
    player = EpisodePlayer(experiment, experiment.evaluation.replicas)
    played = [_played(player, each, n_episodes) for each in (policies, after)]
    bootstrap = Bootstrap(experiment.seed, experiment.evaluation.bootstrap_samples, n_episodes)
    whole, less = (part["objective"][None] for part in played)  # (1, E)
    return Pruned(
        before=policies,
        after=after,
        ratio=summarize_ratio(("pruned", "whole", "objective"), less, whole, bootstrap),
        objectives=(float(whole.mean()), float(less.mean())),
        decision_us=(float(played[0][_LATENCY].mean()), float(played[1][_LATENCY].mean())),
        changed=n_changed / max(n_seen, 1),
    )


def write_pruned(run: Path, out: Path, pruned: Pruned, keep: float, n_episodes: int) -> None:
    """Write the folder of the smaller policies.

    Raises:
        RunError: The folder exists and is not empty.
    """
    require_new(out)
    source, folder = RunFolder(run), RunFolder(out)
    files = source.policy_paths(pruned.after)
    folder.best_path.parent.mkdir(parents=True, exist_ok=True)
    for zone, path in files.items():
        target = out / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        save_policy(target, pruned.after[zone])
    if source.best_path not in files.values():
        # Which round the zones' own policies are of stands in a checkpoint; no training goes on.
        last = source.last_checkpoint()
        assert last is not None
        folder.save_checkpoint(Checkpoint(last.round_number, {}, {}, last.best, is_finished=True))
    content = _content(pruned, keep, n_episodes)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomically(out / PRUNING_FILE, lambda file: file.write(text.encode()))
    # What the policies come from: reports show how it was trained.
    for path in (source.config_path, source.metrics_path, source.timing_path):
        if path.exists():
            shutil.copyfile(path, out / path.name)


def sizes(policy: LearnedPolicy) -> dict[str, Any]:
    """Return the sizes of a policy's network."""
    architecture = policy.architecture
    return {
        "hidden": list(architecture.hidden),
        "value_hidden": architecture.value_hidden,
        "parameters": architecture.n_parameters,
    }


def _content(pruned: Pruned, keep: float, n_episodes: int) -> dict[str, Any]:
    """Return what pruning.json holds: nothing that differs from run to run."""
    before, after = pruned.objectives
    return {
        "keep": keep,
        "sizes": {
            zone: {"before": sizes(policy), "after": sizes(pruned.after[zone])}
            for zone, policy in sorted(pruned.before.items())
        },
        "changed_decisions": pruned.changed,
        "validation_episodes": n_episodes,
        "objective": {"before": before, "after": after},
        "ratio": asdict(pruned.ratio),
    }


def _played(player: EpisodePlayer, policies: Policies, n_episodes: int) -> EpisodeMetrics:
    return player.play(lambda zone: policies[zone], "validation", range(n_episodes))


def _record(policies: Policies, experiment: Experiment, first: int) -> dict[str, list[Observation]]:
    """Play episodes from number `first` on; return evenly picked decisions by zone."""
    episodes = range(first, first + _RECORDED_EPISODES)
    recorders = {}
    for zone in experiment.zones:
        drawn = [draw_workload(experiment, zone, "validation", number) for number in episodes]
        step = max(1, sum(jobs.n_instances for jobs in drawn) // _MAX_DECISIONS)
        recorders[zone.name] = _Recorder(policies[zone.name], step)
    env = VectorEnv(experiment, _RECORDED_EPISODES, with_rewards=False)
    env.run(recorders, "validation", episodes)
    return {zone: recorder.seen for zone, recorder in recorders.items()}


def _rows(policy: LearnedPolicy, seen: Sequence[Observation]) -> Rows:
    """Return the unmasked candidates of observations, as a policy's network sees them.

    A decision's machines count as much as its peers: to send an instance away that should stay is
    what costs most, however few peers there are.
    """
    inputs, weights, contexts = [], [], []
    for observation in seen:
        extended = policy.scorer.extended(observation)
        context = context_of(extended)
        row, candidate = np.nonzero(extended.mask)
        inputs.append(np.concatenate([extended.candidates[row, candidate], context[row]], axis=1))
        is_peer = candidate >= extended.n_machines
        n_peers = extended.mask[:, extended.n_machines :].sum(axis=1)
        n_machines = extended.mask[:, : extended.n_machines].sum(axis=1)
        weights.append(1.0 / np.where(is_peer, n_peers[row], n_machines[row]))
        contexts.append(context)
    return Rows(np.concatenate(inputs), np.concatenate(weights), np.concatenate(contexts))
