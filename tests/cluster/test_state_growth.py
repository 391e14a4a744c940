from pathlib import Path
from weakref import ref

import numpy as np

from marl_sched.cluster.exchange import LocalExchange
from marl_sched.cluster.state import grow_arrays
from marl_sched.config import load_config
from marl_sched.envs.zone_env import ZoneEnv

BASE = Path(__file__).parents[2] / "configs" / "base.yaml"
ZONE = (
    "zones=[{name: alone, machines: [{count: 3, "
    "capacity: {cpu_milli: 64000, memory_mib: 131072}}]}]"
)


def test_room_for_more_instances_keeps_what_is_there_and_frees_the_arrays_before() -> None:
    experiment = load_config(BASE, (ZONE, "episode={horizon_s: 60.0, drain_s: 60.0}"))
    env = ZoneEnv(experiment, "alone", LocalExchange(["alone"]), n_replicas=2)
    env.begin("train", [0, 1])
    arrays = env.simulator.state._asdict()
    before = {name: array.copy() for name, array in arrays.items()}
    old = ref(arrays["instance"])
    env.clear()
    incoming = np.array([1000, 3])

    grow_arrays(arrays, incoming)

    assert old() is None
    assert arrays["instance"].shape[1] >= (arrays["zone"]["n_instances"] + incoming).max()
    assert arrays["task"].shape[1] >= (arrays["zone"]["n_tasks"] + incoming).max()
    grown = {name for name in arrays if arrays[name].shape != before[name].shape}
    assert {"instance", "instance_use", "task", "request", "running", "sent"} <= grown
    for name, array in arrays.items():
        kept = array[:, : before[name].shape[1]] if name in grown else array
        assert (kept == before[name]).all(), name
    n_old = before["instance"].shape[1]
    assert not arrays["instance"][:, n_old:]["work_us"].any()
