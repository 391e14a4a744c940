"""Decisions carry their own (replica, number) as features: returns are computed independently."""

from io import BytesIO

import numpy as np
import pytest

from marl_sched.agents.replay import Replay, ReplayShape, Transitions
from marl_sched.errors import CheckpointError, ConfigError
from marl_sched.observation import Observation, Settlements

N_STEP, DISCOUNT = 3, 0.5
MIB_PER_SLOT = (4 * 3 + 8 + 1 + 8) / 2**20


def _replay(n_replicas: int = 2, n_slots: int = 64, n_candidates: int = 0) -> Replay:
    n_bytes = n_candidates * (4 + 1) + (8 if n_candidates else 0)  # feature, mask; action
    per_slot = MIB_PER_SLOT + n_bytes / 2**20
    mib = n_replicas * n_slots * per_slot * 1.0001
    replay = Replay(ReplayShape(n_replicas, 3, n_candidates, 1, mib), N_STEP, DISCOUNT)
    assert replay.n_slots == n_slots
    return replay


def _observe(replicas: list[int], numbers: list[int], starts: list[int]) -> Observation:
    """Candidates' feature: 10 x candidate; instance: the replica; zone: its number in its life."""
    life = np.array(numbers) + np.array(starts)
    n_rows = len(replicas)
    return Observation(
        replica=np.array(replicas),
        decision=np.array(numbers),
        instance=np.array(replicas, np.float32)[:, None],
        candidates=np.tile(np.float32([[0], [10], [20]]), (n_rows, 1, 1)),
        zone=life.astype(np.float32)[:, None],
        mask=np.stack([life % 2 == 0, life % 2 == 1, life >= 0], axis=1),
        n_machines=2,
    )


def _reward(replica: int, life: int) -> float:
    return float((replica + 1) * (life % 7) - 3)


def _settle(replay: Replay, replica: int, decision: int, reward: float) -> None:
    replay.settle(Settlements(np.array([replica]), np.array([decision]), np.array([reward])))


def _play(replay: Replay, lengths: list[int], starts: list[int], is_settled: bool = True) -> None:
    """Play one episode of its own length in every replica."""
    replay.start_episode()
    for number in range(max(lengths)):
        replicas = [r for r, length in enumerate(lengths) if number < length]
        begun = [starts[r] for r in replicas]
        observation = _observe(replicas, [number] * len(replicas), begun)
        replay.record(observation, np.full(len(replicas), number % 3))
    for replica, length in enumerate(lengths):
        for number in range(length if is_settled else 0):
            _settle(replay, replica, number, _reward(replica, starts[replica] + number))


def _drawn(batch: Transitions) -> list[tuple[int, int, int]]:
    """Return (replica, decision, bootstrap decision) of every row."""
    assert (batch.rows[:, 1] == batch.next_rows[:, 1]).all()
    columns = (batch.rows[:, 1], batch.rows[:, 2], batch.next_rows[:, 2])
    return list(zip(*(column.astype(int).tolist() for column in columns), strict=True))


def test_transitions_are_n_step_within_their_episode_and_bootstrap_from_its_end() -> None:
    replay = _replay()
    _play(replay, [9, 6], [0, 0])
    replay.end_episode()
    _play(replay, [5, 1], [9, 6])
    replay.end_episode()
    batch = replay.sample(2000, np.random.default_rng(1))
    assert batch is not None
    ends = {0: [8, 13], 1: [5, 6]}
    expected = {(r, t) for r, count in ((0, 14), (1, 7)) for t in range(count) if t not in ends[r]}
    drawn = _drawn(batch)
    assert {(r, t) for r, t, _ in drawn} == expected
    for row, (replica, start, bootstrap) in enumerate(drawn):
        last = min(end for end in ends[replica] if end >= start)
        assert bootstrap == min(start + N_STEP, last)
        steps = range(bootstrap - start)
        value = sum(DISCOUNT**k * _reward(replica, start + k) for k in steps)
        assert batch.returns[row] == pytest.approx(value)
        # An episode's end is a truncation: the bootstrap never has weight 0.
        assert batch.discounts[row] == pytest.approx(DISCOUNT ** len(steps))


def test_chosen_candidate_is_stored() -> None:
    replay = _replay(1)
    _play(replay, [9], [0])
    batch = replay.sample(200, np.random.default_rng(1))
    assert batch is not None
    np.testing.assert_array_equal(batch.rows[:, 0], batch.rows[:, 2] % 3 * 10)
    np.testing.assert_array_equal(batch.next_rows[:, 0], batch.next_rows[:, 2] % 3 * 10)
    assert batch.next_candidates is None


def test_running_episode_waits_for_full_steps() -> None:
    replay = _replay(1)
    _play(replay, [9], [0])
    batch = replay.sample(500, np.random.default_rng(1))
    assert batch is not None
    assert {(t, end) for _, t, end in _drawn(batch)} == {(t, t + N_STEP) for t in range(6)}


def test_unsettled_decision_blocks_every_return_over_it() -> None:
    replay = _replay(1)
    _play(replay, [9], [0], is_settled=False)
    for number in (0, 1, 2, 4, 5, 6, 7, 8):
        _settle(replay, 0, number, 1.0)
    replay.end_episode()
    batch = replay.sample(500, np.random.default_rng(1))
    assert batch is not None
    assert {t for _, t, _ in _drawn(batch)} == {0, 4, 5, 6, 7}
    assert replay.n_unsettled == 1


def test_rewards_of_one_decision_add_up_also_within_one_call() -> None:
    replay = _replay(1)
    _play(replay, [2], [0], is_settled=False)
    settlements = Settlements(np.array([0, 0, 0]), np.array([0, 0, 1]), np.array([1.0, 2.0, 9.0]))
    replay.settle(settlements)
    _settle(replay, 0, 0, 4.0)
    replay.end_episode()
    batch = replay.sample(10, np.random.default_rng(1))
    assert batch is not None
    assert set(batch.returns.tolist()) == {7.0}


def test_nothing_settled_gives_no_batch() -> None:
    replay = _replay(1)
    assert replay.sample(8, np.random.default_rng(1)) is None
    _play(replay, [9], [0], is_settled=False)
    assert replay.sample(8, np.random.default_rng(1)) is None


def test_full_ring_overwrites_the_oldest_and_counts_late_rewards() -> None:
    replay = _replay(1, n_slots=10)
    _play(replay, [26], [0])
    replay.end_episode()
    assert replay.n_dropped == 16
    batch = replay.sample(500, np.random.default_rng(1))
    assert batch is not None
    drawn = _drawn(batch)
    assert {t for _, t, _ in drawn} == set(range(16, 25))
    for row, (replica, start, bootstrap) in enumerate(drawn):
        value = sum(DISCOUNT**k * _reward(replica, start + k) for k in range(bootstrap - start))
        assert batch.returns[row] == pytest.approx(value)


def test_reused_slots_forget_their_last_decision() -> None:
    replay = _replay(1, n_slots=10)
    _play(replay, [10], [0])
    replay.end_episode()
    _play(replay, [10], [10], is_settled=False)
    assert replay.sample(8, np.random.default_rng(1)) is None
    for number in range(4):
        _settle(replay, 0, number, 1.0)
    batch = replay.sample(100, np.random.default_rng(1))
    assert batch is not None
    assert {t for _, t, _ in _drawn(batch)} == {10, 11}
    np.testing.assert_allclose(batch.returns, 1.75)


def test_sampling_is_uniform_over_replicas_of_unequal_length() -> None:
    replay = _replay()
    _play(replay, [5, 50], [0, 0])
    replay.end_episode()
    batch = replay.sample(20_000, np.random.default_rng(1))
    assert batch is not None
    counts = np.bincount(batch.rows[:, 1].astype(int)) / 20_000
    np.testing.assert_allclose(counts, [4 / 53, 49 / 53], atol=0.01)


def test_all_candidates_of_the_bootstrap_are_stored_on_demand() -> None:
    replay = _replay(2, n_candidates=3)
    _play(replay, [9, 6], [0, 0])
    batch = replay.sample(100, np.random.default_rng(1))
    assert batch is not None
    assert batch.next_candidates is not None
    assert batch.next_mask is not None
    np.testing.assert_array_equal(batch.next_candidates[:, :, 0], [[0, 10, 20]] * 100)
    is_even = batch.next_rows[:, 2] % 2 == 0
    np.testing.assert_array_equal(batch.next_mask[:, 0], is_even)
    np.testing.assert_array_equal(batch.next_mask[:, 1], ~is_even)


def test_saved_replay_goes_on_bit_by_bit() -> None:
    replay, copy = _replay(2, n_candidates=3), _replay(2, n_candidates=3)
    _play(replay, [9, 6], [0, 0])
    file = BytesIO()
    np.savez(file, allow_pickle=False, **replay.state())
    file.seek(0)
    copy.load_state(np.load(file, allow_pickle=False))
    for log in (replay, copy):
        log.end_episode()
        _play(log, [70, 3], [9, 6])
        log.end_episode()
    batches = [log.sample(100, np.random.default_rng(1)) for log in (replay, copy)]
    for name in vars(batches[0]):
        first, second = (getattr(batch, name) for batch in batches)
        np.testing.assert_array_equal(first, second)
    for name, array in replay.state().items():
        assert array.tobytes() == copy.state()[name].tobytes()


def test_state_of_another_shape_is_refused() -> None:
    replay = _replay(2)
    _play(replay, [9, 6], [0, 0])
    with pytest.raises(CheckpointError, match=r"rows is float32 \(2, 9, 3\), expected"):
        _replay(3).load_state(replay.state())
    state = replay.state()
    del state["last"]
    with pytest.raises(CheckpointError, match="no array last"):
        _replay(2).load_state(state)


def test_memory_too_small_for_n_steps_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"at least agent\.n_step"):
        Replay(ReplayShape(2, 3, 0, 1, 8 * MIB_PER_SLOT), N_STEP, DISCOUNT)


def test_misuse_is_an_error() -> None:
    replay = _replay(1)
    _play(replay, [4], [0])
    with pytest.raises(ValueError, match="an episode is open"):
        replay.start_episode()
    with pytest.raises(ValueError, match="order of their numbers"):
        replay.record(_observe([0], [7], [0]), np.array([0]))
    with pytest.raises(ValueError, match="was not recorded"):
        _settle(replay, 0, 4, 1.0)
