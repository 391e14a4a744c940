"""The teacher: what a prior should have done, found by playing its alternatives out.

Policy iteration with one step of look-ahead (Bertsekas 2022, "Lessons from AlphaZero", rollout),
distilled: the network sees observations only, what it learns from is the simulator's truth.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import Weights, initial_weights
from marl_sched.agents.prior import Prior
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.config import Experiment, Teacher
from marl_sched.config.streams import named_stream
from marl_sched.distillation.branching import Branching
from marl_sched.distillation.fit import fit_gains
from marl_sched.distillation.play import correcting, make_rule, prices_of
from marl_sched.distillation.samples import Samples
from marl_sched.distillation.value import fit_value, play_plainly
from marl_sched.observation import Layout, Observation

_logger = logging.getLogger(__name__)

Progress = Callable[[float], None]
"""Called with the share that is done."""

_MOST_EPISODES = 2**31


@dataclass
class Lesson:
    """What a teacher has so far.

    Attributes:
        weights: Of the correcting network; None before the first fit.
        samples: All data sets, the last one last.
        measures: Of every iteration.
    """

    weights: Weights | None = None
    samples: list[Samples] = field(default_factory=list)
    measures: list[dict[str, float]] = field(default_factory=list)


def teach(
    experiment: Experiment,
    seed: int,
    settings: Teacher,
    progress: Progress | None = None,
) -> Weights:
    """Return the weights of f, one output, that correct the prior of the experiment's agent.

    Args:
        experiment: With the agent's prior weights resolved.
        seed: Of every draw: which train episodes, which decisions, the fit.
        settings: How much of it.
        progress: Told how far it is.

    Returns:
        Weights of `correcting(layout, agent.hidden)`.
    """
    experiment = experiment.model_copy(update={"teacher": settings})
    lesson = Lesson()
    for number in range(settings.iterations):

        def tell(share: float, number: int = number) -> None:
            if progress is not None:
                progress((number + share) / settings.iterations)

        iterate(experiment, seed, lesson, tell)
        _logger.info("teacher, iteration %d: %s", number + 1, lesson.measures[-1])
    assert lesson.weights is not None
    return lesson.weights


def iterate(experiment: Experiment, seed: int, lesson: Lesson, progress: Progress) -> None:
    """Play one data set by what was learned so far, and fit to all of them."""
    torch.set_num_threads(1)
    settings = experiment.teacher
    number = str(len(lesson.samples))
    layout = Layout(tuple(experiment.resources))
    prior = Prior(layout, experiment.agent.prior_weights)
    architecture = correcting(layout, experiment.agent.hidden)
    rule = make_rule(prior, architecture, lesson.weights, settings.gain_margin)
    prices = prices_of(experiment)
    draws = named_stream(seed, "teacher", "episodes", number)
    episodes = draws.integers(_MOST_EPISODES, size=settings.value_episodes).tolist()
    plain = play_plainly(experiment, rule, prices, episodes)
    value, r2 = fit_value(experiment, plain, named_stream(seed, "teacher", "value", number))
    branching = Branching(
        experiment,
        prior,
        rule,
        value,
        prices,
        named_stream(seed, "teacher", "branches", number),
        None if lesson.weights is None else _scorer(experiment, lesson.weights),
    )
    lesson.samples.append(_collect(branching, settings, draws, progress))
    fitting = named_stream(seed, "teacher", "fit", number)
    first = lesson.weights
    if first is None:
        first = initial_weights(architecture, fitting)
    together = Samples.together(lesson.samples)
    lesson.weights, measures = fit_gains(together, architecture, first, settings, fitting)
    lesson.measures.append({"value_r2": r2, "samples": len(together), **measures})


def _collect(
    branching: Branching, settings: Teacher, draws: np.random.Generator, progress: Progress
) -> Samples:
    parts: list[Samples] = []
    n_samples = 0
    while n_samples < settings.samples:
        episodes = draws.integers(_MOST_EPISODES, size=settings.groups).tolist()
        for part in branching.play(episodes):
            parts.append(part)
            n_samples += len(part)
            progress(min(1.0, n_samples / settings.samples))
            if n_samples >= settings.samples:
                break
    return Samples.together(parts)


def _scorer(
    experiment: Experiment, weights: Weights
) -> Callable[[Observation], NDArray[np.float64]]:
    layout = Layout(tuple(experiment.resources))
    architecture = correcting(layout, experiment.agent.hidden)
    scorer = Scorer(architecture, architecture.flatten(weights), cvar_alpha=1.0)

    def score(observation: Observation) -> NDArray[np.float64]:
        scores = scorer.scores(observation.candidates, context_of(observation), observation.mask)
        return scores.astype(np.float64)

    return score
