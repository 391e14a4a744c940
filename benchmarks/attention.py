"""Would attention over machines decide better? `python benchmarks/attention.py [--json]`.

The teacher's data on configs/base.yaml (decisions of the rule, the alternatives of each played out
on the same future, docs/learning.md) with all candidates of every decision kept. To the gains three
networks are fitted: the one we have, which scores a candidate by itself and the zone's features;
the same whose context also holds a summary of all candidates, pooled by attention (Lee et al. 2019,
arXiv 1810.00825, PMA); and one layer of self-attention between candidates before the scoring
(Vaswani et al. 2017, arXiv 1706.03762). Episodes are split in three: to fit on, to stop by, to
judge by. The figures are of the last: the share of the gains' weighted square that is explained,
what a decision gains by the gated choice, and how often that departs from the rule. One thread, 20
CPU minutes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from measuring import parser, print_figures
from numpy.typing import NDArray
from torch import nn

from marl_sched.agents.prior import Prior
from marl_sched.config import Experiment, load_config
from marl_sched.config.streams import named_stream
from marl_sched.distillation.branching import Branching
from marl_sched.distillation.fit import load_weights_of, split_by_episode
from marl_sched.distillation.play import make_rule, prices_of
from marl_sched.distillation.samples import Samples
from marl_sched.distillation.value import fit_value, play_plainly
from marl_sched.observation import Layout, Observation

CONFIGS = Path(__file__).parent.parent / "configs"
HIDDEN, HEADS = 64, 4
EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY, PATIENCE = 30, 1024, 2e-3, 0.1, 4

Int = NDArray[np.int64]


@dataclass(frozen=True)
class WholeSamples:
    """Samples with all candidates of every decision.

    Attributes:
        samples: S of them.
        candidates: (S, C, F + 3).
        mask: (S, C), True where a candidate may be picked.
        picked: (S, 1 + K), which were tried; -1 where there were fewer.
    """

    samples: Samples
    candidates: NDArray[np.float32]
    mask: NDArray[np.bool_]
    picked: Int


class WholeBranching(Branching):
    """Branching that keeps what the decisions saw, in the order of the samples."""

    seen: list[tuple[NDArray[np.float32], NDArray[np.bool_], Int]]

    def _pick(
        self, observation: Observation, choices: Int, scores: NDArray[np.float64] | None
    ) -> Int:
        picked = super()._pick(observation, choices, scores)
        rows = picked[:, 1] >= 0
        if rows.any():
            self.seen.append((observation.candidates[rows], observation.mask[rows], picked[rows]))
        return picked


def collect(experiment: Experiment, n_samples: int, seed: int) -> WholeSamples:
    """Play the rule and its alternatives on train episodes."""
    settings = experiment.teacher
    layout = Layout(tuple(experiment.resources))
    prior = Prior(layout, experiment.agent.prior_weights)
    rule = make_rule(prior)
    prices = prices_of(experiment)
    draws = named_stream(seed, "attention", "episodes")
    plain = play_plainly(
        experiment, rule, prices, draws.integers(2**31, size=settings.value_episodes).tolist()
    )
    value, _ = fit_value(experiment, plain, named_stream(seed, "attention", "value"))
    branching = WholeBranching(
        experiment, prior, rule, value, prices, named_stream(seed, "attention", "branches")
    )
    branching.seen = []
    parts: list[Samples] = []
    while sum(map(len, parts)) < n_samples:
        parts += branching.play(draws.integers(2**31, size=settings.groups).tolist())
    candidates, mask, picked = zip(*branching.seen, strict=True)
    return WholeSamples(
        Samples.together(parts),
        np.concatenate(candidates),
        np.concatenate(mask),
        np.concatenate(picked),
    )


class Alone(nn.Module):
    """Scores a candidate by itself and the context."""

    def __init__(self, n_features: int, n_context: int) -> None:
        """Take F + 3 features of a candidate and K of the context."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_features + n_context, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )

    def forward(
        self, candidates: torch.Tensor, context: torch.Tensor, _mask: torch.Tensor
    ) -> torch.Tensor:
        """Return (B, C) scores of candidates (B, C, F + 3) in contexts (B, K)."""
        scores: torch.Tensor = self.body(_joined(candidates, context))[:, :, 0]
        return scores


class Pooled(nn.Module):
    """The same; the context asks all candidates for a summary first."""

    def __init__(self, n_features: int, n_context: int) -> None:
        """Take F + 3 features of a candidate and K of the context."""
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(n_features, HIDDEN), nn.ReLU())
        self.ask = nn.Linear(n_context, HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
        self.alone = Alone(n_features, n_context + HIDDEN)

    def forward(
        self, candidates: torch.Tensor, context: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return (B, C) scores of candidates (B, C, F + 3) in contexts (B, K)."""
        keys = self.embed(candidates)
        query = self.ask(context)[:, None]
        summary, _ = self.attention(query, keys, keys, key_padding_mask=~mask, need_weights=False)
        scores: torch.Tensor = self.alone(
            candidates, torch.cat([context, summary[:, 0]], dim=1), mask
        )
        return scores


class Between(nn.Module):
    """Candidates look at one another, in one layer, before each is scored."""

    def __init__(self, n_features: int, n_context: int) -> None:
        """Take F + 3 features of a candidate and K of the context."""
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(n_features + n_context, HIDDEN), nn.ReLU())
        self.attention = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
        self.rest = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(
        self, candidates: torch.Tensor, context: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return (B, C) scores of candidates (B, C, F + 3) in contexts (B, K)."""
        x = self.embed(_joined(candidates, context))
        seen, _ = self.attention(x, x, x, key_padding_mask=~mask, need_weights=False)
        scores: torch.Tensor = self.rest(x + seen)[:, :, 0]
        return scores


def _joined(candidates: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    shared = context[:, None].expand(-1, candidates.shape[1], -1)
    return torch.cat([candidates, shared], dim=2)


class Fitting:
    """Fits networks to the gains and judges them, all on the same three parts of the episodes."""

    def __init__(self, whole: WholeSamples, experiment: Experiment, seed: int) -> None:
        """Split the episodes: a part of `teacher.held_out` to stop by, as much to judge by."""
        samples, settings = whole.samples, experiment.teacher
        self._margin, clip = settings.gain_margin, settings.gain_clip
        draws = named_stream(seed, "attention", "split")
        rest, self._judged = split_by_episode(samples, settings.held_out, draws)
        fitted, stops = split_by_episode(samples.take(rest), settings.held_out, draws)
        self._fitted, self._stops = rest[fitted], rest[stops]
        self._candidates = torch.from_numpy(whole.candidates)
        self._mask = torch.from_numpy(whole.mask)
        self._context = torch.from_numpy(samples.context)
        self._picked = torch.from_numpy(whole.picked.clip(min=0))
        self._true = samples.gains
        self._gains = torch.from_numpy(samples.gains.clip(-clip, clip).astype(np.float32))
        weights = torch.from_numpy(load_weights_of(samples, clip).astype(np.float32))
        self._weights = weights[:, None] * torch.from_numpy(samples.is_tried)
        self._is_tried = samples.is_tried

    def promised(self, network: nn.Module, rows: Int) -> torch.Tensor:
        """Return (B, K), what a network takes the tried candidates to gain."""
        scores = network(self._candidates[rows], self._context[rows], self._mask[rows])
        tried = scores.gather(1, self._picked[rows])
        return tried[:, 1:] - tried[:, :1]

    def loss(self, network: nn.Module, rows: Int) -> torch.Tensor:
        """Return the mean weighted squared error."""
        error = self.promised(network, rows) - self._gains[rows]
        total: torch.Tensor = (self._weights[rows] * error.square()).sum() / len(rows)
        return total

    def fit(self, network: nn.Module, seed: int) -> None:
        """Fit in place; the averaged weights of the best pass are kept."""
        draws = named_stream(seed, "attention", "fit")
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        averaged = torch.optim.swa_utils.AveragedModel(
            network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995)
        )
        n_batches = len(self._fitted) // BATCH
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * n_batches)
        best, kept, since = np.inf, averaged.module.state_dict(), 0
        for _ in range(EPOCHS):
            order = draws.permutation(self._fitted)
            for start in range(0, n_batches * BATCH, BATCH):
                optimizer.zero_grad()
                self.loss(network, order[start : start + BATCH]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                averaged.update_parameters(network)
            score = self.mean_loss(averaged.module, self._stops)
            since += 1
            if score < best:
                best, since = score, 0
                kept = {name: one.clone() for name, one in averaged.module.state_dict().items()}
            if since >= PATIENCE:
                break
        network.load_state_dict(kept)

    def mean_loss(self, network: nn.Module, rows: Int) -> float:
        """Return the loss over many rows."""
        with torch.no_grad():
            parts = np.array_split(rows, 1 + len(rows) // 2048)
            return sum(float(self.loss(network, part)) * len(part) for part in parts) / len(rows)

    def judge(self, network: nn.Module) -> dict[str, float]:
        """Return the figures on episodes that nothing was fitted to or chosen by."""
        rows = self._judged
        nothing = float((self._weights * self._gains.square())[rows].sum()) / len(rows)
        with torch.no_grad():
            parts = np.array_split(rows, 1 + len(rows) // 2048)
            promised = np.concatenate([self.promised(network, part).numpy() for part in parts])
        promised = np.where(self._is_tried[rows], promised, -np.inf)
        best = promised.argmax(axis=1)
        at = np.arange(len(rows))
        departs = promised[at, best] > self._margin
        return {
            "explained": 1 - self.mean_loss(network, rows) / nothing,
            "gain": float(np.where(departs, self._true[rows][at, best], 0.0).mean()),
            "departs": float(departs.mean()),
        }


def main() -> None:
    """Print means and standard deviations over the fits."""
    arguments = parser(__doc__)
    arguments.add_argument("--samples", type=int, default=40_000, help="decisions to play out")
    arguments.add_argument("--fits", type=int, default=5, help="fits of every network")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    experiment = load_config(CONFIGS / "base.yaml")
    weights = json.loads((CONFIGS / "tuned" / "base.json").read_text())["weights"]
    agent = experiment.agent.model_copy(update={"prior_weights": weights})
    experiment = experiment.model_copy(update={"agent": agent})
    whole = collect(experiment, given.samples, seed=1)
    n_features, n_context = whole.candidates.shape[2], whole.samples.context.shape[1]
    fitted: dict[str, list[dict[str, float]]] = {}
    for seed in range(1, given.fits + 1):
        fitting = Fitting(whole, experiment, seed)
        for kind in (Alone, Pooled, Between):
            torch.manual_seed(seed)
            network = kind(n_features, n_context)
            fitting.fit(network, seed)
            fitted.setdefault(kind.__name__.lower(), []).append(fitting.judge(network))
    figures: dict[str, Any] = {"decisions": len(whole.samples)}
    for name, many in fitted.items():
        for measure in many[0]:
            values = [one[measure] for one in many]
            figures[f"{name} {measure}"] = {"mean": mean(values), "sd": stdev(values)}
        if name != "alone":
            gains = [a["gain"] - b["gain"] for a, b in zip(many, fitted["alone"], strict=True)]
            figures[f"{name} gain beyond alone"] = {"mean": mean(gains), "sd": stdev(gains)}
    print_figures(figures, given.json)


if __name__ == "__main__":
    main()
