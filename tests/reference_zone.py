"""The cluster once more, slow and obvious: what the kernels must do, action by action.

One replica, plain objects, no heaps, no sets of what stepped aside: at every moment the queue is
sorted anew and its first instance that has an open candidate is decided. Waiting instances of one
task with one ready time and as many hops stand together, where the first of them stood.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.machines import build_machines
from marl_sched.cluster.state import EpisodeInput
from marl_sched.config import MICROSECONDS, Experiment

KINDS = ("join", "drain", "fail", "return")


@dataclass(eq=False)
class Place:
    """A task as one zone knows it: its number there, and what its waiting instances go by."""

    number: int
    ready_us: int = -1
    hops: int = 0
    sequence: int = 0
    waiting: list["Instance"] = field(default_factory=list)


@dataclass(eq=False)
class Instance:
    """One instance where it is or was; `came_from` is its row in the zone that sent it."""

    task: "RefTask"
    place: Place
    work_us: int
    use: NDArray[np.float64]
    row: int
    status: str = "not ready"
    came_from: tuple[int, "Instance"] | None = None
    ready_us: int = -1
    key: tuple[int, int, int, int] = (0, 0, 0, 0)
    waits_for_release: bool = False
    machine: int = -1
    start_us: int = -1
    start_number: int = 0
    finish_us: int = -1
    arrival_us: int = -1
    sent_to: int = -1
    restarts: int = 0
    hops: int = 0
    failed_creations: int = 0


@dataclass(eq=False)
class RefTask:
    """A task of a zone's users; the instance of a peer shares the sender's."""

    number: int
    job: "RefJob"
    request: NDArray[np.int64]
    priority: int
    reference_s: float
    latest_wait_us: int
    latest_finish_us: int
    parents: list["RefTask"] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    left: int = 0
    ready_us: int = -1
    finish_us: int = 0


@dataclass(eq=False)
class RefJob:
    """A job and its tasks."""

    arrival_us: int
    tasks: list[RefTask] = field(default_factory=list)
    has_failed: bool = False


@dataclass
class Digest:
    """What a peer knows of a zone."""

    free: NDArray[np.float64]
    allocatable: NDArray[np.float64]
    machines: list[NDArray[np.int64]]


class RefZone:
    """One zone; `actions` are what its agent decided, in order."""

    def __init__(
        self, experiment: Experiment, name: str, given: EpisodeInput, actions: Sequence[int]
    ) -> None:
        self.experiment, self.rules = experiment, experiment.cluster
        names = sorted(experiment.zone_names)
        self.index = names.index(name)
        self.peers = [index for index in range(len(names)) if index != self.index]
        config = next(zone for zone in experiment.zones if zone.name == name)
        self.park = build_machines(experiment, config)
        self.n_machines, self.n_resources = self.park.capacity.shape
        joins: dict[int, str] = {}
        for event in given.events:
            joins.setdefault(int(event["machine"]), KINDS[event["kind"]])
        self.status = ["absent" if joins.get(m) == "join" else "up" for m in range(self.n_machines)]
        self.events = [(int(at), int(m), KINDS[kind]) for at, m, kind in given.events.tolist()]
        self.background = np.zeros(self.park.capacity.shape)
        step_s = 1.0 if config.background is None else config.background.step_s
        self.steps = [
            (round(number * step_s * MICROSECONDS), use)
            for number, use in enumerate(given.background)
        ]
        self.jobs = _jobs(given)
        self.to_arrive = list(self.jobs)
        self.instances = [i for job in self.jobs for task in job.tasks for i in task.instances]
        self.actions, self.masks = list(actions), []
        self.digests: dict[int, Digest] = {}
        self.freed: set[int] = set()
        self.sent = {peer: np.zeros(self.n_resources) for peer in self.peers}
        self.outgoing: list[tuple[int, int, Instance]] = []
        self.notices: list[tuple[int, int, Instance, bool]] = []
        self.samples: list[dict[str, Any]] = []
        self.n_places = given.table.n_tasks
        self.remembered: dict[int, tuple[int, int, Place]] = {}
        self.now_us = self.number = self.offloads = 0

    # What can be seen at any moment.
    def running(self) -> list[Instance]:
        return [i for i in self.instances if i.status == "running"]

    def allocatable(self) -> NDArray[np.int64]:
        taken = np.ceil(self.background).astype(np.int64)
        return np.maximum(0, self.park.capacity - self.park.reserved - taken)

    def allocated(self) -> NDArray[np.int64]:
        total = np.zeros(self.park.capacity.shape, np.int64)
        for instance in self.running():
            total[instance.machine] += instance.task.request
        return total

    def use(self) -> NDArray[np.float64]:
        total = self.background.copy()
        for instance in self.running():
            total[instance.machine] += instance.use
        return total

    def utilization(self) -> NDArray[np.float64]:
        capacity = self.park.capacity
        share = np.where(capacity > 0, self.use() / np.maximum(capacity, 1), 0.0)
        share[:, 0] = np.minimum(share[:, 0], 1.0)
        return share

    def fits(self, instance: Instance) -> list[bool]:
        free, asks = self.allocatable() - self.allocated(), instance.task.request
        return [
            self.status[m] == "up"
            and all(asked == 0 or asked <= has for asked, has in zip(asks, free[m], strict=True))
            for m in range(self.n_machines)
        ]

    def mask(self, instance: Instance) -> list[bool]:
        open_machines = self.fits(instance)
        if self.rules.placement == "unmasked":
            open_machines = [status == "up" for status in self.status]
        return open_machines + [self.is_open(peer, instance) for peer in self.peers]

    def is_open(self, peer: int, instance: Instance) -> bool:
        if instance.hops >= self.rules.max_hops or peer not in self.digests:
            return False
        digest, request = self.digests[peer], instance.task.request
        room = digest.free + self.rules.peer_queue_allowance * digest.allocatable
        holds = any((request <= machine).all() for machine in digest.machines)
        return holds and bool((self.sent[peer] + request <= room).all())

    # Time.
    def play(self, until_us: int) -> None:
        self.release()
        while True:
            coming = self.next_us()
            if coming <= self.now_us < until_us:
                self.handle()
            elif (head := self.head()) is not None:
                self.decide(head)
            elif coming >= until_us:
                self.now_us = until_us
                return
            else:
                self.now_us = coming

    def next_us(self) -> int:
        times = [i.finish_us for i in self.running()]
        times += [i.arrival_us for i in self.instances if i.status == "in transit"]
        times += [event[0] for event in self.events] + [step[0] for step in self.steps]
        times += [job.arrival_us for job in self.to_arrive]
        return min(times, default=1 << 62)

    def handle(self) -> None:
        now = self.now_us
        ending = [i for i in self.running() if i.finish_us <= now]
        coming = [i for i in self.instances if i.status == "in transit" and i.arrival_us <= now]
        if ending:
            self.finish(min(ending, key=lambda i: (i.finish_us, i.start_number)))
        elif self.events and self.events[0][0] <= now:
            self.change_machine(*self.events.pop(0)[1:])
        elif self.steps and self.steps[0][0] <= now:
            self.background = self.steps.pop(0)[1].copy()
            self.release()
        elif coming:
            first = min(coming, key=lambda i: (i.arrival_us, i.came_from[0], i.start_number))
            self.wait(first, first.ready_us)
        else:
            job = self.to_arrive.pop(0)
            for task in job.tasks:
                if not task.parents:
                    self.make_ready(task)

    def release(self) -> None:
        self.freed.clear()
        for instance in self.instances:
            instance.waits_for_release = False

    def wait(self, instance: Instance, ready_us: int) -> None:
        place = instance.place
        instance.status, instance.ready_us = "waiting", ready_us
        if not place.waiting or (place.ready_us, place.hops) != (ready_us, instance.hops):
            place.waiting, place.ready_us, place.hops = [], ready_us, instance.hops
            place.sequence = self.next_number()
        place.waiting.append(instance)
        self.stand(instance, place.sequence)

    def stand(self, instance: Instance, sequence: int) -> None:
        ready_us = instance.ready_us
        instance.key = (-instance.task.priority, ready_us, sequence, self.next_number())

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def make_ready(self, task: RefTask) -> None:
        task.ready_us = self.now_us
        for instance in task.instances:
            self.wait(instance, self.now_us)

    def place_of(self, sender: int, instance: Instance) -> Place:
        """Return what a peer's task is here; one of 1024 slots remembers it."""
        number = instance.place.number
        slot = (31 * number + sender) % 1024
        if slot not in self.remembered or self.remembered[slot][:2] != (sender, number):
            self.remembered[slot] = (sender, number, Place(self.n_places))
            self.n_places += 1
        return self.remembered[slot][2]

    def finish(self, instance: Instance) -> None:
        instance.status = "finished"
        if instance.came_from is not None:
            self.notices.append((*instance.came_from, instance.finish_us, False))
        else:
            self.leave(instance, instance.finish_us)
        if self.rules.placement == "unmasked" and self.status[instance.machine] == "up":
            self.freed.add(instance.machine)

    def leave(self, instance: Instance, finish_us: int) -> None:
        task = instance.task
        task.left -= 1
        task.finish_us = max(task.finish_us, finish_us)
        if task.left == 0 and not task.job.has_failed:
            for child in task.job.tasks:
                if task in child.parents and all(parent.left == 0 for parent in child.parents):
                    self.make_ready(child)

    def change_machine(self, machine: int, kind: str) -> None:
        if kind == "fail":
            self.status[machine] = "absent"
            for instance in self.instances:
                if instance.status == "running" and instance.machine == machine:
                    self.die(instance)
        elif kind == "drain" and self.status[machine] == "up":
            self.status[machine] = "draining"
        elif kind in ("join", "return"):
            self.status[machine] = "up"
            self.release()

    def die(self, instance: Instance) -> None:
        instance.restarts += 1
        if instance.restarts <= self.rules.max_restarts:
            self.wait(instance, instance.ready_us)
            return
        instance.status = "failed"
        if instance.came_from is not None:
            self.notices.append((*instance.came_from, self.now_us, True))
        else:
            instance.task.job.has_failed = True

    # Decisions.
    def head(self) -> Instance | None:
        standing = [i for i in self.instances if i.status == "waiting" and i.waits_for_release]
        helped = [i for i in standing if any(self.fits(i)[machine] for machine in self.freed)]
        if not helped:
            self.freed.clear()
        waiting = [i for i in self.instances if i.status == "waiting" and not i.waits_for_release]
        waiting += helped
        waiting.sort(key=lambda i: i.key)
        if self.rules.queue == "strict-fifo":
            waiting = waiting[:1]
        return next((i for i in waiting if any(self.mask(i))), None)

    def decide(self, instance: Instance) -> None:
        self.masks.append(self.mask(instance))
        action = self.actions.pop(0)
        if instance in instance.place.waiting:
            instance.place.waiting.remove(instance)
        instance.waits_for_release = False
        instance.start_number = self.next_number()
        if action >= self.n_machines:
            self.send(instance, self.peers[action - self.n_machines])
        elif self.fits(instance)[action]:
            self.start(instance, action)
        else:
            instance.failed_creations += 1
            instance.waits_for_release = True
            self.freed.clear()
            self.stand(instance, self.next_number())

    def start(self, instance: Instance, machine: int) -> None:
        instance.status, instance.machine, instance.start_us = "running", machine, self.now_us
        load = self.use()[machine, 0] / self.park.capacity[machine, 0]
        stretch = (1 + self.rules.interference * max(0.0, load - 0.5) / 0.5) / self.park.speed[
            machine
        ]
        instance.finish_us = self.now_us + max(1, round(instance.work_us * stretch))

    def send(self, instance: Instance, peer: int) -> None:
        gib = instance.task.request[1] / 1024
        way_us = round((self.rules.offload_base_s + self.rules.offload_s_per_gib * gib) * 1e6)
        instance.status, instance.sent_to = "offloaded", peer
        self.sent[peer] += instance.task.request
        self.outgoing.append((peer, self.now_us + way_us, instance))
        self.offloads += 1

    # The window's end.
    def digest(self) -> Digest:
        up = [m for m in range(self.n_machines) if self.status[m] == "up"]
        allocatable = self.allocatable()
        free = np.maximum(0, allocatable - self.allocated())
        return Digest(
            free[up].sum(axis=0), allocatable[up].sum(axis=0), [allocatable[m] for m in up]
        )

    def sample(self) -> None:
        there = [m for m in range(self.n_machines) if self.status[m] != "absent"]
        self.samples.append(
            {
                "utilization": self.utilization()[there],
                "use": self.use()[there],
                "capacity": self.park.capacity[there],
                "price": self.park.price_per_hour[there],
                "allocated": self.allocated()[there],
                "allocatable": self.allocatable()[there],
            }
        )


def _jobs(given: EpisodeInput) -> list[RefJob]:
    table, jobs = given.table, []
    tasks: list[RefTask] = []
    for number in range(table.n_jobs):
        job = RefJob(int(table.job_arrival_us[number]))
        jobs.append(job)
        for t in range(table.job_task_start[number], table.job_task_start[number + 1]):
            task = RefTask(
                number=t,
                job=job,
                request=table.request[t],
                priority=int(table.task_priority[t]),
                reference_s=float(table.reference_s[t]),
                latest_wait_us=int(table.latest_wait_us[t]),
                latest_finish_us=int(table.latest_finish_us[t]),
            )
            place = Place(t)
            for row in range(table.task_instance_start[t], table.task_instance_start[t + 1]):
                task.instances.append(
                    Instance(task, place, int(table.work_us[row]), table.use[row], row)
                )
            task.left = len(task.instances)
            job.tasks.append(task)
            tasks.append(task)
    for task in tasks:
        start, end = table.task_parent_start[task.number : task.number + 2]
        task.parents = [tasks[parent] for parent in table.task_parents[start:end]]
    return jobs
