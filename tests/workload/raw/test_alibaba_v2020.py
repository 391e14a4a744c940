from pathlib import Path

import pytest
from hypothesis import given, settings
from raw_traces import convert_sources, convert_tables, damaged, damaged_bytes, survives

from marl_sched.errors import TraceError

# Rows made by hand after the documentation's examples: the real tables were not at hand.
JOBS = """j1,i1,u1,Terminated,1000.0,2000.0
j2,i2,u1,Terminated,500.0,900.0
j9,i9,u2,Waiting,3000.0,
"""
TASKS = """j1,ps,1.0,Terminated,1010.0,1900.0,600.0,29.296875,,
j1,worker,2.0,Terminated,1020.0,1900.0,400.0,10,50.0,MISC
j2,tensorflow,4.0,Terminated,520.0,900.0,1200.0,117.1875,200.0,V100
"""
INSTANCES = """j1,worker,a,w1,i1,Terminated,1020.0,1100.0,m1
j1,worker,b,w2,i1,Terminated,1500.0,1900.0,m2
j2,tensorflow,c,w3,i2,Terminated,520.0,900.0,m1
"""
MACHINES = """m1,CPU,96,512,0
m2,V100,96,384,8
m3,P100,64,512,2
m4,V100,96,384,8
"""
MANY = "".join(f"j{i},w,1.0,Terminated,{i}10.0,{i}99.0,600.0,1,50.0,\n" for i in range(3, 9))
ONE = "j1,worker,1.0,Terminated,1020.0,1900.0,400.0,10,50.0,\n"


def convert(*turned, tasks=TASKS, jobs=JOBS, instances=None):
    files = {"pai_task_table.csv": tasks, "pai_job_table.csv": jobs}
    if instances is not None:
        files["pai_instance_table.csv"] = instances
    return convert_tables("alibaba-v2020", files, *turned)


def test_requests_are_per_instance_in_milli_and_mib():
    table = convert().table
    assert table.resources == ("cpu_milli", "memory_mib", "gpu_milli")
    assert table.request.tolist() == [
        [12_000, 120_000, 2000],  # j2 came first
        [6000, 30_000, 0],
        [4000, 10_240, 500],
    ]
    assert table.n_instances.tolist() == [4, 1, 2]
    assert table.use[:, :, 0].tolist() == table.request.tolist()
    assert table.reference.tolist() == [96_000, 524_288, 8000]


def test_job_arrives_when_it_is_submitted():
    outcome = convert()
    assert outcome.table.job_arrival_us.tolist() == [500_000_000, 1_000_000_000]
    assert outcome.account.facts["wait_s"]["p99"] == 20.0
    assert outcome.of("pai_job_table").dropped == {"job-without-task": 1, "job-duplicate": 0}


def test_job_without_submission_arrives_with_its_first_task():
    outcome = convert_tables("alibaba-v2020", {"pai_task_table.csv": TASKS})
    assert outcome.table.job_arrival_us.tolist() == [520_000_000, 1_010_000_000]
    assert outcome.of("pai_task_table").found["submission-unknown"] == 3
    assert outcome.account.facts["wait_s"] == {}


def test_tasks_without_instances_run_for_their_own_time():
    outcome = convert()
    assert outcome.table.duration_s[:, 0].tolist() == [380, 890, 880]
    assert outcome.of("pai_task_table").found["duration-includes-queueing"] == 3


def test_tasks_run_as_their_instances_did():
    outcome = convert(instances=INSTANCES)
    assert outcome.table.duration_s.tolist() == [[380] * 4, [890] * 4, [240, 240, 384, 400]]
    found = outcome.of("pai_task_table").found
    assert found["instances-missing"] == found["duration-includes-queueing"] == 1
    assert found["instances-differ"] == 1
    assert found["use-unknown"] == 3
    assert outcome.of("pai_instance_table").rows_kept == 3


def test_facts_are_counted():
    found = convert().of("pai_task_table").found
    assert found["gang"] == 2
    assert found["gpu-share"] == 1
    assert found["gpu-type"] == 2
    assert found["gpu-request-missing"] == 1
    assert found["times-shifted"] == 1


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("task-failed", "j1,x,1.0,Failed,1010.0,1900.0,600.0,1,,"),
        ("task-not-finished", "j1,x,1.0,Running,1010.0,,600.0,1,,"),
        ("task-not-finished", "j1,x,,Waiting,,,,,,"),
        ("missing-value", "j1,,1.0,Terminated,1010.0,1900.0,600.0,1,,"),
        ("missing-value", "j1,x,,Terminated,1010.0,1900.0,600.0,1,,"),
        ("missing-value", "j1,x,1.0,,1010.0,1900.0,600.0,1,,"),
        ("missing-value", "j1,x,1.0,Terminated,,1900.0,600.0,1,,"),
        ("missing-value", "j1,x,1.0,Terminated,1010.0,,600.0,1,,"),
        ("request-missing", "j1,x,1.0,Terminated,1010.0,1900.0,,1,,"),
        ("request-missing", "j1,x,1.0,Terminated,1010.0,1900.0,600.0,,,"),
        ("bad-value", "j1,x,0,Terminated,1010.0,1900.0,600.0,1,,"),
        ("bad-value", "j1,x,1.5,Terminated,1010.0,1900.0,600.0,1,,"),
        ("bad-value", "j1,x,1.0,Terminated,-1,1900.0,600.0,1,,"),
        ("bad-value", "j1,x,1.0,Terminated,1010.0,1900.0,0,1,,"),
        ("bad-value", "j1,x,1.0,Terminated,1010.0,1900.0,600.0,many,,"),
        ("bad-value", "j1,x,1.0,Terminated,1010.0,1900.0,600.0,1,-50,"),
        ("end-before-start", "j1,x,1.0,Terminated,1010.0,1009.0,600.0,1,,"),
        ("duplicate", "j1,ps,1.0,Terminated,1010.0,1900.0,600.0,1,,"),
    ],
)
def test_task_goes_with_its_job_or_alone(rule, row):
    account = convert(tasks=TASKS + row + "\n").of("pai_task_table")
    assert account.dropped == {rule: 1, "job-incomplete": 2}
    account = convert(f"{rule}=drop-row", tasks=TASKS + row + "\n").of("pai_task_table")
    assert account.dropped == {rule: 1}
    assert (account.rows_read, account.rows_kept) == (4, 3)


def test_task_without_job_goes_alone():
    row = ",x,1.0,Terminated,1010.0,1900.0,600.0,1,,\n"
    assert convert(tasks=TASKS + row).of("pai_task_table").dropped == {"job-missing": 1}


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("duration-zero", "j1,x,1.0,Terminated,1010.0,1010.0,600.0,1,,"),
        ("submission-unknown", "j7,x,1.0,Terminated,1010.0,1900.0,600.0,1,,"),
        ("start-before-submission", "j1,x,1.0,Terminated,999.0,1900.0,600.0,1,,"),
    ],
)
def test_task_is_kept_and_counted_and_goes_if_asked(rule, row):
    account = convert(tasks=TASKS + row + "\n").of("pai_task_table")
    assert (account.found[rule], account.rows_kept) == (1, 4)
    account = convert(f"{rule}=drop-row", tasks=TASKS + row + "\n").of("pai_task_table")
    assert account.dropped == {rule: 1}


def test_table_without_usable_row_is_refused():
    for row in ("", "\n", ",x,1.0,Terminated,1010.0,1900.0,600.0,1,,\n"):
        with pytest.raises(TraceError, match=r"none of \d rows is usable"):
            convert(tasks=row)


def test_failed_task_is_kept_if_asked():
    outcome = convert("task-failed=keep", tasks=ONE.replace("Terminated", "Failed"))
    assert outcome.table.duration_s[0, 0] == 880


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("job-missing-value", ",i,u,Terminated,1,2"),
        ("job-missing-value", "j5,i,u,Terminated,,2"),
        ("job-bad-value", "j5,i,u,Terminated,soon,2"),
        ("job-duplicate", "j1,i,u,Terminated,7,2"),
        ("job-without-task", "j5,i,u,Terminated,1,2"),
    ],
)
def test_job_goes_under_its_rule(rule, row):
    outcome = convert(jobs=JOBS.replace("j9", "j2x") + row + "\n")
    account = outcome.of("pai_job_table")
    assert account.dropped[rule] == 1 + (rule == "job-without-task")  # j2x has no task either
    assert (account.rows_read, account.rows_kept) == (4, 2)
    assert outcome.table.job_arrival_us.tolist() == [500_000_000, 1_000_000_000]


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("instance-name-missing", "j1,,a,w1,i1,Terminated,1020.0,1100.0,m1"),
        ("instance-not-terminated", "j1,worker,a,w1,i1,Failed,1020.0,1100.0,m1"),
        ("instance-not-terminated", "j1,worker,a,w1,i1,,1020.0,1100.0,m1"),
        ("instance-time-missing", "j1,worker,a,w1,i1,Terminated,1020.0,,m1"),
        ("instance-bad-value", "j1,worker,a,w1,i1,Terminated,1020.0,-7,m1"),
        ("instance-end-before-start", "j1,worker,a,w1,i1,Terminated,1020.0,1019.0,m1"),
        ("instance-task-unknown", "j1,chief,a,w1,i1,Terminated,1020.0,1100.0,m1"),
    ],
)
def test_instance_goes_under_its_rule(rule, row):
    account = convert(instances=INSTANCES + row + "\n").of("pai_instance_table")
    assert account.dropped[rule] == account.dropped.total() == 1
    assert (account.rows_read, account.rows_kept) == (4, 3)


def test_failed_instance_is_kept_if_asked():
    failed = INSTANCES.replace("Terminated", "Failed")
    account = convert("instance-not-terminated=keep", instances=failed).of("pai_instance_table")
    assert account.rows_kept == account.found["instance-not-terminated"] == 3


def test_zones_are_gpu_models():
    outcome = convert_tables("alibaba-v2020", {"pai_machine_spec.csv": MACHINES})
    assert outcome.tasks is None
    assert outcome.zones["model_V100"] == [
        {
            "count": 2,
            "capacity": {"cpu_milli": 96_000, "memory_mib": 393_216, "gpu_milli": 8000},
        }
    ]
    assert outcome.zones["model_none"][0]["capacity"]["gpu_milli"] == 0
    assert set(outcome.zones) == {"model_V100", "model_none", "model_P100"}


def test_reference_is_the_largest_of_the_given_machines():
    files = {"pai_machine_spec.csv": "m3,P100,64,512,2\n", "pai_task_table.csv": ONE}
    outcome = convert_tables("alibaba-v2020", files)
    assert outcome.table.reference.tolist() == [64_000, 524_288, 2000]


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("machine-missing-value", ",V100,96,384,8"),
        ("machine-missing-value", "m9,V100,96,384,"),
        ("machine-bad-value", "m9,V100,0,384,8"),
        ("machine-bad-value", "m9,V100,96,lots,8"),
        ("machine-duplicate", "m1,V100,96,384,8"),
    ],
)
def test_machine_goes_under_its_rule(rule, row):
    outcome = convert_tables("alibaba-v2020", {"pai_machine_spec.csv": MACHINES + row + "\n"})
    assert outcome.of("pai_machine_spec").dropped == {rule: 1}


@pytest.mark.parametrize("name", ["pai_job_table.csv", "pai_instance_table.csv"])
def test_table_that_needs_tasks_is_refused_alone(name):
    with pytest.raises(TraceError, match="expected a pai_task_table too"):
        convert_tables("alibaba-v2020", {name: JOBS})


def test_header_files_are_no_tables():
    with pytest.raises(TraceError, match="holds no table"):
        convert_tables("alibaba-v2020", {"pai_task_table.header": "job_name,task_name\n"})


@settings(max_examples=60, deadline=None)
@given(damaged(TASKS + MANY), damaged(JOBS), damaged(INSTANCES), damaged(MACHINES))
def test_damaged_rows_are_counted(tasks, jobs, instances, machines):
    survives(
        "alibaba-v2020",
        {
            "pai_task_table.csv": tasks,
            "pai_job_table.csv": jobs,
            "pai_instance_table.csv": instances,
            "pai_machine_spec.csv": machines,
        },
    )


@settings(max_examples=60, deadline=None)
@given(damaged_bytes(TASKS + MANY), damaged_bytes(JOBS))
def test_damaged_bytes_are_counted(tasks, jobs):
    survives("alibaba-v2020", {"pai_task_table.csv": tasks, "pai_job_table.csv": jobs})


def test_published_machines_convert_to_their_known_figures(public_traces: Path):
    outcome = convert_sources("alibaba-v2020", [str(public_traces / "alibaba-v2020-pai")])
    account = outcome.of("pai_machine_spec")
    assert (account.rows_read, account.rows_kept, account.dropped.total()) == (1897, 1897, 0)
    counts = {name: sum(g["count"] for g in groups) for name, groups in outcome.zones.items()}
    assert counts == {
        "model_P100": 798,
        "model_T4": 497,
        "model_MISC": 280,
        "model_V100M32": 135,
        "model_V100": 104,
        "model_none": 83,
    }
    groups = [group for zone in outcome.zones.values() for group in zone]
    total = {
        name: sum(group["count"] * group["capacity"][name] for group in groups)
        for name in ("cpu_milli", "gpu_milli")
    }
    assert total == {"cpu_milli": 156_576_000, "gpu_milli": 6_742_000}
