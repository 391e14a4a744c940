"""Fitting to gains, and the whole of the teacher."""

from typing import Any

import numpy as np
from tiny import machines, tiny, zone

from marl_sched.agents.architecture import initial_weights
from marl_sched.agents.prior import Prior
from marl_sched.agents.scoring import Scorer
from marl_sched.config import Experiment, Teacher
from marl_sched.distillation.fit import fit_gains, load_weights_of, split_by_episode
from marl_sched.distillation.play import correcting, make_rule, score_rule
from marl_sched.distillation.samples import Samples
from marl_sched.distillation.teacher import teach
from marl_sched.observation import Layout

LAYOUT = Layout(("cpu_milli", "memory_mib"))
ARCHITECTURE = correcting(LAYOUT, [16, 16])


def _samples(n_samples: int, noise: float) -> Samples:
    """Return samples whose gain is twice the difference of the first feature."""
    generator = np.random.default_rng(8)
    shape = (n_samples, 4, ARCHITECTURE.n_candidate_features)
    candidates = generator.normal(size=shape).astype(np.float32)
    context = generator.normal(size=(n_samples, ARCHITECTURE.n_context_features))
    gains = 2.0 * (candidates[:, 1:, 0] - candidates[:, :1, 0])
    return Samples(
        candidates,
        context.astype(np.float32),
        gains + noise * generator.normal(size=gains.shape),
        generator.random(gains.shape) < 0.8,
        generator.random(n_samples),
        generator.integers(12, size=n_samples),
    )


def test_a_known_gain_is_recovered_from_noisy_ones() -> None:
    samples = _samples(3000, noise=2.0)
    generator = np.random.default_rng(0)
    first = initial_weights(ARCHITECTURE, generator)
    settings = Teacher(learning_rate=5e-3, batch_size=256, weight_decay=1e-4)
    weights, measures = fit_gains(samples, ARCHITECTURE, first, settings, generator)
    test = _samples(500, noise=0.0)
    scorer = Scorer(ARCHITECTURE, ARCHITECTURE.flatten(weights), cvar_alpha=1.0)
    scores = scorer.scores(test.candidates, test.context, np.ones((500, 4), np.bool_))
    predicted = scores[:, 1:] - scores[:, :1]
    assert np.corrcoef(predicted.ravel(), test.gains.ravel())[0, 1] > 0.95
    assert measures["loss"] < 0.6 * measures["no_gain_loss"]
    assert measures["gain"] > 1.0


def test_noise_under_load_counts_less() -> None:
    samples = _samples(2000, noise=0.0)
    gains = np.where(samples.load[:, None] > 0.5, 5.0 * samples.gains, samples.gains)
    weights = load_weights_of(Samples(**{**vars(samples), "gains": gains}), clip=100.0)
    quiet, busy = weights[samples.load < 0.4].mean(), weights[samples.load > 0.6].mean()
    assert quiet > 10 * busy


def test_no_episode_is_both_fitted_and_held_out() -> None:
    samples = _samples(300, noise=0.0)
    fitted, held_out = split_by_episode(samples, 0.25, np.random.default_rng(1))
    assert len(fitted) + len(held_out) == 300
    assert not set(samples.episode[fitted]) & set(samples.episode[held_out])
    assert len(set(samples.episode[held_out])) == 3


def _experiment(**changes: Any) -> Experiment:
    return tiny(
        zone("a", machines(1, speed=1.0), machines(2, speed=0.2)),
        zone("b", machines(2)),
        episode={"horizon_s": 400.0},
        workload={"load": 0.25},
        agent={"hidden": [16], "prior_weights": {"machine.speed": -1.0, "peer.is_peer": -50.0}},
        **changes,
    )


SETTINGS = Teacher(
    samples=150,
    iterations=2,
    groups=4,
    branches=3,
    value_episodes=4,
    value_horizon_s=30.0,
    epochs=20,
    batch_size=16,
)


def test_what_is_taught_is_the_same_for_a_seed_and_differs_between_seeds() -> None:
    experiment = _experiment()
    first, again, other = (teach(experiment, seed, SETTINGS) for seed in (1, 1, 2))
    correcting(LAYOUT, [16]).check(first)
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)
    assert any(first[name].tobytes() != other[name].tobytes() for name in first)


def test_a_taught_prior_is_better_than_one_that_prefers_slow_machines() -> None:
    experiment = _experiment()
    shares: list[float] = []
    weights = teach(experiment, 1, SETTINGS, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    prior = Prior(LAYOUT, experiment.agent.prior_weights)
    taught = make_rule(prior, correcting(LAYOUT, [16]), weights, SETTINGS.gain_margin)
    before = score_rule(experiment, make_rule(prior), "validation", range(10))["objective"]
    after = score_rule(experiment, taught, "validation", range(10))["objective"]
    assert after.mean() < 0.9 * before.mean()
