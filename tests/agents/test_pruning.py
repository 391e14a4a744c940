"""Networks made smaller, against ones that can be followed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.pruning import Layer, Rows, fold, prune_policy, shrink
from marl_sched.config import Agent
from marl_sched.observation import LIMIT, Layout

LAYOUT = Layout(("cpu_milli", "memory_mib"))
N_IN, H, G, N_OUT = 5, 7, 6, 3
"""Inputs, two hidden layers, outputs."""

Float = NDArray[np.float64]


def network(rng: np.random.Generator) -> list[Layer]:
    sizes = ((N_IN, H), (H, G), (G, N_OUT))
    return [Layer(rng.standard_normal(size), rng.standard_normal(size[1])) for size in sizes]


def computed(layers: list[Layer], inputs: Float) -> Float:
    x = inputs
    for layer in layers[:-1]:
        x = np.maximum(x @ layer.weight + layer.bias, 0.0)
    return x @ layers[-1].weight + layers[-1].bias


def sizes(layers: list[Layer]) -> tuple[int, ...]:
    return tuple(layer.bias.size for layer in layers[:-1])


def inputs(n_rows: int = 400) -> Float:
    return np.random.default_rng(2).uniform(-LIMIT, LIMIT, (n_rows, N_IN))


def counted(rows: Float) -> tuple[Float, Float]:
    return rows, np.ones(len(rows))


def test_fold_leaves_a_network_without_dead_units_alone() -> None:
    layers = network(np.random.default_rng(1))
    folded = fold(layers)
    assert sizes(folded) == (H, G)
    np.testing.assert_array_equal(computed(folded, inputs()), computed(layers, inputs()))


def test_fold_takes_out_what_has_no_influence_and_nothing_changes() -> None:
    first, second, head = network(np.random.default_rng(1))
    np.abs(second.weight, out=second.weight)
    second.weight[2] = 0.0  # nothing is made of it
    first.weight[:, 3], first.bias[3] = 0.0, 1.5  # constant
    first.weight[:, 4], first.bias[4] = 0.1, -0.1 * N_IN * LIMIT - 0.01  # out of reach
    first.weight[:, 5], first.bias[5] = first.weight[:, 6], first.bias[6]  # alike
    second.weight[:, 0], second.bias[0] = -1.0, -0.5  # below 0 whatever feeds it
    layers = [first, second, head]
    folded = fold(layers)
    assert sizes(folded) == (3, 5)
    np.testing.assert_allclose(computed(folded, inputs()), computed(layers, inputs()), rtol=1e-12)


def test_unit_that_some_observation_activates_is_kept() -> None:
    first, second, head = network(np.random.default_rng(1))
    first.weight[:, 4], first.bias[4] = 0.1, -0.1 * N_IN * LIMIT + 0.01
    assert sizes(fold([first, second, head])) == (H, G)


def test_what_fed_only_dead_units_goes_with_them() -> None:
    first, second, head = network(np.random.default_rng(1))
    head.weight[1] = 0.0
    second.weight[3] = 0.0
    second.weight[3, 1] = 2.0
    layers = [first, second, head]
    folded = fold(layers)
    assert sizes(folded) == (H - 1, G - 1)
    np.testing.assert_allclose(computed(folded, inputs()), computed(layers, inputs()), rtol=1e-12)


def test_network_that_is_all_dead_keeps_a_unit_and_its_constant() -> None:
    first, second, head = network(np.random.default_rng(1))
    dead = Layer(head.weight * 0.0, head.bias)
    folded = fold([first, second, dead])
    assert sizes(folded) == (1, 1)
    np.testing.assert_array_equal(computed(folded, inputs()), np.tile(head.bias, (400, 1)))


def test_unit_that_is_the_multiple_of_another_is_made_up_for() -> None:
    first, second, head = network(np.random.default_rng(1))
    first.weight[:, 5], first.bias[5] = 3.0 * first.weight[:, 6], 3.0 * first.bias[6]
    layers = [first, second, head]
    assert sizes(fold(layers)) == (H, G)  # not alike: nothing for `fold`
    shrunk = shrink(layers, counted(inputs()), [H - 1, G], np.eye(N_OUT))
    assert sizes(shrunk) == (H - 1, G)
    expected = computed(layers, inputs())
    np.testing.assert_allclose(computed(shrunk, inputs()), expected, atol=1e-3 * expected.std())


def test_unit_that_was_never_active_goes_first() -> None:
    first, second, head = network(np.random.default_rng(1))
    rows = inputs() / LIMIT
    first.weight[:, 2], first.bias[2] = 1.0, -N_IN - 0.01  # active for other observations
    layers = [first, second, head]
    shrunk = shrink(layers, counted(rows), [H - 1, G], np.eye(N_OUT))
    kept = [0, 1, 3, 4, 5, 6]
    np.testing.assert_array_equal(shrunk[0].weight, first.weight[:, kept])
    np.testing.assert_allclose(computed(shrunk, rows), computed(layers, rows), rtol=1e-4, atol=1e-4)


def test_mean_outputs_of_a_linear_end_are_kept() -> None:
    layers = [network(np.random.default_rng(1))[0], Layer(*_head(H))]
    shrunk = shrink(layers, counted(inputs()), [2], np.eye(N_OUT))
    assert sizes(shrunk) == (2,)
    np.testing.assert_allclose(
        computed(shrunk, inputs()).mean(axis=0), computed(layers, inputs()).mean(axis=0)
    )


def test_rows_that_count_more_are_met_better() -> None:
    layers = [network(np.random.default_rng(1))[0], Layer(*_head(H))]
    rows = inputs()
    errors = []
    for weight in (np.ones(400), np.where(np.arange(400) < 40, 1000.0, 1.0)):
        shrunk = shrink(layers, (rows, weight), [3], np.eye(N_OUT))
        errors.append(((computed(shrunk, rows) - computed(layers, rows))[:40] ** 2).sum())
    assert errors[1] < errors[0]


def test_outputs_that_do_not_count_are_given_up_first() -> None:
    # One unit makes the first output, a much stronger one the second.
    first = Layer(np.eye(N_IN), np.full(N_IN, LIMIT))
    head = Layer(np.zeros((N_IN, 2)), np.zeros(2))
    head.weight[0, 0], head.weight[1:, 1] = 1.0, 100.0
    shrunk = shrink([first, head], counted(inputs()), [1], np.array([[1.0], [0.0]]))
    np.testing.assert_array_equal(shrunk[0].weight, first.weight[:, [0]])


def _head(n_inputs: int) -> tuple[Float, Float]:
    rng = np.random.default_rng(5)
    return rng.standard_normal((n_inputs, N_OUT)), rng.standard_normal(N_OUT)


def policy(agent: Agent) -> LearnedPolicy:
    rng = np.random.default_rng(1)
    weights = initial_weights(Architecture.of(LAYOUT, agent), rng)
    weights["head.weight"] = rng.standard_normal(weights["head.weight"].shape, np.float32)
    return LearnedPolicy.of(LAYOUT, agent, weights)


def recorded(architecture: Architecture) -> Rows:
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (300, architecture.n_inputs)).astype(np.float32)
    contexts = rng.uniform(-1, 1, (50, architecture.n_context_features)).astype(np.float32)
    return Rows(rows, np.ones(300), contexts)


@pytest.mark.parametrize("prior", ["tuned", "none"])
def test_share_of_every_layer_is_left_and_scores_of_all_of_it_are_the_same(prior: str) -> None:
    agent = Agent.model_validate(
        {"prior": prior, "hidden": [10, 7], "n_quantiles": 3, "value_hidden": 6, "cvar_alpha": 0.5}
    )
    whole = policy(agent)
    rows = recorded(whole.architecture)
    half = prune_policy(whole, rows, 0.5).architecture
    assert (half.hidden, half.value_hidden) == ((5, 4), 3 if whole.prior else 0)
    assert half == replace(whole.architecture, hidden=(5, 4), value_hidden=half.value_hidden)

    same = prune_policy(whole, rows, 1.0)
    assert same.architecture == whole.architecture
    n_features = whole.architecture.n_candidate_features
    candidates, context = rows.inputs[:40, :n_features][None], rows.context[:1]
    mask = np.ones((1, 40), bool)
    np.testing.assert_allclose(
        same.scorer.scores(candidates, context, mask),
        whole.scorer.scores(candidates, context, mask),
        rtol=1e-3,
        atol=1e-4,
    )
