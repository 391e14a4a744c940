"""A fast scorer of candidates, without torch.

Shapes: B rows, C candidates, F candidate features, K context (instance + zone) features,
N quantiles, P parameters.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Float
from marl_sched.agents.kernels.scoring import context_values, gate_choices, score_candidates
from marl_sched.agents.prior import Prior
from marl_sched.observation import Observation


class Scorer:
    """Scores candidates by the mean, or the CVaR, of their quantile values, and chooses.

    For the plain mean the head's columns are averaged beforehand: one output instead of N, exact.
    The value of the context is equal for all candidates of a row and is left out then.
    """

    def __init__(
        self,
        architecture: Architecture,
        flat: Float,
        cvar_alpha: float,
        prior: Prior | None = None,
        margin: float = 0.0,
    ) -> None:
        """Score with the parameters in `flat` (P,); call `refresh` after changing them in place.

        Args:
            architecture: The network's.
            flat: (P,).
            cvar_alpha: Share of the worst returns that count.
            prior: What the network corrects.
            margin: Gain over the prior's choice that another candidate must promise.

        Raises:
            ValueError: A prior for a network without one, or none for one with it.
        """
        if architecture.has_prior != (prior is not None):
            raise ValueError(f"prior {prior}: the network's has_prior is {architecture.has_prior}")
        self._architecture = architecture
        self._flat = flat
        self._views = architecture.views(flat)
        self._hidden = np.array(architecture.hidden, np.int64)
        self._is_mean = cvar_alpha == 1.0
        self._cvar_alpha = cvar_alpha
        self._tail = tail_weights(1 if self._is_mean else architecture.n_quantiles, cvar_alpha)
        self._prior, self._margin = prior, np.float32(margin)
        self._prior_scale = np.float32(architecture.prior_scale)
        self.refresh()

    def refresh(self) -> None:
        """Fold the head again."""
        weight, bias = self._views["head.weight"], self._views["head.bias"]
        if self._is_mean:
            weight = weight.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            bias = bias.mean(keepdims=True, dtype=np.float64).astype(np.float32)
        self._head = (weight, bias[None])

    def extended(self, observation: Observation) -> Observation:
        """Return the observation with the columns that the network sees: the prior's too."""
        return observation if self._prior is None else self._prior.extend(observation)

    def scores(self, candidates: Float, context: Float, mask: NDArray[np.bool_]) -> Float:
        """Return (B, C) scores, -inf where masked.

        Args:
            candidates: (B, C, F), extended.
            context: (B, K).
            mask: (B, C), True where the candidate may be picked.

        Raises:
            ValueError: Wrong shapes, or a row without an unmasked candidate.
        """
        architecture = self._architecture
        n_rows, n_candidates, n_features = candidates.shape
        expected = (architecture.n_candidate_features, (n_rows, architecture.n_context_features))
        # The kernel does not check bounds: a wrong width would read past the rows.
        if (n_features, context.shape) != expected or mask.shape != (n_rows, n_candidates):
            raise ValueError(
                f"candidates {candidates.shape}, context {context.shape}, mask {mask.shape}: "
                f"expected (B, C, {expected[0]}), (B, {architecture.n_context_features}), (B, C)"
            )
        if not mask.any(axis=1).all():
            raise ValueError("a row has no unmasked candidate, expected at least one in each")
        context = np.ascontiguousarray(context, np.float32)
        weight, bias = self._head
        if architecture.has_prior and not self._is_mean:
            bias = bias + self._values(context)
        scores = np.empty((n_rows, n_candidates), np.float32)
        score_candidates(
            self._flat,
            self._hidden,
            weight,
            bias,
            self._tail,
            self._prior_scale,
            architecture.prior_column if architecture.has_prior else 0,
            np.ascontiguousarray(candidates, np.float32),
            context,
            np.ascontiguousarray(mask),
            scores,
        )
        return scores

    def pick(self, scores: Float, candidates: Float) -> NDArray[np.int64]:
        """Return (B,) the candidates that scores (B, C) of `candidates` (B, C, F) decide for.

        The best; with a prior only where it beats the prior's choice by the margin, else that.
        """
        if self._prior is None:
            best: NDArray[np.int64] = scores.argmax(axis=1)
            return best
        actions = np.empty(len(scores), np.int64)
        column = self._architecture.prior_column + 1
        gate_choices(scores, candidates, column, self._margin, actions)
        return actions

    def choose(
        self, candidates: Float, context: Float, mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return (B,) an unmasked candidate of every row; arguments as of `scores`."""
        return self.pick(self.scores(candidates, context, mask), candidates)

    def prior_choices(self, candidates: Float) -> NDArray[np.int64] | None:
        """Return (B,) the prior's choices among extended candidates (B, C, F), if there is one."""
        if self._prior is None:
            return None
        choices: NDArray[np.int64] = candidates[:, :, self._architecture.prior_column + 1].argmax(1)
        return choices

    def quantiles(self, candidates: Float, context: Float) -> tuple[Float, Float]:
        """Return what stands behind the scores of one row, for those who want to see it.

        Args:
            candidates: (C, F), extended.
            context: (K,).

        Returns:
            (C, N) quantile values, and (C,) their means or CVaRs. Scores are these, but for
            rounding and, with a prior, for the mean of the context's value.
        """
        architecture, views = self._architecture, self._views
        shared = np.broadcast_to(context, (len(candidates), len(context)))
        x = np.concatenate([candidates, shared], axis=1)  # (C, F + K)
        layers = ("first", *(f"hidden.{number}" for number in range(len(architecture.hidden) - 1)))
        for name in layers:
            x = np.maximum(x @ views[f"{name}.weight"] + views[f"{name}.bias"], 0.0)
        values: Float = x @ views["head.weight"] + views["head.bias"]  # (C, N)
        if architecture.has_prior:
            gap = candidates[:, architecture.prior_column, None]  # (C, 1)
            values = values + self._values(context[None]) + self._prior_scale * gap
        tail = tail_weights(architecture.n_quantiles, self._cvar_alpha)
        return values, np.sort(values, axis=1) @ tail

    def _values(self, context: Float) -> Float:
        """Return (B, N) the value of contexts (B, K)."""
        values = np.empty((len(context), self._architecture.n_quantiles), np.float32)
        value, head = (
            (self._views[f"{name}.weight"], self._views[f"{name}.bias"])
            for name in ("value", "value_head")
        )
        context_values(context, *value, *head, values)
        return values


def tail_weights(n_quantiles: int, cvar_alpha: float) -> Float:
    """Return (N,) weights of the sorted quantile values whose sum is the CVaR.

    The mean of the worst alpha share: full weight for each whole 1 / N of it, the rest in part.
    """
    in_tail = np.clip(cvar_alpha * n_quantiles - np.arange(n_quantiles), 0.0, 1.0)
    tail: Float = (in_tail / in_tail.sum()).astype(np.float32)
    return tail


def context_of(observation: Observation) -> Float:
    """Return the context every candidate of a row shares: (B, K), instance then zone."""
    return np.concatenate([observation.instance, observation.zone], axis=1)
