"""Play a window: advance replicas to their next decisions, carry them out, close the episode."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.kernels.digest import close_window, read_digest, write_digest
from marl_sched.cluster.kernels.events import close_episode, handle_event, next_event_us
from marl_sched.cluster.kernels.messages import (
    receive_notice,
    receive_offload,
    write_notices,
    write_offloads,
)
from marl_sched.cluster.kernels.placement import MASKED, decide, write_facts
from marl_sched.cluster.kernels.queue import find_head, retry_all
from marl_sched.cluster.model import (
    FACT_DURATION_S,
    FACT_LATE,
    FACT_VIOLATED,
    FACT_WAIT_S,
    IN_TRANSIT,
    WAITING,
    State,
)
from marl_sched.kernel_cache import inner, kernel


@inner
def advance(s: State, e: int, until_us: int) -> bool:
    """Play a replica until a decision is needed (True) or the time is `until_us` (False)."""
    while True:
        at_us = next_event_us(s, e)
        if at_us <= s.zone[e].now_us and s.zone[e].now_us < until_us:
            handle_event(s, e)
        elif find_head(s, e):
            return True
        elif at_us >= until_us:
            s.zone[e].now_us = until_us
            return False
        else:
            s.zone[e].now_us = at_us


@kernel
def advance_rows(s: State, rows: NDArray[np.int64], until_us: int) -> tuple[int, int]:
    """Advance the replicas in rows (B,); move those that need a decision to the front.

    Returns:
        How many need a decision, and how many instances have died with their machines.
    """
    kept = 0
    deaths = 0
    for at in range(len(rows)):
        e = rows[at]
        if advance(s, e, until_us):
            rows[kept] = e
            kept += 1
        deaths += s.zone[e].void_size
    return kept, deaths


@kernel
def decide_rows(
    s: State,
    rows: NDArray[np.int64],
    actions: NDArray[np.int64],
    facts: NDArray[Any],
    outcomes: NDArray[np.int64],
) -> bool:
    """Carry out one action (B,) per replica of rows (B,); facts (B, F) and outcomes (B,) are set.

    Returns:
        Whether no action was masked.
    """
    is_fine = True
    for at in range(len(rows)):
        outcomes[at] = decide(s, rows[at], actions[at], facts[at])
        is_fine = is_fine and outcomes[at] != MASKED
    return is_fine


@kernel
def open_window(s: State) -> None:
    """Retry everything that was set aside, in all replicas."""
    for e in range(len(s.zone)):
        retry_all(s, e)


@kernel
def end_window(s: State, moments: NDArray[Any]) -> None:
    """Close the window in all replicas; moments (E, R, 3) are set."""
    for e in range(len(s.zone)):
        close_window(s, e, moments[e])


@kernel
def collect_offloads(s: State, out: NDArray[Any]) -> None:
    """Write all replicas' offloads to out (K, ...)."""
    at = 0
    for e in range(len(s.zone)):
        at = write_offloads(s, e, out, at)


@kernel
def collect_notices(s: State, out: NDArray[Any]) -> None:
    """Write all replicas' finish notices to out (K, ...)."""
    at = 0
    for e in range(len(s.zone)):
        at = write_notices(s, e, out, at)


@kernel
def collect_digests(s: State, out: NDArray[Any]) -> None:
    """Write all replicas' digests to out (E, D)."""
    for e in range(len(s.zone)):
        write_digest(s, e, out[e])


@kernel
def deliver_offloads(s: State, messages: NDArray[Any]) -> None:
    """Add offloads (K, ...) in the order given."""
    for at in range(len(messages)):
        receive_offload(s, messages[at])


@kernel
def deliver_notices(s: State, messages: NDArray[Any]) -> None:
    """Apply finish notices (K, ...) in the order given."""
    for at in range(len(messages)):
        receive_notice(s, messages[at])


@kernel
def deliver_digest(s: State, peer: int, digests: NDArray[Any]) -> None:
    """Take over one peer's digests (E, D)."""
    for e in range(len(s.zone)):
        read_digest(s, e, peer, digests[e])


@kernel
def finish_episode(s: State) -> None:
    """Score what has not finished, in all replicas."""
    for e in range(len(s.zone)):
        close_episode(s, e)


@kernel
def count_unplaced(s: State) -> int:
    """Return how many instances of peers wait here or are on their way, over all replicas."""
    count = 0
    for e in range(len(s.zone)):
        for row in range(s.zone[e].n_instances):
            status = s.instance[e, row].status
            if s.instance[e, row].via_zone >= 0 and status in (WAITING, IN_TRANSIT):
                count += 1
    return count


@kernel
def write_unplaced(s: State, replicas: NDArray[np.int64], facts: NDArray[Any]) -> None:
    """Write replicas (K,) and facts (K, F) of the peers' instances that were never placed here."""
    at = 0
    for e in range(len(s.zone)):
        for row in range(s.zone[e].n_instances):
            status = s.instance[e, row].status
            if s.instance[e, row].via_zone < 0 or status not in (WAITING, IN_TRANSIT):
                continue
            replicas[at] = e
            s.instance[e, row].start_us = s.zone[e].now_us
            s.instance[e, row].finish_us = s.zone[e].now_us
            write_facts(s, e, row, facts[at])
            facts[at, FACT_DURATION_S] = 0.0
            facts[at, FACT_VIOLATED] = 1.0
            waited_us = s.zone[e].now_us - s.instance[e, row].ready_us
            facts[at, FACT_WAIT_S] = waited_us * 1e-6
            task = s.instance[e, row].task
            facts[at, FACT_LATE] = 1.0 if waited_us > s.task[e, task].latest_wait_us else 0.0
            at += 1
