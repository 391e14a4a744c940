"""Machines without a resource, and tasks that ask for none of it."""

from pathlib import Path

import pytest

from marl_sched.config import SyntheticWorkload, load_config
from marl_sched.errors import ConfigError

TEXT = """\
version: 1
name: absent
resources: [cpu_milli, memory_mib, gpu]
zones:
  - name: a
    machines:
      - {count: 2, capacity: {cpu_milli: 8000, memory_mib: 16384, gpu: 2}}
      - {count: 2, capacity: {cpu_milli: 8000, memory_mib: 16384, gpu: 0}}
  - name: b
    machines: [{count: 1, capacity: {cpu_milli: 8000, memory_mib: 16384, gpu: 0}}]
workload:
  kind: synthetic
  load: 0.5
  task_types:
    - name: plain
      request: {cpu_milli: 1000, memory_mib: 0, gpu: 0}
      mean_s: 5.0
      sigma: 0.1
      use: {cpu_milli: {mean: .5, sd: .1}}
      finish_slack: 2.0
    - name: trained
      request: {cpu_milli: 1000, memory_mib: 1024, gpu: 1}
      mean_s: 5.0
      sigma: 0.1
      use: {cpu_milli: {mean: .5, sd: .1}, memory_mib: {mean: .5, sd: .1}, gpu: {mean: 1, sd: 0}}
      finish_slack: 2.0
  streams: [{name: batch, arrivals: {kind: modulated-poisson}}]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "absent.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_machines_without_and_tasks_that_ask_for_none_are_read(path: Path) -> None:
    experiment = load_config(path)
    assert [group.capacity["gpu"] for group in experiment.zones[0].machines] == [2, 0]
    assert isinstance(experiment.workload, SyntheticWorkload)
    plain = experiment.workload.task_types[0]
    assert (plain.request["memory_mib"], plain.request["gpu"]) == (0, 0)
    assert set(plain.use) == {"cpu_milli"}


@pytest.mark.parametrize(
    "override",
    [
        "workload.task_types[0].use.gpu={mean: .5, sd: 0}",
        "zones[0].machines[1].reserved={gpu: 0}",
        "zones[0].background={mean: {gpu: .5}}",
    ],
)
def test_what_says_nothing_of_an_absent_resource_is_allowed(path: Path, override: str) -> None:
    assert load_config(path, [override]).n_resources == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "zones[0].machines[0].capacity.gpu=0",
            "resources[2] = gpu, expected a resource that some machine has: its capacity is 0 on "
            "all machines of all zones",
        ),
        (
            "zones[0].machines[1].capacity={cpu_milli: 8000, memory_mib: 16384}",
            "zones[0].machines[1].capacity has the keys cpu_milli, memory_mib, expected exactly ",
        ),
        (
            "zones[0].machines[1].reserved={gpu: 1}",
            "zones[0].machines[1].reserved.gpu = 1, expected a resource of the machine and less "
            "than its capacity, 0",
        ),
        (
            "workload.task_types[1].request={cpu_milli: 1000, memory_mib: 1024}",
            "workload.task_types[1].request has the keys cpu_milli, memory_mib, expected exactly ",
        ),
        (
            "workload.task_types[1].use={cpu_milli: {mean: .5, sd: 0}}",
            "workload.task_types[1].use has the keys cpu_milli, expected exactly cpu_milli, "
            "memory_mib, gpu",
        ),
        (
            "workload.task_types[0].use={cpu_milli: {mean: .5, sd: 0}, tpu: {mean: .5, sd: 0}}",
            "workload.task_types[0].use has the keys cpu_milli, tpu, expected exactly cpu_milli, "
            "and if you like memory_mib, gpu",
        ),
        (
            "workload.task_types[1].request.gpu=2",
            "workload.task_types[1].request = {cpu_milli: 1000, memory_mib: 1024, gpu: 2}, expected"
            " that times 1 + request_jitter = 1.25 fits on a machine; ",
        ),
    ],
)
def test_what_does_not_fit_is_named(path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(path, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
