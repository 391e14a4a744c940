"""Refine what a trained policy decides by: searched on the tune split, as the rule's weights are.

Learning has a reward that stands for the objective decision by decision. What it gets wrong as a
whole - how much a correction is worth against the rule, how far to trust it, what the rule beneath
it should weigh now - few numbers can put right, and whole episodes say which.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from marl_sched.agents.combined import combined
from marl_sched.agents.learned import LearnedPolicy, load_policy, save_policy
from marl_sched.agents.tuned import weight_priors
from marl_sched.config import Experiment
from marl_sched.config.hashing import config_hash
from marl_sched.envs.vector import VectorEnv
from marl_sched.errors import CheckpointError, RunError
from marl_sched.files import write_atomically
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder
from marl_sched.search import BATCH, SearchLog, SearchProgress, SearchSpace, Weights, search
from marl_sched.tuning import scoring_processes

MARGIN, SHARE = "gate_margin", "share"
"""Names of what is searched beside the rule's weights: the margin, and `share.0`, `share.1`, ..."""

EVALUATIONS_FILE, REFINED_FILE = "refine.evaluations.jsonl", "refined.json"

_SPREAD_OF_RULE = 0.5
"""Of the spread of the rule's own search: it was tuned before."""
_SPREAD_OF_SHARE = 0.4
_SPREAD_OF_MARGIN = 0.25
_MAX_REPLICAS = 20


def published_policy(run: Path, layout: Layout) -> LearnedPolicy:
    """Return the one policy that a run published for all of its zones.

    Raises:
        CheckpointError: There is none, or every zone has its own, or it corrects no rule.
    """
    path = RunFolder(run).best_path
    if not path.exists():
        raise CheckpointError(
            f"{path}: no such file; expected a validated run whose zones share one policy"
        )
    policy = load_policy(path, layout)
    if policy.prior is None:
        raise CheckpointError(f"{path}: prior = none, expected a policy that corrects a rule")
    return policy


def starting_point(policies: Sequence[LearnedPolicy]) -> dict[str, float]:
    """Return where the search starts: every share 1, the rule and the margin of the first."""
    first = policies[0]
    assert first.prior is not None
    shares = {f"{SHARE}.{number}": 1.0 for number in range(len(policies))}
    return shares | {MARGIN: first.gate_margin} | first.prior.weights


def refined(policies: Sequence[LearnedPolicy], point: Weights) -> LearnedPolicy:
    """Return the policy at a point of the search; shares and margin below 0 count as 0."""
    shares = [max(0.0, point[f"{SHARE}.{number}"]) for number in range(len(policies))]
    own = {MARGIN, *(f"{SHARE}.{number}" for number in range(len(policies)))}
    rule = {name: weight for name, weight in point.items() if name not in own}
    return combined(policies, shares, rule, max(0.0, point[MARGIN]))


def score_point(experiment: Experiment, runs: Sequence[Path], point: Weights) -> float:
    """Return the mean objective over the episodes of the tune split."""
    layout = Layout(tuple(experiment.resources))
    policy = refined([published_policy(run, layout) for run in runs], point)
    episodes = range(experiment.tuning.episodes)
    objectives = []
    for start in range(0, len(episodes), _MAX_REPLICAS):
        batch = episodes[start : start + _MAX_REPLICAS]
        env = VectorEnv(experiment, len(batch), with_rewards=False)
        objectives.append(env.run(dict.fromkeys(env.zones, policy), "tune", batch)["objective"])
    return float(np.concatenate(objectives).mean())


def refine(
    experiment: Experiment,
    runs: Sequence[Path],
    folder: Path,
    n_evaluations: int,
    jobs: int = 1,
    progress: SearchProgress | None = None,
) -> Path:
    """Search from the sum of the runs' policies on; publish the best as the policy of `folder`.

    Args:
        experiment: What is played; its `tuning.episodes` says on how many episodes.
        runs: Training runs whose zones share a policy.
        folder: Where to write; laid out as a run is, so that it can be evaluated.
        n_evaluations: Points to score, the start among them; 1: the sum as it is, nothing played.
        jobs: Processes to score on; has no influence on the result.
        progress: Called after every evaluation.

    Returns:
        The file of the policy.

    Raises:
        CheckpointError: A run has no such policy, or they do not fit together.
        RunError: The folder holds a training run, or a search that belongs to something else.
    """
    layout = Layout(tuple(experiment.resources))
    policies = [published_policy(run, layout) for run in runs]
    start = starting_point(policies)
    refined(policies, start)  # so that what does not fit is told at once
    if RunFolder(folder).has_rounds:
        raise RunError(f"{folder}: holds a training run, expected a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, object] = {"runs": [str(run) for run in runs], "start": start}
    point: Weights = start
    if n_evaluations > 1:
        log = SearchLog(folder / EVALUATIONS_FILE, _identity(experiment, policies))
        space = SearchSpace(_priors(layout, start), n_evaluations, BATCH, experiment.seed)
        with scoring_processes(partial(score_point, experiment, list(runs)), jobs) as score:
            found = search(space, score, log, progress)
        point = found.weights
        content |= {
            "episodes": experiment.tuning.episodes,
            "evaluations": n_evaluations,
            "objective": found.objective,
            "start_objective": found.start_objective,
        }
    path = RunFolder(folder).best_path
    path.parent.mkdir(exist_ok=True)
    config = (runs[0] / RunFolder(runs[0]).config_path.name).read_bytes()
    text = json.dumps(content | {"found": dict(point)}, indent=1) + "\n"
    write_atomically(RunFolder(folder).config_path, lambda file: file.write(config))
    write_atomically(folder / REFINED_FILE, lambda file: file.write(text.encode()))
    save_policy(path, refined(policies, point))
    return path


def _priors(layout: Layout, start: Weights) -> dict[str, tuple[float, float]]:
    """Return start and spread of every number that is searched."""
    spreads = {
        name: _SPREAD_OF_RULE * spread for name, (_, spread) in weight_priors(layout).items()
    }
    spreads[MARGIN] = _SPREAD_OF_MARGIN
    return {name: (value, spreads.get(name, _SPREAD_OF_SHARE)) for name, value in start.items()}


def _identity(experiment: Experiment, policies: Iterable[LearnedPolicy]) -> dict[str, object]:
    """Return what the evaluations of a search belong to."""
    return {
        "config_hash": config_hash(experiment),
        "episodes": experiment.tuning.episodes,
        "policies": [_digest(policy) for policy in policies],
    }


def _digest(policy: LearnedPolicy) -> str:
    digest = hashlib.sha256()
    for tensor in policy.weights().values():
        digest.update(tensor.tobytes())
    return digest.hexdigest()[:16]
