import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_traces import STRANGE, convert_sources, convert_tables, converted_or_refused

from marl_sched.errors import TraceError

FILE = "packing_trace_zone_a_v1.sqlite"
DAY_US = 86_400_000_000
REFERENCE = {
    "cpu_milli": 80_000,
    "memory_mib": 100_000,
    "disk_mib": 1000,
    "ssd_mib": 2000,
    "network_mbps": 40_000,
}
TYPES = [
    # id, vmTypeId, machineId, core, memory, hdd, ssd, nic
    (0, 1, 10, 0.5, 0.25, None, 0.1, 0.01),
    (1, 1, 20, 0.25, 0.125, 0.1, 0.2, 0.02),
    (2, 2, 20, 0.0125, 0.01, 0.0, 0.0, 0.0),
    (3, 3, 10, 1.0, 1.0, 1.0, 1.0, 1.0),
]
"""Types 1 and 2 are offered on machine type 20, which most VMs fit on; 3 is not."""
VMS = [
    # vmId, tenantId, vmTypeId, priority, starttime, endtime
    (0, 0, 1, 0, 0.5, 1.5),
    (1, 0, 2, 1, 1.0, 1.25),
]

Rows = Iterable[tuple[object, ...]]


def database(vms: Rows = VMS, types: Rows = TYPES) -> bytes:
    """The trace's database, as the bytes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "CREATE TABLE vm (vmId INTEGER, tenantId INTEGER, vmTypeId INTEGER, "
                "priority INTEGER, starttime REAL, endtime REAL)"
            )
            connection.execute(
                "CREATE TABLE vmType (id INTEGER, vmTypeId INTEGER, machineId INTEGER, "
                "core REAL, memory REAL, hdd REAL, ssd REAL, nic REAL)"
            )
            connection.executemany("INSERT INTO vm VALUES (?, ?, ?, ?, ?, ?)", vms)
            connection.executemany("INSERT INTO vmType VALUES (?, ?, ?, ?, ?, ?, ?, ?)", types)
            connection.commit()
        return path.read_bytes()


def convert_vms(vms: Rows = VMS, *turned: str, types: Rows = TYPES):
    content = database(vms, types)
    return convert_tables("azure-packing-2020", {FILE: content}, *turned, reference=REFERENCE)


def test_vm_becomes_job_of_one_instance():
    outcome = convert_vms()
    table = outcome.table
    assert table.resources == tuple(REFERENCE)
    assert table.reference.tolist() == list(REFERENCE.values())
    assert table.job_arrival_us.tolist() == [DAY_US // 2, DAY_US]
    assert table.priority.tolist() == [1, 0]
    assert table.n_instances.tolist() == [1, 1]
    assert table.request.tolist() == [[20_000, 12_500, 100, 400, 800], [1000, 1000, 0, 0, 0]]
    assert table.duration_s[:, 0].tolist() == [86_400.0, 21_600.0]
    assert outcome.account.facts["machine_type"] == "20"
    assert outcome.of("vmType").dropped == {"type-of-other-machine": 2}
    assert outcome.of("vm").found["use-unknown"] == 2


def test_machine_type_is_the_one_that_most_vms_fit_on():
    vms = [(i, 0, 3, 0, 0.0, 1.0) for i in range(5)]
    assert convert_vms([*VMS, *vms]).account.facts["machine_type"] == "10"
    too_large = [(4, 4, 30, 2.0, 0.1, 0, 0, 0), (5, 1, 30, 0.1, 0.1, 0, 0, 0)]
    outcome = convert_vms([*VMS, *[(9, 0, 4, 0, 0.0, 1.0)] * 5], types=[*TYPES, *too_large])
    assert outcome.account.facts["machine_type"] == "20"


def test_further_resources_are_left_out_if_asked():
    outcome = convert_vms(VMS, "further-resources=leave-out")
    assert outcome.table.resources == ("cpu_milli", "memory_mib")
    assert outcome.of("vm").found["further-resources"] == 1


@pytest.mark.parametrize(
    ("rule", "vm"),
    [
        ("missing-value", (9, 0, 1, None, 0.5, 1.0)),
        ("missing-value", (9, 0, 1, 0, None, 1.0)),
        ("missing-value", (9, 0, None, 0, 0.5, 1.0)),
        ("bad-value", (9, 0, 1, 2, 0.5, 1.0)),
        ("bad-value", (9, 0, 1, 0.5, 0.5, 1.0)),
        ("bad-value", (9, 0, 1, 0, "soon", 1.0)),
        ("bad-value", (9, 0, 1, 0, 0.5, float("inf"))),
        ("bad-value", (9, 0, 1, 0, 0.5, b"\xff\x00")),
        ("unknown-type", (9, 0, 77, 0, 0.5, 1.0)),
        ("other-machine", (9, 0, 3, 0, 0.5, 1.0)),
        ("end-before-start", (9, 0, 1, 0, 1.5, 1.0)),
        ("end-before-start", (9, 0, 1, 0, -1.5, -1.0)),
        ("before-trace", (9, 0, 1, 0, -1.5, 1.0)),
        ("no-end", (9, 0, 1, 0, 1.5, None)),
    ],
)
def test_vm_goes_under_its_rule(rule, vm):
    account = convert_vms([*VMS, vm]).of("vm")
    assert account.dropped == {rule: 1}
    assert (account.rows_read, account.rows_kept) == (3, 2)


@pytest.mark.parametrize(
    ("rule", "vm"),
    [
        ("missing-share", (9, 0, 5, 0, 0.5, 1.0)),
        ("cpu-zero", (9, 0, 6, 0, 0.5, 1.0)),
        ("lifetime-zero", (9, 0, 1, 0, 0.5, 0.5)),
    ],
)
def test_vm_is_kept_and_counted_and_goes_if_asked(rule, vm):
    types = [*TYPES, (5, 5, 20, 0.1, 0.1, None, 0, 0), (6, 6, 20, 0.0, 0.1, 0, 0, 0)]
    account = convert_vms([*VMS, vm], types=types).of("vm")
    assert (account.found[rule], account.rows_kept) == (1, 3)
    account = convert_vms([*VMS, vm], f"{rule}=drop-row", types=types).of("vm")
    assert account.dropped == {rule: 1}


def test_low_priority_is_counted_and_goes_if_asked():
    assert convert_vms().of("vm").found["low-priority"] == 1
    assert convert_vms(VMS, "low-priority=drop-row").table.priority.tolist() == [1]


def test_share_above_one_goes_unless_asked():
    types = [*TYPES, (7, 7, 20, 0.1, 1.5, 0, 0, 0)]
    vms = [*VMS, (9, 0, 7, 0, 0.5, 1.0)]
    assert convert_vms(vms, types=types).of("vm").dropped == {"share-above-one": 1}
    table = convert_vms(vms, "share-above-one=keep", types=types).table
    assert table.request[:, 1].max() == 150_000


def test_vm_from_before_the_trace_has_the_rest_of_its_life_if_asked():
    table = convert_vms([(9, 0, 1, 0, -7.0, 2.0)], "before-trace=at-start").table
    assert table.job_arrival_us.tolist() == [0]
    assert table.duration_s[0, 0] == 2 * 86_400


def test_vm_without_an_end_ends_at_90_days_if_asked():
    table = convert_vms([(9, 0, 1, 0, 10.0, None)], "no-end=at-90-days").table
    assert table.duration_s[0, 0] == 80 * 86_400


def test_type_of_another_machine_is_used_if_asked():
    outcome = convert_vms([*VMS, (9, 0, 3, 0, 2.0, 3.0)], "other-machine=any-machine")
    assert outcome.table.request[-1].tolist() == list(REFERENCE.values())
    assert outcome.of("vm").found["other-machine"] == 1
    assert outcome.of("vmType").rows_kept == 3


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("type-bad-value", (9, None, 20, 0.1, 0.1, 0, 0, 0)),
        ("type-bad-value", (9, 8, None, 0.1, 0.1, 0, 0, 0)),
        ("type-bad-value", (9, 8, 20, None, 0.1, 0, 0, 0)),
        ("type-bad-value", (9, 8, 20, -0.1, 0.1, 0, 0, 0)),
        ("type-bad-value", (9, 8, 20, 0.1, "much", 0, 0, 0)),
        ("type-duplicate", (9, 2, 20, 0.5, 0.5, 0, 0, 0)),
    ],
)
def test_vm_type_goes_under_its_rule(rule, row):
    outcome = convert_vms(VMS, types=[*TYPES, row])
    assert outcome.of("vmType").dropped == {"type-of-other-machine": 2, rule: 1}
    assert outcome.table.request[1, 0] == 1000


def test_text_numbers_are_read():
    table = convert_vms([(9, 0, "1", "0", " 0.5", "1.5")]).table
    assert table.job_arrival_us.tolist() == [DAY_US // 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no SQLite database"),
        (b"vmId,vmTypeId\n1,2\n", "no SQLite database"),
        (b"PK\x03\x04", "zip archive"),
        (database()[:3000], "not a whole SQLite database"),
        (database(vms=[]), "none of 0 rows"),
        (database(types=[]), "vmType in .*none of 0 rows"),
        (database().replace(b"vmTypeId", b"vmTypeXx"), "no column vmTypeId"),
    ],
)
def test_file_is_refused(content, message):
    with pytest.raises(TraceError, match=message):
        convert_tables("azure-packing-2020", {FILE: content})


def test_database_without_the_table_is_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER)")
        connection.commit()
    with pytest.raises(TraceError, match="no table vmType"):
        convert_sources("azure-packing-2020", [str(path)])


def test_two_databases_are_refused():
    with pytest.raises(TraceError, match="expected one database"):
        convert_tables("azure-packing-2020", {FILE: database(), "b.sqlite": database()})


def test_file_is_not_touched(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(database())
    path.chmod(0o400)
    convert_sources("azure-packing-2020", [str(path)])
    assert sorted(file.name for file in tmp_path.iterdir()) == [FILE]
    assert path.read_bytes() == database()


VALUES = st.one_of(
    st.sampled_from(STRANGE),
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=4),
    st.sampled_from([0, 1, 2, 10, 20, 0.5]),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(*[VALUES] * 6), max_size=6), st.lists(st.tuples(*[VALUES] * 8), max_size=4)
)
def test_strange_values_are_counted(vms, types):
    content = database([*VMS, *vms], [*types, *TYPES])
    outcome = converted_or_refused("azure-packing-2020", {FILE: content})
    assert outcome is not None
    assert outcome.of("vm").rows_read == 2 + len(vms)
    assert outcome.of("vmType").rows_read == 4 + len(types)


WHOLE = database([(i, 0, 1, 0, i / 100, i / 100 + 1) for i in range(400)])


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_database_is_converted_or_refused(data):
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 10))):
        place = data.draw(st.integers(16, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(len(content) // 2, len(content)))
    converted_or_refused("azure-packing-2020", {FILE: bytes(content[:cut])})
