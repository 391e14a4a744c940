"""Play replicas by a rule and price what they do, without leaving the kernels.

Shapes: E replicas, B rows, C candidates (M machines, then peers), F candidate features, K context
features, P parameters, R resources.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.kernels.prior import extend_candidates
from marl_sched.agents.kernels.scoring import score_candidates
from marl_sched.cluster.kernels.accounts import SLOWDOWN_CAP
from marl_sched.cluster.kernels.machines import deviation, zone_moments
from marl_sched.cluster.kernels.placement import FAILED_CREATION, SENT, STARTED, decide
from marl_sched.cluster.kernels.window import advance
from marl_sched.cluster.model import (
    FACT_COST,
    FACT_DURATION_S,
    FACT_INSTANCE,
    FACT_LATE,
    FACT_REFERENCE_S,
    FACT_VIOLATED,
    FACT_VIOLATED_BY_WORK,
    FACT_WAIT_S,
    FACT_WORK_S,
    State,
)
from marl_sched.envs.kernels.observe import observe_rows
from marl_sched.envs.kernels.play import best_weighted
from marl_sched.kernel_cache import inner, kernel

Float = NDArray[np.float32]

PRICE_LATE, PRICE_VIOLATED, PRICE_SLOWDOWN, PRICE_COST, PRICE_OFFLOAD, PRICE_SECOND = range(6)
N_PRICES = 6
"""Of an instance (a second: of its completion, at most SLOWDOWN_CAP reference durations); behind
them, per resource, of one unit of imbalance at a window's end; then, per resource, the mean price
of one unit for the reference duration."""


class Rule(NamedTuple):
    """A weighted score and the network that corrects it; without parameters the score alone."""

    weights: NDArray[np.float64]  # (2, F) of machines and of peers
    fit: NDArray[np.int64]  # (2, R) columns of the free shares, before and after
    worst_gap: float
    margin: float  # gain that a deviation from the score's choice must promise
    flat: Float  # (P,), empty without a network
    hidden: NDArray[np.int64]
    head_weight: Float  # (last hidden, 1)
    head_bias: Float  # (1, 1)
    tail: Float  # (1,), a 1


class Buffers(NamedTuple):
    """Room for one decision of a zone, overwritten by each."""

    instance: Float  # (1, I)
    candidates: Float  # (1, C, F)
    zone: Float  # (1, Z)
    mask: NDArray[np.bool_]  # (1, C)
    context: Float  # (1, K)
    extended: Float  # (1, C, F + 3)
    choices: NDArray[np.int64]  # (1,)
    scores: Float  # (1, C)
    facts: NDArray[np.float64]


@kernel
def play_rows(  # noqa: PLR0913  # a kernel takes arrays, not objects
    s: State,
    until_us: int,
    rows: NDArray[np.int64],
    stops: NDArray[np.int64],
    firsts: NDArray[np.int64],
    rule: Rule,
    buffers: Buffers,
    prices: NDArray[np.float64],
    costs: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Play replicas to the window's end by a rule, or to a decision that is left open.

    Args:
        s: The zone, its windows open.
        until_us: End of the window.
        rows: (B,) replicas.
        stops: (B,) decision of this call, from 0, that is not taken any more; -1: none.
        firsts: (B,) action of the first decision; -1: the rule's.
        rule: What plays.
        buffers: Room.
        prices: (N_PRICES + 2 R,).
        costs: (E,), what was done is added; the imbalance only where the window's end is reached.
        counts: (B,), decisions taken, written.
    """
    at_row = np.zeros(1, np.int64)
    n_machines = s.machine.shape[1]
    for at in range(len(rows)):
        e = rows[at]
        at_row[0] = e
        n_taken = 0
        is_open = advance(s, e, until_us)
        while is_open and n_taken != stops[at]:
            if n_taken == 0 and firsts[at] >= 0:
                action = firsts[at]
            else:
                observe_rows(
                    s, at_row, buffers.instance, buffers.candidates, buffers.zone, buffers.mask
                )
                if len(rule.flat) > 0:
                    action = choose(rule, buffers, n_machines)
                else:
                    action = best_weighted(
                        buffers.candidates[0], buffers.mask[0], n_machines, rule.weights, rule.fit
                    )
            outcome = decide(s, e, action, buffers.facts)
            costs[e] += price(s, e, outcome, buffers.facts, prices)
            n_taken += 1
            is_open = advance(s, e, until_us)
        counts[at] = n_taken
        if not is_open:
            s.zone[e].void_size = 0
            for r in range(s.capacity.shape[1]):
                if prices[N_PRICES + r] > 0.0:
                    count, total, squares = zone_moments(s, e, r)
                    costs[e] += prices[N_PRICES + r] * deviation(count, total, squares)


@kernel
def choose(rule: Rule, buffers: Buffers, n_machines: int) -> int:
    """Return the gated choice for the observation in the buffers; the scores are left there."""
    n_instance = buffers.instance.shape[1]
    buffers.context[:, :n_instance] = buffers.instance
    buffers.context[:, n_instance:] = buffers.zone
    extend_candidates(
        buffers.candidates,
        buffers.mask,
        n_machines,
        rule.weights,
        rule.fit,
        rule.worst_gap,
        buffers.extended,
        buffers.choices,
    )
    score_candidates(
        rule.flat,
        rule.hidden,
        rule.head_weight,
        rule.head_bias,
        rule.tail,
        np.float32(0.0),
        0,
        buffers.extended,
        buffers.context,
        buffers.mask,
        buffers.scores,
    )
    scores = buffers.scores[0]
    choice = buffers.choices[0]
    best = choice
    for at in range(len(scores)):
        if buffers.mask[0, at] and scores[at] > scores[best]:
            best = at
    return best if scores[best] - scores[choice] > rule.margin else choice


@inner
def price(
    s: State, e: int, outcome: int, facts: NDArray[Any], prices: NDArray[np.float64]
) -> float:
    """Return what a decision cost: a start all that is known of its instance from then on.

    What its own work made unavoidable is taken off (the violation, the slowdown, the cost on a
    machine of mean price), as in the reward: an instance that starts later, beyond what is played,
    must not look cheaper for it.
    """
    if outcome == SENT:
        return prices[PRICE_OFFLOAD]
    if outcome == FAILED_CREATION:
        return prices[PRICE_VIOLATED]
    if outcome != STARTED:
        return 0.0
    reference_s = facts[FACT_REFERENCE_S]
    work = facts[FACT_WORK_S] / reference_s
    slowdown = (facts[FACT_WAIT_S] + facts[FACT_DURATION_S]) / reference_s
    task = s.instance[e, int(facts[FACT_INSTANCE])].task
    n_resources = s.request.shape[2]
    fair = 0.0
    for r in range(n_resources):
        fair = max(fair, s.request[e, task, r] * prices[N_PRICES + n_resources + r])
    return (
        prices[PRICE_LATE] * facts[FACT_LATE]
        + prices[PRICE_VIOLATED] * (facts[FACT_VIOLATED] - facts[FACT_VIOLATED_BY_WORK])
        + (prices[PRICE_SLOWDOWN] + prices[PRICE_SECOND] * reference_s)
        * (min(slowdown, SLOWDOWN_CAP) - min(work, SLOWDOWN_CAP))
        + prices[PRICE_COST] * (facts[FACT_COST] - fair * work)
    )


@kernel
def write_owed(
    s: State, rows: NDArray[np.int64], prices: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Write what replicas (B,) owe for the time that open instances have waited, to out (B,).

    Open are those that wait, and those on their way, which count up to their arrival.
    """
    for at in range(len(rows)):
        e = rows[at]
        now_us = s.zone[e].now_us
        out[at] = 0.0
        for place in range(s.zone[e].active_size):
            out[at] += _owed_of_group(s, e, s.active[e, place].row, now_us, prices)
        for place in range(s.zone[e].aside_size):
            out[at] += _owed_of_group(s, e, s.aside[e, place], now_us, prices)
        for place in range(s.zone[e].transit_size):
            row = s.transit[e, place].row
            out[at] += _owed(s, e, row, s.instance[e, row].finish_us, prices)
        for place in range(s.zone[e].sent_size):
            row = s.sent[e, place]
            out[at] += _owed(s, e, row, max(now_us, s.instance[e, row].finish_us), prices)


@inner
def _owed_of_group(s: State, e: int, group: int, now_us: int, prices: NDArray[np.float64]) -> float:
    owed = 0.0
    row = s.group[e, group].head
    for _ in range(s.group[e, group].count):
        owed += _owed(s, e, row, now_us, prices)
        row = s.instance[e, row].next
    return owed


@inner
def _owed(s: State, e: int, row: int, start_us: int, prices: NDArray[np.float64]) -> float:
    """Return what an instance costs for its wait alone if it starts at `start_us`."""
    task = s.instance[e, row].task
    wait_us = start_us - s.instance[e, row].ready_us
    work_us = s.instance[e, row].work_us
    latest_finish_us = s.task[e, task].latest_finish_us
    reference_s = s.task[e, task].reference_s
    reference_us = reference_s * 1e6
    owed = (prices[PRICE_SLOWDOWN] + prices[PRICE_SECOND] * reference_s) * (
        min((wait_us + work_us) / reference_us, SLOWDOWN_CAP)
        - min(work_us / reference_us, SLOWDOWN_CAP)
    )
    if wait_us > s.task[e, task].latest_wait_us:
        owed += prices[PRICE_LATE]
    if work_us <= latest_finish_us and wait_us + work_us > latest_finish_us:
        owed += prices[PRICE_VIOLATED]
    return owed
