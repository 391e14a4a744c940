import numpy as np
import pytest
from zone_double import experiment_of

from federation.weights import WeightSpec, pack, select, shared_names, unpack
from zones.worker import first_weights

WEIGHTS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([7.0], dtype=np.float32),
    "scalar": np.array(8.0, dtype=np.float32),
}


def test_unpack_undoes_pack() -> None:
    spec = WeightSpec.of(WEIGHTS)
    packed = pack(WEIGHTS, spec)
    assert packed.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    unpacked = unpack(packed, spec)
    assert list(unpacked) == ["b", "a", "scalar"]
    for name, tensor in WEIGHTS.items():
        np.testing.assert_array_equal(unpacked[name], tensor)


def test_unpacked_weights_do_not_share_memory_with_the_message() -> None:
    packed = np.zeros(8, np.float32)
    unpack(packed, WeightSpec.of(WEIGHTS))["b"][:] = 1
    assert not packed.any()


def test_position_is_named_by_its_tensor() -> None:
    spec = WeightSpec.of(WEIGHTS)
    assert [spec.name_at(index) for index in (0, 5, 6, 7)] == ["b", "b", "a", "scalar"]
    with pytest.raises(IndexError):
        spec.name_at(8)


def test_packed_array_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(7,\), expected \(8,\)"):
        unpack(np.zeros(7, np.float32), WeightSpec.of(WEIGHTS))


def test_nothing_is_packed_when_nothing_is_shared() -> None:
    spec = WeightSpec.of(select(WEIGHTS, ()))
    assert pack(WEIGHTS, spec).shape == (0,)
    assert unpack(np.zeros(0, np.float32), spec) == {}


def test_all_tensors_of_the_network_are_shared_by_default() -> None:
    weights = first_weights(experiment_of())
    assert shared_names(weights, experiment_of()) == tuple(weights)


def test_personal_head_stays_in_its_zone() -> None:
    experiment = experiment_of("agent.personal_head=true")
    weights = first_weights(experiment)
    stays = set(weights) - set(shared_names(weights, experiment))
    assert stays == {"head.weight", "head.bias"}


def test_without_a_strategy_all_tensors_stay() -> None:
    experiment = experiment_of("federation.strategy=none")
    assert shared_names(first_weights(experiment), experiment) == ()
