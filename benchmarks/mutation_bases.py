"""Small valid traces of every format, made by hand: what `trace_mutations.py` damages."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mutation_files import Base, Table

_MAPPING = """
file: {kind: text, header: true}
job: job
task: task
parents: {kind: list, column: after, separator: ";"}
times: {arrival: {column: submitted}, start: {column: started}, end: {column: ended}}
n_instances: {column: workers}
priority: {column: priority}
requests:
  cpu_milli: {column: cores, factor: 1000}
  memory_mib: {column: memory, default: 100}
use_mean: {cpu_milli: {column: used, factor: 1000}}
status: {column: state, success: [done]}
"""


def _table(file: str, columns: str, rows: Iterable[str], times: str = "", names: str = "") -> Table:
    """Return a table of comma-separated rows without a header."""
    named = tuple(columns.split())
    return Table(
        file,
        named,
        tuple(row.split(",") for row in rows),
        times=tuple(named.index(name) for name in times.split()),
        names=tuple(named.index(name) for name in names.split()),
    )


def _dag_tasks(n_jobs: int) -> Iterator[tuple[int, int, str]]:
    """Yield (job, task, name): diamonds, chains, tasks on their own, and numbers out of order."""
    kinds = (("M1", "R2_1", "R3_1", "J4_2_3"), ("M1", "R2_1"), ("task_Nz",), ("M2", "R1_2", "M3"))
    for job in range(n_jobs):
        for number, name in enumerate(kinds[job % len(kinds)]):
            yield job, number, name


def _v2018() -> Base:
    tasks, instances = [], []
    for job, number, name in _dag_tasks(8):
        start, n = 1000 + 40 * job + 20 * number, 1 + job % 3
        tasks.append(
            f"{name},{n},j_{job},1,Terminated,{start},{start + 15},{50 * n},0.{4 + job % 5}"
        )
        instances += [
            f"i{i},{name},j_{job},1,Terminated,{start},{start + 15 - i},m_{i},1,1,{20 + i},40,.1,.2"
            for i in range(n)
            if job % 4 < 3
        ]
    tasks += ["M1,2,j_90,1,Waiting,0,0,50,0.4", "M1,2,j_91,1,Failed,1100,1110,50,0.4"]
    tasks.append("R2_1,,j_92,1,Terminated,1100,1110,,")
    machines = [f"m_{i},{10 * i},{i},{i % 2},96,100,USING" for i in (0, 1, 2, 3, 0)]
    containers = [f"c_{i},m_{i % 4},0,app_{i},started,400,800,3.1" for i in range(6)]
    usage = [
        f"c_{i % 6},m_{i % 4},{3600 * (i // 6)},{20 + (7 * i) % 50},{30 + i % 5},1,2,1,.1,.1,3"
        for i in range(48)
    ]
    times = "start_time end_time"
    tables = (
        _table(
            "batch_task.csv",
            "task_name instance_num job_name task_type status start_time end_time plan_cpu "
            "plan_mem",
            tasks,
            times,
            "task_name job_name",
        ),
        _table(
            "batch_instance.csv",
            "instance_name task_name job_name task_type status start_time end_time machine_id "
            "seq_no total_seq_no cpu_avg cpu_max mem_avg mem_max",
            instances,
            times,
            "task_name job_name",
        ),
        _table(
            "machine_meta.csv",
            "machine_id time_stamp failure_domain_1 failure_domain_2 cpu_num mem_size status",
            machines,
            "time_stamp",
            "machine_id failure_domain_2",
        ),
        _table(
            "container_meta.csv",
            "container_id machine_id time_stamp app_du status cpu_request cpu_limit mem_size",
            containers,
            "time_stamp",
            "container_id machine_id",
        ),
        _table(
            "container_usage.csv",
            "container_id machine_id time_stamp cpu_util_percent mem_util_percent cpi mem_gps mpki "
            "net_in net_out disk_io_percent",
            usage,
            "time_stamp",
            "container_id",
        ),
    )
    return Base("alibaba-v2018", tables)


def _spar() -> Base:
    tasks, instances = [], []
    for job, number, name in _dag_tasks(10):
        n = 1 + job % 3
        tasks.append(f"{5 * job},j_{job},{name},{30 + number},50.0,0.{3 + job % 5},{n}")
        instances += [
            f"{5 * job},j_{job},{name},i{i},{20 + i},{10.5 + i},0.{1 + i}"
            for i in range(n)
            if job % 4
        ]
    names = "job task"
    tables = (
        _table(
            "sample_tasks.csv",
            "arrive job task duration plan_cpu plan_mem inst_num",
            tasks,
            "arrive",
            names,
        ),
        _table(
            "sample_instances.csv",
            "arrive job task instance duration cpu_avg mem_avg",
            instances,
            "arrive",
            names,
        ),
    )
    return Base("spar", tables)


def _spar_stats() -> Base:
    rows = [
        f"{5 * job},j_{job},{name},{40 + number},50.0,0.{3 + job % 5},{1 + job % 3},27.333,28.0,29,"
        "41.5,113.0,0.102,0.11,28.6"
        for job, number, name in _dag_tasks(10)
    ]
    table = _table(
        "tasks_with_instance_stats.csv",
        "arrive job task task_duration plan_cpu plan_mem inst_num dur_mean dur_p50 dur_max "
        "cpu_avg_mean cpu_avg_max mem_avg_mean mem_avg_max dur_p95",
        rows,
        "arrive",
        "job task",
    )
    return Base("spar-stats", (replace(table, header=True),))


def _v2017() -> Base:
    tasks = [
        f"{100 + 10 * job},{160 + 10 * job + task},{job},{task},{1 + job % 3},Terminated,50,0.016"
        for job in range(10)
        for task in range(1 + job % 2)
    ]
    tasks += ["100,120,80,1,1,Failed,50,0.1", "0,120,81,1,1,Terminated,50,0.1"]
    instances = [
        f"{105 + 10 * job},{125 + 10 * job + i},{job},0,{i},Terminated,1,1,0.9,0.2,0.02,0.01"
        for job in range(7)
        for i in range(1 + job % 3)
    ]
    events = [f"0,{machine},add,,64,0.6899697{machine},1" for machine in range(4)]
    events.append("9000,3,softerror,machine_fail,0,0,0")
    tables = (
        _table(
            "batch_task.csv",
            "create_timestamp modify_timestamp job_id task_id instance_num status plan_cpu "
            "plan_mem",
            tasks,
            "create_timestamp modify_timestamp",
            "job_id task_id",
        ),
        _table(
            "batch_instance.csv",
            "start_timestamp end_timestamp job_id task_id machineID status seq_no total_seq_no "
            "real_cpu_max real_cpu_avg real_mem_max real_mem_avg",
            instances,
            "start_timestamp end_timestamp",
            "job_id task_id",
        ),
        _table(
            "server_event.csv",
            "timestamp machineID event_type event_detail capacity_cpu capacity_memory "
            "capacity_disk",
            events,
            "timestamp",
            "machineID",
        ),
    )
    return Base("alibaba-v2017", tables)


def _v2020() -> Base:
    jobs = [f"j{i},i{i},u{i % 3},Terminated,{500 + 20 * i}.0,{900 + 20 * i}.0" for i in range(9)]
    tasks = [
        f"j{i},{role},{1 + i % 3}.0,Terminated,{510 + 20 * i}.0,{600 + 25 * i}.0,600.0,29.296875,"
        f"{50 * (i % 4)}.0,V100"
        for i in range(10)
        for role in ("ps", "worker")[: 1 + i % 2]
    ]
    tasks += ["j1,x,1.0,Failed,500.0,510.0,100.0,1,,", "j3,x,1.0,Running,500.0,,100.0,1,,"]
    instances = [
        f"j{i},ps,a{k},w{k},i{i},Terminated,{512 + 20 * i}.0,{560 + 20 * i + k}.0,m{k}"
        for i in range(8)
        for k in range(1 + i % 3)
    ]
    machines = ["m1,CPU,96,512,0", "m2,V100,96,384,8", "m3,P100,64,512,2", "m4,V100,96,384,8"]
    tables = (
        _table(
            "pai_job_table.csv",
            "job_name inst_id user status start_time end_time",
            jobs,
            "start_time",
            "job_name",
        ),
        _table(
            "pai_task_table.csv",
            "job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu "
            "gpu_type",
            tasks,
            "start_time end_time",
            "job_name task_name",
        ),
        _table(
            "pai_instance_table.csv",
            "job_name task_name inst_name worker_name inst_id status start_time end_time machine",
            instances,
            "start_time end_time",
            "job_name task_name",
        ),
        _table(
            "pai_machine_spec.csv",
            "machine gpu_type cap_cpu cap_mem cap_gpu",
            machines,
            names="machine gpu_type",
        ),
    )
    return Base("alibaba-v2020", tables)


def _openb() -> Base:
    pods = [
        f"pod-{i:04},{4000 + 1000 * i},{8192 * (1 + i % 2)},{i % 3},{1000 * (i % 3 > 0)},,"
        f"{('LS', 'BE', 'Burstable')[i % 3]},Succeeded,{10_000_000 + 10 * i},"
        f"{10_000_700 + 9 * i},{10_000_005 + 10 * i}"
        for i in range(12)
    ]
    pods.append("pod-0099,4000,8192,0,0,,LS,Pending,10000000,10000001,")
    nodes = ["n0,32000,262144,0,", "n1,96000,393216,8,G2", "n2,104000,524288,2,T4"]
    pods_table = _table(
        "openb_pod_list_default.csv",
        "name cpu_milli memory_mib num_gpu gpu_milli gpu_spec qos pod_phase creation_time "
        "deletion_time scheduled_time",
        pods,
        "creation_time deletion_time scheduled_time",
        "name",
    )
    nodes_table = _table(
        "openb_node_list_all_node.csv", "sn cpu_milli memory_mib gpu model", nodes, names="sn model"
    )
    return Base("openb", (replace(pods_table, header=True), replace(nodes_table, header=True)))


def _google() -> Base:
    events = []
    for i in range(12):
        start = 700_000_000 + 5_000_000 * i
        end = "".join({0: "2", 1: "3", 2: "5"}.get(i % 9, "4"))
        for after, kind in ((0, "0"), (2, "1"), (3, "8"), (60 + i, end)):
            events.append(
                f"{start + after * 1_000_000},,{i // 2},{i % 2},42,{kind},user,3,{i % 4},0.125,"
                "0.0625,0.0004,0"
            )
    events.sort(key=lambda line: int(line.split(",")[0]))
    machines = [f"0,{i},0,p,0.5,0.{2 + i % 2}493" for i in range(5)]
    machines += ["700000000,2,1,p,0.5,0.2493", "710000000,3,2,p,1,0.2493"]
    tables = (
        _table(
            "task_events/part-00000-of-00500.csv",
            "time missing_info job index machine event user scheduling_class priority cpu memory "
            "disk different_machines",
            events,
            "time",
            "job index event",
        ),
        _table(
            "machine_events/part-00000-of-00001.csv",
            "time machine event platform cpu memory",
            machines,
            "time",
            "machine event",
        ),
    )
    return Base("google-2011", tables)


def _azure() -> Base:
    vms = [
        f"{i},{i % 4},{i % 4},{i % 2},{0.001 * i - 0.002:g},{0.001 * i + 0.0005:g}"
        for i in range(14)
    ]
    vms.append("99,0,1,0,0.005,")
    types = ["0,1,10,0.5,0.25,,0.1,0.01", "1,1,20,0.25,0.125,0.1,0.2,0.02"]
    types += ["2,2,20,0.0125,0.01,0,0,0", "3,3,10,1,1,1,1,1", "4,0,20,0.1,0.1,0,0,0"]
    file = "packing_trace_zone_a_v1.sqlite"
    columns = "vmId tenantId vmTypeId priority starttime endtime"
    tables = (
        _table(file, columns, vms, "starttime endtime", "vmTypeId"),
        _table(
            file,
            "id vmTypeId machineId core memory hdd ssd nic",
            types,
            names="vmTypeId machineId",
        ),
    )
    return Base("azure-packing-2020", tables)


def _swf() -> Base:
    rows = [
        f"{i},{100 + 20 * i},5,{60 + i},{1 + i % 4},45,1536,{1 + i % 4},300,2048,"
        f"{(1, 1, 1, 0)[i % 4]},3,1,7,0,-1,-1,-1"
        for i in range(1, 14)
    ]
    table = _table(
        "log.swf",
        "job submit_s wait_s run_s processors cpu_s memory_kb requested_processors requested_s "
        "requested_memory_kb status user group executable queue partition preceding_job think_s",
        rows,
        "submit_s run_s",
        "job",
    )
    preamble = "; Version: 2.2\n; MaxNodes: 3\n;  MaxProcs:  10  (of 12)\n;\n"
    return Base("swf", (replace(table, separator=" ", preamble=preamble),))


def _columns() -> Base:
    after = {"J4_2_3": "R2_1;R3_1", "R2_1": "M1", "R3_1": "M1", "R1_2": "M2"}
    rows = [
        f"j{job},{name},{after.get(name, '')},{10 * job},{10 * job + 20 * number},"
        f"{10 * job + 20 * number + 15},{1 + job % 3},{job % 4},1.5,{'' if job % 5 == 0 else 512},"
        f"0.5,{'failed' if job == 7 else 'done'}"
        for job, number, name in _dag_tasks(10)
    ]
    table = _table(
        "my.csv",
        "job task after submitted started ended workers priority cores memory used state",
        rows,
        "submitted started ended",
        "job task after",
    )
    return Base("columns", (replace(table, header=True),), _MAPPING)


def _columns_parquet() -> Base:
    base = _columns()
    mapping = _MAPPING.replace("{kind: text, header: true}", "{kind: parquet}")
    table = replace(base.tables[0], file="my.parquet", header=False)
    return Base("columns-parquet", (table,), mapping)


BASES = {
    base.name: base
    for base in (
        *(_v2018(), _spar(), _spar_stats(), _v2017(), _v2020(), _openb(), _google(), _azure()),
        *(_swf(), _columns(), _columns_parquet()),
    )
}
"""All valid traces by name: the formats' names, and `columns-parquet`."""
