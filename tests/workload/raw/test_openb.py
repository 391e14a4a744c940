from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from raw_traces import convert_sources, convert_tables, damaged, damaged_bytes, survives

from marl_sched.errors import TraceError

POD = {
    "name": "openb-pod-0000",
    "cpu_milli": "12000",
    "memory_mib": "16384",
    "num_gpu": "1",
    "gpu_milli": "1000",
    "gpu_spec": "",
    "qos": "LS",
    "pod_phase": "Succeeded",
    "creation_time": "10000000",
    "deletion_time": "10000700",
    "scheduled_time": "10000100",
}
LATER = {"name": "openb-pod-0001", "creation_time": "10000050", "deletion_time": "11000000"}
HEADER = ",".join(POD)
NODES = """sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,32000,262144,0,
openb-node-0001,96000,393216,8,G2
openb-node-0002,104000,524288,2,T4
openb-node-0003,96000,393216,8,G2
"""
PODS = "openb_pod_list_default.csv"
NODE_LIST = "openb_node_list_all_node.csv"


def pods(*rows: dict[str, str]) -> str:
    """A pod list: each row says what differs from POD."""
    return "\n".join([HEADER, *(",".join((POD | row).values()) for row in rows)]) + "\n"


def test_pod_becomes_job_of_one_instance():
    outcome = convert_tables("openb", {PODS: pods({"num_gpu": "4"}, LATER)})
    table = outcome.table
    assert table.resources == ("cpu_milli", "memory_mib", "gpu_milli")
    assert table.job_arrival_us.tolist() == [10_000_000_000_000, 10_000_050_000_000]
    assert table.request.tolist() == [[12000, 16384, 4000], [12000, 16384, 1000]]
    assert table.duration_s[0].tolist() == [600.0] * 4  # from scheduling to deletion
    assert table.n_instances.tolist() == [1, 1]
    assert table.use[0].tolist() == [[12000] * 2, [16384] * 2, [4000] * 2]
    assert outcome.account.facts["wait_s"]["p99"] == 100.0  # the other waited 50 s


def test_share_of_a_gpu_is_an_amount():
    outcome = convert_tables("openb", {PODS: pods({"gpu_milli": "460"}, LATER)})
    assert outcome.table.request[0, 2] == 460
    assert outcome.of("pods").found["gpu-share"] == 1


def test_quality_of_service_is_the_priority():
    rows = [
        {"name": f"pod-{i}", "qos": qos, "creation_time": str(10_000_000 + i)}
        for i, qos in enumerate(("LS", "BE", "Burstable", "Guaranteed", "LSX"))
    ]
    outcome = convert_tables("openb", {PODS: pods(*rows)})
    assert outcome.table.priority.tolist() == [2, 0, 1, 2, 0]
    assert outcome.of("pods").found["qos-unknown"] == 1


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("never-scheduled", {"scheduled_time": "", "pod_phase": "Pending"}),
        ("missing-value", {"memory_mib": ""}),
        ("missing-value", {"qos": ""}),
        ("bad-value", {"cpu_milli": "twelve"}),
        ("bad-value", {"memory_mib": "-1"}),
        ("bad-value", {"deletion_time": "1e300"}),
        ("bad-value", {"gpu_milli": "1001"}),
        ("duplicate", {"name": LATER["name"]}),
        ("deletion-before-scheduling", {"deletion_time": "10000099"}),
        ("scheduling-before-creation", {"scheduled_time": "9999999"}),
        ("gpu-amount-unclear", {"num_gpu": "0"}),
        ("gpu-amount-unclear", {"num_gpu": "2", "gpu_milli": "500"}),
        ("gpu-amount-unclear", {"gpu_milli": "0"}),
        ("before-record", {"creation_time": "9939999"}),
        ("cpu-zero", {"cpu_milli": "0"}),
    ],
)
def test_row_goes_under_its_rule(rule, change):
    account = convert_tables("openb", {PODS: pods(LATER, change)}).of("pods")
    assert account.dropped == {rule: 1}
    assert (account.rows_read, account.rows_kept) == (2, 1)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("memory-zero", {"memory_mib": "0"}),
        ("lifetime-zero", {"deletion_time": POD["scheduled_time"]}),
        ("phase-running", {"pod_phase": "Running"}),
        ("phase-failed", {"pod_phase": "Failed"}),
        ("phase-unknown", {"pod_phase": "Unknown"}),
        ("qos-unknown", {"qos": "LSX"}),
        ("gpu-type-constraint", {"gpu_spec": "V100M16|V100M32"}),
        ("gpu-share", {"gpu_milli": "320"}),
        ("cut-off-at-end", {"pod_phase": "Running", "deletion_time": "11000000"}),
    ],
)
def test_row_is_kept_and_counted_and_goes_if_asked(rule, change):
    files = {PODS: pods(LATER, change)}
    account = convert_tables("openb", files).of("pods")
    assert (account.found[rule], account.rows_kept) == (1, 2)
    account = convert_tables("openb", files, f"{rule}=drop-row").of("pods")
    assert account.dropped == {rule: 1}


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("before-record", {"creation_time": "0"}),
        ("cpu-zero", {"cpu_milli": "0"}),
        ("scheduling-before-creation", {"scheduled_time": "9999999"}),
    ],
)
def test_row_is_kept_if_asked(rule, change):
    outcome = convert_tables("openb", {PODS: pods(LATER, change)}, f"{rule}=keep")
    assert outcome.of("pods").rows_kept == 2
    assert outcome.table.request[:, 0].min() >= 1


def test_zones_are_gpu_models():
    outcome = convert_tables("openb", {NODE_LIST: NODES})
    assert outcome.tasks is None
    assert {
        name: sum(group["count"] for group in zone) for name, zone in outcome.zones.items()
    } == {
        "model_G2": 2,
        "model_none": 1,
        "model_T4": 1,
    }
    assert outcome.zones["model_T4"][0]["capacity"] == {
        "cpu_milli": 104_000,
        "memory_mib": 524_288,
        "gpu_milli": 2000,
    }
    assert outcome.zones["model_none"][0]["capacity"]["gpu_milli"] == 0
    assert outcome.of("nodes").found["no-failure-domain"] == 4


def test_zones_are_one_if_asked():
    outcome = convert_tables("openb", {NODE_LIST: NODES}, "no-failure-domain=one-zone")
    assert {name: len(groups) for name, groups in outcome.zones.items()} == {"all": 3}


def test_reference_is_the_largest_of_the_given_nodes():
    outcome = convert_tables("openb", {NODE_LIST: NODES, PODS: pods({})})
    assert outcome.table.reference.tolist() == [104_000, 524_288, 8000]
    alone = convert_tables("openb", {PODS: pods({})})
    assert alone.table.reference.tolist() == [128_000, 1_048_576, 8000]


@pytest.mark.parametrize(
    ("rule", "node"),
    [
        ("missing-value", "openb-node-0009,,1,0,"),
        ("bad-value", "openb-node-0009,0,1,0,"),
        ("bad-value", "openb-node-0009,1,1,-1,"),
        ("duplicate", "openb-node-0000,1,1,0,"),
    ],
)
def test_node_goes_under_its_rule(rule, node):
    account = convert_tables("openb", {NODE_LIST: NODES + node + "\n"}).of("nodes")
    assert account.dropped == {rule: 1}


def test_odd_model_makes_a_zone_name():
    node = "openb-node-0009,8000,1024,1,A100 (80 GB)\nopenb-node-0010,8000,1024,1,\n"
    zones = convert_tables("openb", {NODE_LIST: NODES + node}).zones
    assert {"model_A100__80_GB_", "model_unknown"} < set(zones)


def test_several_pod_lists_are_refused():
    files = {PODS: pods({}), "openb_pod_list_cpu050.csv": pods({})}
    with pytest.raises(TraceError, match="2 lists of pods"):
        convert_tables("openb", files)


def test_list_without_times_is_refused():
    with pytest.raises(TraceError, match="no column scheduled_time"):
        convert_tables("openb", {PODS: HEADER.replace(",scheduled_time", "") + "\n"})


def test_list_without_usable_row_is_refused():
    with pytest.raises(TraceError, match="none of 1 rows is usable"):
        convert_tables("openb", {PODS: pods({"cpu_milli": ""})})


PLAIN = pods(*({"name": f"p{i}", "creation_time": f"{10**7 + i}"} for i in range(6)))


@settings(max_examples=60, deadline=None)
@given(damaged(PLAIN, first_row=1), damaged(NODES, first_row=1))
def test_damaged_rows_are_counted(pod_list, node_list):
    survives("openb", {PODS: pod_list, NODE_LIST: node_list}, has_header=True)


@settings(max_examples=60, deadline=None)
@given(damaged_bytes(PLAIN))
def test_damaged_bytes_are_counted(pod_list):
    survives("openb", {PODS: pod_list}, has_header=True)


def test_published_lists_convert_to_their_known_figures(public_traces: Path):
    outcome = convert_sources("openb", [str(public_traces / "alibaba-v2023-openb")])
    account = outcome.of("pods")
    assert (account.rows_read, account.rows_kept) == (8152, 7228)
    assert account.dropped == {"never-scheduled": 897, "before-record": 27}
    assert account.found["phase-running"] == 5193
    assert account.found["phase-failed"] == 1870
    assert account.found["memory-zero"] == account.found["lifetime-zero"] == 1
    assert account.found["gpu-share"] == 3078  # 37.8%
    assert account.found["cut-off-at-end"] == 34
    assert outcome.account.facts["wait_s"] == {"p50": 2.0, "p90": 106.0, "p99": 874.0}
    assert outcome.table.job_arrival_us[0] >= 9_940_000_000_000
    assert np.median(outcome.table.duration_s[:, 0]) == pytest.approx(610.0)
    assert outcome.of("nodes").rows_kept == 1523
    groups = [group for zone in outcome.zones.values() for group in zone]
    total = {
        name: sum(group["count"] * group["capacity"][name] for group in groups)
        for name in ("cpu_milli", "memory_mib", "gpu_milli")
    }
    assert total["cpu_milli"] == 125_514_000
    assert total["memory_mib"] / 2**20 == pytest.approx(583.7, abs=0.05)  # TiB
    assert total["gpu_milli"] == 6_212_000
    assert len(outcome.zones) == 8
    without = sum(group["count"] for group in outcome.zones["model_none"])
    assert without == 310
