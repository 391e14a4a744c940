import numpy as np
import pytest
import torch

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.scoring import Scorer, tail_weights
from marl_sched.errors import CheckpointError

N_FEATURES, N_CONTEXT = 7, 6


def _weights(hidden: tuple[int, ...] = (9, 5), n_quantiles: int = 4):
    architecture = Architecture(N_FEATURES, N_CONTEXT, hidden, n_quantiles)
    weights = initial_weights(architecture, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    # Biases start at 0, where a forgotten one could not be seen.
    return architecture, {
        name: array + 0.1 * rng.standard_normal(array.shape).astype(np.float32)
        for name, array in weights.items()
    }


def _rows(n_rows: int, n_candidates: int, seed: int = 5):
    rng = np.random.default_rng(seed)
    candidates = rng.standard_normal((n_rows, n_candidates, N_FEATURES)).astype(np.float32)
    context = rng.standard_normal((n_rows, N_CONTEXT)).astype(np.float32)
    mask = rng.random((n_rows, n_candidates)) < 0.7
    mask[:, 1] = True
    return candidates, context, mask


def _by_hand(weights, hidden: tuple[int, ...], candidate, context) -> np.ndarray:
    x = np.concatenate([candidate, context]).astype(np.float64)
    names = ["first", *(f"hidden.{i}" for i in range(len(hidden) - 1))]
    for name in names:
        x = np.maximum(x @ weights[f"{name}.weight"] + weights[f"{name}.bias"], 0)
    return x @ weights["head.weight"] + weights["head.bias"]


@pytest.mark.parametrize("hidden", [(9,), (9, 5), (6, 11, 3)])
def test_network_and_scorer_agree_with_the_formula(hidden: tuple[int, ...]) -> None:
    architecture, weights = _weights(hidden)
    candidates, context, mask = _rows(3, 8)
    expected = np.array(
        [[_by_hand(weights, hidden, c, context[b]) for c in candidates[b]] for b in range(3)]
    )  # (B, C, N)
    network = CandidateNetwork(architecture, weights)
    with torch.no_grad():
        values = network(torch.from_numpy(candidates), torch.from_numpy(context)).numpy()
        rows = np.concatenate([candidates[:, 2], context], axis=1)
        taken = network.values(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(taken, expected[:, 2], rtol=1e-4, atol=1e-5)
    scores = Scorer(architecture, architecture.flatten(weights), 1.0).scores(
        candidates, context, mask
    )
    np.testing.assert_allclose(
        scores, np.where(mask, expected.mean(axis=2), -np.inf), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("cvar_alpha", [0.1, 0.25, 0.6, 1.0])
def test_cvar_is_the_mean_of_the_worst_share(cvar_alpha: float) -> None:
    architecture, weights = _weights()
    candidates, context, mask = _rows(3, 8)
    scores = Scorer(architecture, architecture.flatten(weights), cvar_alpha).scores(
        candidates, context, mask
    )
    for row, candidate in np.argwhere(mask):
        worst = np.sort(_by_hand(weights, (9, 5), candidates[row, candidate], context[row]))
        # 1,000 equal parts of every quantile value: the share is counted out.
        parts = np.repeat(worst, 1000)[: round(cvar_alpha * 4000)]
        assert scores[row, candidate] == pytest.approx(parts.mean(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("hidden", [(9,), (9, 5), (6, 11, 3)])
@pytest.mark.parametrize("cvar_alpha", [0.3, 1.0])
def test_quantiles_behind_a_score_are_those_of_the_formula(
    hidden: tuple[int, ...], cvar_alpha: float
) -> None:
    architecture, weights = _weights(hidden)
    candidates, context, mask = _rows(3, 8)
    scorer = Scorer(architecture, architecture.flatten(weights), cvar_alpha)
    scores = scorer.scores(candidates, context, mask)
    for row in range(3):
        values, judged = scorer.quantiles(candidates[row], context[row])
        expected = [_by_hand(weights, hidden, c, context[row]) for c in candidates[row]]
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(judged[mask[row]], scores[row][mask[row]], rtol=1e-4, atol=1e-5)


def test_tail_weights_take_part_of_a_quantile() -> None:
    np.testing.assert_allclose(tail_weights(4, 0.375), [2 / 3, 1 / 3, 0, 0], rtol=1e-6)


def test_choice_moves_with_the_candidates() -> None:
    architecture, weights = _weights()
    candidates, context, mask = _rows(20, 8)
    scorer = Scorer(architecture, architecture.flatten(weights), 1.0)
    order = np.random.default_rng(6).permutation(8)
    choice = scorer.choose(candidates, context, mask)
    moved = scorer.choose(candidates[:, order], context, mask[:, order])
    np.testing.assert_array_equal(order[moved], choice)
    assert mask[np.arange(20), choice].all()


def test_row_does_not_depend_on_its_batch() -> None:
    architecture, weights = _weights()
    candidates, context, mask = _rows(20, 31)
    scorer = Scorer(architecture, architecture.flatten(weights), 1.0)
    together = scorer.scores(candidates, context, mask)
    for row in range(20):
        alone = scorer.scores(
            candidates[row : row + 1], context[row : row + 1], mask[row : row + 1]
        )
        assert alone.tobytes() == together[row].tobytes()


def test_any_number_of_candidates_fits() -> None:
    architecture, weights = _weights()
    scorer = Scorer(architecture, architecture.flatten(weights), 0.5)
    for n_candidates in (2, 22, 202):
        choice = scorer.choose(*_rows(4, n_candidates))
        assert choice.shape == (4,)


def test_row_without_a_candidate_is_an_error() -> None:
    architecture, weights = _weights()
    candidates, context, mask = _rows(3, 8)
    mask[1] = False
    with pytest.raises(ValueError, match="no unmasked candidate"):
        Scorer(architecture, architecture.flatten(weights), 1.0).choose(candidates, context, mask)


def test_rows_of_another_width_are_an_error() -> None:
    architecture, weights = _weights()
    candidates, context, mask = _rows(3, 8)
    scorer = Scorer(architecture, architecture.flatten(weights), 1.0)
    with pytest.raises(ValueError, match=r"expected \(B, C, 7\)"):
        scorer.choose(candidates[:, :, :6], context, mask)
    with pytest.raises(ValueError, match=r"expected \(B, C, 7\)"):
        scorer.choose(candidates, context[:2], mask)


def test_taus_are_no_weights() -> None:
    architecture, weights = _weights()
    network = CandidateNetwork(architecture, weights)
    np.testing.assert_allclose(network.taus, [0.125, 0.375, 0.625, 0.875])
    assert set(network.weights()) == set(network.state_dict()) == set(weights)


def test_flat_gradient_holds_every_gradient() -> None:
    architecture, weights = _weights()
    network = CandidateNetwork(architecture, weights)
    candidates, context, _ = _rows(3, 8)
    for _ in range(2):  # twice: a backward must add to the vector, not replace its views
        network(torch.from_numpy(candidates), torch.from_numpy(context)).sum().backward()
    views = architecture.views(network.flat_gradient.numpy())
    for name, parameter in network.named_parameters():
        np.testing.assert_array_equal(views[name], parameter.grad.numpy())
    np.testing.assert_allclose(views["head.bias"], 2 * 3 * 8)


def test_initial_weights_come_from_the_generator_alone() -> None:
    architecture = Architecture(N_FEATURES, N_CONTEXT, (9, 5), 4)
    first, second, other = (
        architecture.flatten(initial_weights(architecture, np.random.default_rng(seed)))
        for seed in (1, 1, 2)
    )
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("head.bias"), "tensors"),
        (lambda w: w.update({"head.bias": np.zeros(5, np.float32)}), r"expected \(4,\)"),
        (lambda w: w.update({"head.bias": np.zeros(4)}), "float64, expected float32"),
        (lambda w: w.update({"head.bias": np.full(4, np.nan, np.float32)}), "not finite"),
    ],
)
def test_wrong_weights_are_refused(change, message: str) -> None:
    architecture, weights = _weights()
    change(weights)
    with pytest.raises(CheckpointError, match=message):
        CandidateNetwork(architecture, weights)
