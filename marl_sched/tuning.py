"""Tune the rule `tuned` on the tune split: every candidate plays the same episodes."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np

from marl_sched.agents.tuned import TunedRule, load_tuned, tuned_path, weight_priors
from marl_sched.config import Experiment
from marl_sched.config.hashing import environment_hash
from marl_sched.envs.vector import VectorEnv
from marl_sched.files import write_atomically
from marl_sched.observation import Layout
from marl_sched.search import Scorer, SearchLog, SearchProgress, SearchSpace, Weights, search

_MAX_REPLICAS = 20


def score_weights(experiment: Experiment, weights: Weights) -> float:
    """Return the mean objective of one set of weights over the episodes of the tune split."""
    episodes = range(experiment.tuning.episodes)
    rule = TunedRule(Layout(tuple(experiment.resources)), weights)
    objectives = []
    # A replica's episode is the same whatever is simulated beside it.
    for start in range(0, len(episodes), _MAX_REPLICAS):
        batch = episodes[start : start + _MAX_REPLICAS]
        env = VectorEnv(experiment, len(batch), with_rewards=False)
        objectives.append(env.run_weighted(rule.weights, "tune", batch)["objective"])
    return float(np.concatenate(objectives).mean())


def tune(
    experiment: Experiment,
    folder: Path | None = None,
    jobs: int = 1,
    progress: SearchProgress | None = None,
    start: Path | None = None,
) -> Path:
    """Tune the rule for an experiment and write its weights where `make_policy` finds them.

    Args:
        experiment: The experiment; its `tuning` says how hard.
        folder: Where to write; default: configs/tuned.
        jobs: Processes to score on; has no influence on the result.
        progress: Called after every evaluation.
        start: Weights that `tune` wrote for another experiment: where the search begins, with what
            it took to find them. Default: the hand-set ones.

    Returns:
        The file of weights.

    Raises:
        ConfigError: The start is missing or no file of weights of these resources.
        RunError: The log of an earlier, unfinished tuning belongs to another configuration.
    """
    settings = experiment.tuning
    path = tuned_path(experiment, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    identity: dict[str, object] = {
        "experiment": experiment.name,
        "environment_hash": environment_hash(experiment),
        "episodes": settings.episodes,
        "evaluations": settings.evaluations,
        "random_share": settings.random_share,
    }
    priors = weight_priors(Layout(tuple(experiment.resources)))
    if start is not None:
        begun = load_tuned(start, Layout(tuple(experiment.resources)))
        priors = {name: (begun.get(name, 0.0), spread) for name, (_, spread) in priors.items()}
        identity["start"] = _origin(start)
    log = SearchLog(path.with_suffix(".evaluations.jsonl"), identity)
    space = SearchSpace(
        priors=priors,
        n_evaluations=settings.evaluations,
        n_random=max(1, round(settings.random_share * settings.evaluations)),
        seed=experiment.seed,
    )
    with scoring_processes(partial(score_weights, experiment), jobs) as score:
        found = search(space, score, log, progress)
    content = identity | {
        "objective": found.objective,
        "start_objective": found.start_objective,
        "weights": found.weights,
    }
    text = json.dumps(content, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _origin(start: Path) -> dict[str, object]:
    """Return what a file of weights says of the search that found them."""
    content = json.loads(start.read_text(encoding="utf-8"))
    kept = ("experiment", "environment_hash", "episodes", "evaluations", "start")
    return {key: content[key] for key in kept if key in content}


@contextlib.contextmanager
def scoring_processes(one: Callable[[Weights], float], jobs: int) -> Iterator[Scorer]:
    """Score candidates one by one here, or several at once in `jobs` processes; ended on exit."""
    if jobs <= 1:
        yield lambda candidates: map(one, candidates)
        return
    executor = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_follow_parent
    )
    try:
        yield lambda candidates: executor.map(one, candidates)
    finally:
        executor.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent, which ends its workers; if it is killed, end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _end_after_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
