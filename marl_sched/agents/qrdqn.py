"""The QR-DQN learner of one zone (Dabney et al. 2018) on the candidate network.

Explore, record, settle, update: the caller says when; nothing here knows an environment.
Shapes: B rows, N quantiles, K settlements, F + K features of a decision (candidate, context).
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import HEAD_NAMES, Architecture, Weights
from marl_sched.agents.exploration import epsilon_at, explore, learning_rate_at
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.optimizer import FlatAdam
from marl_sched.agents.prior import Prior
from marl_sched.agents.quantile import quantile_huber_loss
from marl_sched.agents.replay import Replay, ReplayShape, Transitions
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError, RunError
from marl_sched.observation import Layout, Observation, Settlements

_logger = logging.getLogger(__name__)

_SUMS = ("loss", "q_mean", "td_error", "gradient_norm")
"""Metrics that are means over the updates since `take_metrics`."""


class QRDQNLearner:
    """Learns one zone's policy from its own decisions.

    Three networks: `online` learns and acts, `target` follows it by Polyak averaging and is
    bootstrapped from, `averaged` is its exponential moving average and is evaluated.

    Attributes:
        n_updates: Updates so far (the clock learner_step).
        epsilon: Share of random decisions now.
        scorer: What it judges candidates with.
        explored: Rows of the last observation that got a random decision.
    """

    def __init__(
        self,
        layout: Layout,
        agent: Agent,
        n_replicas: int,
        n_candidates: int,
        initial: Mapping[str, NDArray[np.float32]],
        generator: np.random.Generator,
    ) -> None:
        """Create a learner that has seen nothing.

        Args:
            layout: Layout of the observations.
            agent: Its settings.
            n_replicas: E.
            n_candidates: C, machines and peers of the zone.
            initial: First weights (`architecture.initial_weights`), equal in all zones; copied.
            generator: Source of exploration and sampling; the zone's own.
        """
        self._layout, self._agent, self._generator = layout, agent, generator
        self._n_candidates = n_candidates
        self._architecture = Architecture.of(layout, agent)
        self._prior = Prior.of(layout, agent)
        self._judged: tuple[Observation | None, Observation | None] = (None, None)
        """The last observation acted on, and the same as the network sees it."""
        self._online = CandidateNetwork(self._architecture, initial)
        self._target = CandidateNetwork(self._architecture, initial)
        self._averaged = CandidateNetwork(self._architecture, initial)
        self.scorer = self._scorer(self._online)
        self._target_scorer = self._scorer(self._target)
        self._adam = FlatAdam(self._online)
        self._replay = Replay(
            ReplayShape(
                n_replicas,
                n_features=self._architecture.n_inputs,
                n_candidates=0 if agent.target == "sarsa" else n_candidates,
                n_candidate_features=self._architecture.n_candidate_features,
                mib=agent.replay_mib,
            ),
            agent.n_step,
            agent.discount,
        )
        self.explored = np.zeros(0, np.int64)
        self.n_updates = 0
        self.proximal_mu = 0.0
        """Pull of every update to the weights loaded last (FedProx, arXiv 1812.06127, eq. 2)."""
        self._anchor = self._online.flat.clone()
        self._sums = np.zeros(1 + len(_SUMS))
        self.set_progress(0.0)

    @property
    def n_decisions(self) -> int:
        """Decisions recorded so far (the clock env_step, all replicas together)."""
        return self._replay.n_decisions

    def set_progress(self, share: float) -> None:
        """Set exploration and learning rate for the point of the run that `share` in [0, 1] is."""
        self.epsilon = epsilon_at(self._agent, share)
        self._adam.learning_rate = learning_rate_at(self._agent, share)

    def start_episode(self) -> None:
        """Begin an episode in every replica."""
        self._replay.start_episode()

    def end_episode(self) -> None:
        """End the episode in every replica, after its last settlements: a truncation."""
        self._replay.end_episode()

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) actions: the online network's best, or with `epsilon` a random one."""
        scorer, seen = self.scorer, self.scorer.extended(observation)
        self._judged = (observation, seen)
        scores = scorer.scores(seen.candidates, context_of(seen), seen.mask)
        actions = scorer.pick(scores, seen.candidates)
        rows = np.flatnonzero(self._generator.random(len(observation)) < self.epsilon)
        self.explored = rows
        if rows.size:
            # Before the first update the order of the machines means nothing without a prior.
            is_ordered = self.n_updates > 0 or self._prior is not None
            n_best = self._agent.explore_machines if is_ordered else 0
            also = scorer.prior_choices(seen.candidates[rows])
            actions[rows] = explore(
                scores[rows], observation.n_machines, n_best, self._generator, also
            )
        return actions

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Remember a batch of decisions; it is copied."""
        acted_on, seen = self._judged
        self._judged = (None, None)
        if seen is None or acted_on is not observation:
            seen = self.scorer.extended(observation)
        self._replay.record(seen, actions)

    def settle(self, settlements: Settlements) -> None:
        """Add rewards that became known to the decisions they belong to."""
        self._replay.settle(settlements)

    def maybe_update(self) -> int:
        """Run the updates that are due by the zone's own decision count; return how many ran.

        None run while too little is settled; they are caught up later.

        Raises:
            RunError: Loss or gradient is not finite.
        """
        past_warmup = self.n_decisions - self._agent.warmup_decisions
        n_due = max(past_warmup, 0) // self._agent.decisions_per_update
        n_before = self.n_updates
        while self.n_updates < n_due:
            batch = self._replay.sample(self._agent.batch_size, self._generator)
            if batch is None:
                break
            self._update(batch)
        return self.n_updates - n_before

    def _update(self, batch: Transitions) -> None:
        agent, online = self._agent, self._online
        with torch.no_grad():
            following = self._target.values(torch.from_numpy(self._next_rows(batch)))  # (B, N)
            returns, discounts = torch.from_numpy(batch.returns), torch.from_numpy(batch.discounts)
            target = following.mul_(discounts[:, None]).add_(returns[:, None])  # (B, N)
        values = online.values(torch.from_numpy(batch.rows))  # (B, N)
        loss = quantile_huber_loss(values, target, online.taus, agent.kappa)
        online.flat_gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.proximal_mu > 0:
            with torch.no_grad():
                pull = self._online.flat - self._anchor
                online.flat_gradient.add_(pull, alpha=self.proximal_mu)
        norm = float(online.flat_gradient.norm())
        if not np.isfinite((loss.item(), norm)).all():
            raise RunError(
                f"update {self.n_updates}: loss {loss.item()}, gradient norm {norm}, expected "
                "finite numbers; lower agent.learning_rate"
            )
        if norm > agent.max_gradient_norm:
            online.flat_gradient.mul_(agent.max_gradient_norm / norm)
        self._adam.step()
        self._follow()
        with torch.no_grad():
            means = values.mean(dim=1)
            td_error = float((target.mean(dim=1) - means).abs().mean())
            self._sums += (1, loss.item(), means.mean().item(), td_error, norm)

    def _follow(self) -> None:
        """Count the update; let target and averaged network follow the online one."""
        self.n_updates += 1
        self._target.flat.lerp_(self._online.flat, self._agent.polyak)
        # A plain mean at first, so that the untrained weights do not linger.
        rate = max(self._agent.ema, 1 / self.n_updates)
        self._averaged.flat.lerp_(self._online.flat, rate)
        self.scorer.refresh()

    def _next_rows(self, batch: Transitions) -> NDArray[np.float32]:
        """Return (B, F + K) features of what is bootstrapped from: there, with its action."""
        if self._agent.target == "sarsa":
            return batch.next_rows
        assert batch.next_candidates is not None
        assert batch.next_mask is not None
        scorer = self.scorer
        if self._agent.target == "max":
            scorer = self._target_scorer
            scorer.refresh()
        n_features = self._architecture.n_candidate_features
        context = batch.next_rows[:, n_features:]
        best = scorer.choose(batch.next_candidates, context, batch.next_mask)
        chosen = batch.next_candidates[np.arange(len(best)), best]
        return np.concatenate([chosen, context], axis=1)

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics since the last call and begin anew; means are 0 without an update."""
        n_updates = self._sums[0]
        means = self._sums[1:] / max(n_updates, 1)
        self._sums[:] = 0
        return dict(zip(_SUMS, means.tolist(), strict=True)) | {
            "updates": float(n_updates),
            "epsilon": self.epsilon,
            "learning_rate": self._adam.learning_rate,
            "rewards_dropped": float(self._replay.n_dropped),
            "decisions_unsettled": float(self._replay.n_unsettled),
        }

    def weights(self) -> Weights:
        """Return a copy of the online network's parameters by name."""
        return self._online.weights()

    def averaged_weights(self) -> Weights:
        """Return a copy of the averaged network's parameters by name: what is evaluated."""
        return self._averaged.weights()

    def policy(self) -> LearnedPolicy:
        """Return the averaged network as a greedy policy."""
        return LearnedPolicy.of(self._layout, self._agent, self.averaged_weights())

    def load_weights(
        self,
        weights: Mapping[str, NDArray[np.float32]],
        averaged: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        """Go on from weights that were averaged over zones.

        The target is not replaced: it follows the new online network by Polyak averaging, so that
        bootstrapped values do not jump. The averaged network is replaced by `averaged`, the zones'
        mean of theirs, if given; else it stays and follows too. A learner without updates takes
        the new weights in all three. Adam's moments stay.

        Args:
            weights: All parameters; or, with `personal_head`, all but the head, which stays.
            averaged: The same for the averaged network.

        Raises:
            CheckpointError: Other names, shapes or dtypes, or not finite.
        """
        is_new = self.n_updates == 0
        full = self._completed(weights, self._online)
        # Checked before anything changes: a refused load leaves the learner as it was.
        new_average = self._completed(weights if is_new else averaged, self._averaged)
        self._online.load_weights(full)
        self._anchor = self._online.flat.clone()
        if is_new:
            self._target.load_weights(full)
        self._averaged.load_weights(new_average)
        self.scorer.refresh()

    def _completed(
        self, weights: Mapping[str, NDArray[np.float32]] | None, network: CandidateNetwork
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return checked weights, what is missing of a personal head taken from the network."""
        if weights is None:
            return network.weights()
        if self._agent.personal_head and not set(weights) & set(HEAD_NAMES):
            own = network.weights()
            weights = dict(weights) | {name: own[name] for name in HEAD_NAMES}
        self._architecture.check(weights)
        return weights

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that learning goes on from, as arrays of plain dtypes (np.savez)."""
        return {name: array.copy() for name, array in self.views().items()}

    def views(self) -> dict[str, NDArray[Any]]:
        """Return the same without copying it: for writing it down at once."""
        own = self._arrays()
        own["n_updates"] = np.array(self.n_updates, np.int64)
        own["generator"] = np.array(json.dumps(self._generator.bit_generator.state))
        return own | {f"replay.{name}": array for name, array in self._replay.views().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned, bit by bit; `set_progress` is the caller's.

        Raises:
            CheckpointError: The state is of another architecture, replay or generator.
        """
        arrays = self._arrays()
        for name in (*arrays, "n_updates", "generator"):
            if name not in state:
                raise CheckpointError(f"learner state: no array {name}")
        for name, array in arrays.items():
            if state[name].shape != array.shape or state[name].dtype != array.dtype:
                raise CheckpointError(
                    f"learner state: {name} is {state[name].dtype} {state[name].shape}, expected "
                    f"{array.dtype} {array.shape}"
                )
        try:
            self._generator.bit_generator.state = json.loads(str(state["generator"][()]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"learner state: generator: {error}") from None
        prefix = "replay."
        replay = {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
        self._load_replay(replay)
        for name, array in arrays.items():
            array[...] = state[name]
        self.n_updates = int(state["n_updates"])
        self.scorer.refresh()

    def _load_replay(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a replay; one of other candidates is left out, and the warm-up begins anew."""
        n_other = self._replay.n_other_candidates(state)
        if not n_other or "count" not in state:
            self._replay.load_state(state)
            return
        n_decisions = int(state["count"].sum()) + int(state.get("before", 0))
        # No update is due before as many decisions are in the new log as at the first start.
        self._replay.begin_after(max(0, n_decisions - self._agent.warmup_decisions))
        _logger.warning(
            "the replay begins empty: it was saved with %d candidates a decision, now there are %d",
            n_other,
            self._n_candidates,
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of every array that learning changes, the replay's aside."""
        networks = {"online": self._online, "target": self._target, "averaged": self._averaged}
        views: dict[str, NDArray[Any]] = {n: net.flat.numpy() for n, net in networks.items()}
        return views | self._adam.arrays() | {"metric_sums": self._sums}

    def _scorer(self, network: CandidateNetwork) -> Scorer:
        agent = self._agent
        flat = network.flat.numpy()
        margin = agent.training_gate_margin
        return Scorer(self._architecture, flat, agent.cvar_alpha, self._prior, margin)
