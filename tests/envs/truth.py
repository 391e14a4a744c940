"""What an observation must say, computed slowly from instances and machines alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tiny import Cluster

from marl_sched.cluster.model import (
    ABSENT,
    FINISHED,
    NOT_READY,
    OFFLOADED,
    RUNNING,
    UP,
    WAITING,
)
from marl_sched.config import MICROSECONDS, Experiment

W_S, MOVING, SLOWDOWN_WEIGHT = 5.0, 0.08, 0.05


def _over(amount: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return amount / capacity, 0 where there is no capacity."""
    return np.where(capacity > 0, amount / np.maximum(capacity, 1), 0.0)


class Truth:
    """What a zone's observation must say, from its instances and machines alone."""

    def __init__(self, experiment: Experiment, cluster: Cluster, name: str) -> None:
        self.experiment, self.cluster = experiment, cluster
        self.env = cluster.zones[name]
        self.peers = self.env.peers
        shape = self.env.simulator.machines.capacity.shape
        self.mean, self.variance = np.zeros(shape), np.zeros(shape)
        self.rate, self.slowdown, self.last_start = 0.0, 1.0, -1
        self.digests: dict[str, dict[str, Any]] = {}
        self.digest_us = 0

    @property
    def state(self) -> Any:
        return self.env.simulator.state

    @property
    def now_us(self) -> int:
        return int(self.state.zone["now_us"][0])

    @property
    def rows(self) -> Any:
        return self.state.instance[0, : self.state.zone["n_instances"][0]]

    def status(self) -> np.ndarray:
        return self.state.machine["status"][0]

    def requests(self, rows: Any) -> np.ndarray:
        return self.state.request[0, rows["task"]]

    def allocated(self) -> np.ndarray:
        total = np.zeros_like(self.state.capacity)
        running = self.rows["status"] == RUNNING
        np.add.at(total, self.rows["machine"][running], self.requests(self.rows[running]))
        return total

    def use(self) -> np.ndarray:
        total = self.state.background[0].copy()
        running = np.flatnonzero(self.rows["status"] == RUNNING)
        np.add.at(total, self.rows["machine"][running], self.state.instance_use[0, running])
        return total

    def utilization(self, added: np.ndarray | float = 0.0) -> np.ndarray:
        share = _over(self.use() + added, self.state.capacity)
        share[:, 0] = np.minimum(share[:, 0], 1.0)
        return share

    def moments(self, share: np.ndarray, moment: Callable[[np.ndarray], float]) -> np.ndarray:
        """Return a moment of shares (M, R) over the machines that are there and have the resource.

        It is 0 of a resource that none of them has.
        """
        counted = (self.state.capacity > 0) & (self.status() != ABSENT)[:, None]
        columns = [share[counted[:, r], r] for r in range(share.shape[1])]
        return np.array([moment(column) if len(column) else 0.0 for column in columns])

    def free(self) -> np.ndarray:
        return self.state.allocatable[0] - self.allocated()

    # What is counted over time.
    def note_starts(self) -> None:
        """Follow the moving average of stretch over starts, in their order."""
        rows = self.rows
        started = rows[np.isin(rows["status"], (RUNNING, FINISHED))]
        for row in np.sort(started[started["sequence"] > self.last_start], order="sequence"):
            if row["machine"] < 0:
                continue  # offloaded from here
            stretch = (row["finish_us"] - row["start_us"]) / row["work_us"]
            self.slowdown += SLOWDOWN_WEIGHT * (stretch - self.slowdown)
            self.last_start = int(row["sequence"])

    def close_window(self, number: int) -> None:
        change = self.utilization() - self.mean
        self.mean = self.mean + MOVING * change
        self.variance = (1 - MOVING) * (self.variance + MOVING * change**2)
        start, end = number * W_S * MICROSECONDS, (number + 1) * W_S * MICROSECONDS
        came = np.array([self._came_us(row) for row in self.rows])
        per_minute = ((came >= start) & (came < end)).sum() * 60 / W_S
        self.rate += MOVING * (per_minute - self.rate)

    def _came_us(self, row: Any) -> float:
        """Return when an instance entered this zone's queue for the first time."""
        if row["via_zone"] < 0:
            return -1.0 if row["status"] == NOT_READY else float(row["ready_us"])
        names = sorted(self.cluster.zones)
        sender = self.cluster.rows(names[row["via_zone"]])[row["via_instance"]]
        gib = self.state.request[0, row["task"], 1] / 1024
        way_s = self.experiment.cluster.offload_base_s
        way_s += self.experiment.cluster.offload_s_per_gib * gib
        window_us = self.experiment.window_us
        next_window_us = (sender["start_us"] // window_us + 1) * window_us
        return float(max(sender["start_us"] + way_s * MICROSECONDS, next_window_us))

    def digest(self) -> dict[str, Any]:
        up = self.status() == UP
        free = np.maximum(self.free(), 0)
        slot = np.argmax(np.where(up, free[:, 0], -1))
        return {
            "queue": int((self.rows["status"] == WAITING).sum()),
            "speed": self.state.machine["speed"][0][up].mean() if up.any() else 0.0,
            "price": self.state.machine["price"][0][up].mean() if up.any() else 0.0,
            "slowdown": self.slowdown,
            "allocatable": self.state.allocatable[0][up].sum(axis=0),
            "free": free[up].sum(axis=0),
            "slot": free[slot] if up.any() else np.zeros(len(free[0])),
            "utilization": self.moments(self.utilization(), np.mean),
            "imbalance": self.moments(self.utilization(), np.std),
            "machines": self.state.allocatable[0][up],
        }

    def sent(self, peer: str) -> np.ndarray:
        """Return what was sent to a peer since its digest."""
        rows = self.rows
        chosen = rows[
            (rows["status"] == OFFLOADED)
            & (rows["peer"] == self.peers.index(peer))
            & (rows["start_us"] >= self.digest_us)
        ]
        return self.requests(chosen).sum(axis=0)

    # The columns.
    def head(self) -> tuple[int, Any, Any]:
        """Return the row, instance and task of the head: by priority, ready time, sequence."""
        group = self.state.active["row"][0, 0]
        row = int(self.state.group["head"][0, group])
        instance = self.rows[row]
        return row, instance, self.state.task[0, instance["task"]]

    def instance_columns(self) -> dict[str, float]:
        _, instance, task = self.head()
        mean_s = float(task["known_mean_s"])
        waited_s = (self.now_us - instance["ready_us"]) / MICROSECONDS
        there = self.status() != ABSENT
        largest = np.maximum(self.state.capacity[there].max(axis=0, initial=0), 1)
        request = self.state.request[0, instance["task"]]
        known = self.state.known_use[0, instance["task"]]
        left = self.state.job[0, task["job"]]["tasks_left"] if task["job"] >= 0 else 1
        return {
            "mean": np.log1p(mean_s) / 5,
            "sigma": float(task["known_sigma"]),
            "waited": waited_s / mean_s,
            "late_slack": (task["latest_wait_us"] / MICROSECONDS - waited_s) / mean_s,
            "finish_slack": (task["latest_finish_us"] / MICROSECONDS - waited_s) / mean_s,
            "hops_left": self.experiment.cluster.max_hops - int(instance["hops"]),
            "restarts": int(instance["restarts"]),
            "group": np.log1p(self._in_group()),
            "job_left": np.log1p(left),
            "priority": int(task["priority"]),
            **self._named("request", request / largest),
            **self._named("use", known / np.maximum(request, 1)),
        }

    def _in_group(self) -> int:
        """Return the instances of the head's group, by walking it."""
        group = self.state.group[0, self.state.active["row"][0, 0]]
        row, count = int(group["head"]), 1
        while row != group["tail"]:
            assert self.rows[row]["status"] == WAITING
            assert self.rows[row]["task"] == group["task"]
            row, count = int(self.rows[row]["next"]), count + 1
        return count

    def zone_columns(self, mask: np.ndarray) -> dict[str, float]:
        up = self.status() == UP
        rows = self.rows
        waiting = rows[rows["status"] == WAITING]
        capacity = np.maximum(self.state.capacity[up].sum(axis=0), 1)
        allocatable = np.maximum(self.state.allocatable[0][up].sum(axis=0), 1)
        util = self.utilization()
        m, p = self.env.n_machines, len(self.peers)
        return {
            "queue": np.log1p(len(waiting)),
            "set_aside": np.log1p(self._groups_aside()),
            "machines_up": np.log1p(up.sum()) / 5,
            "machine_choices": mask[:m].sum() / m,
            "peer_choices": mask[m:].sum() / max(1, p),
            "arrivals": np.log1p(self.rate),
            **self._named("zone_free_share", np.maximum(self.free(), 0)[up].sum(axis=0) / capacity),
            **self._named("zone_utilization", self.moments(util, np.mean)),
            **self._named("zone_imbalance", self.moments(util, np.std)),
            **self._named("queue_share", self.requests(waiting).sum(axis=0) / allocatable),
        }

    def _groups_aside(self) -> int:
        """Return the groups that wait and are not in the active queue."""
        active = self.state.active["row"][0, : self.state.zone["active_size"][0]]
        in_active = sum(int(self.state.group["count"][0, g]) for g in active)
        aside = self.state.aside[0, : self.state.zone["aside_size"][0]]
        in_aside = sum(int(self.state.group["count"][0, g]) for g in aside)
        assert in_active + in_aside == (self.rows["status"] == WAITING).sum()
        return len(aside)

    def machine_columns(self, m: int) -> dict[str, float]:
        _, instance, task = self.head()
        capacity, there = self.state.capacity, self.status() != ABSENT
        request = self.state.request[0, instance["task"]]
        known = self.state.known_use[0, instance["task"]]
        mean_s = float(task["known_mean_s"])
        has = capacity[m] > 0
        free, asked = _over(self.free()[m], capacity[m]), request / np.maximum(capacity[m], 1)
        added = np.zeros_like(capacity, float)
        added[m] = known
        now, after = self.utilization(), self.utilization(added)
        load = (self.use()[m, 0] + known[0]) / capacity[m, 0]
        speed = float(self.state.machine["speed"][0, m])
        price = float(self.state.machine["price"][0, m])
        stretch = (1 + self.experiment.cluster.interference * max(0.0, load - 0.5) / 0.5) / speed
        waited_s = (self.now_us - instance["ready_us"]) / MICROSECONDS
        late_s, finish_s = task["latest_wait_us"] / 1e6, task["latest_finish_us"] / 1e6
        up = self.status() == UP
        slot = int(np.argmax(np.where(up, self.free()[:, 0], -(1 << 40)))) if up.any() else -1
        largest = np.maximum(capacity[there].max(axis=0, initial=0), 1)
        change = self.moments(after, np.std) - self.moments(now, np.std)
        change = np.where(has, change * (there[:, None] & (capacity > 0)).sum(axis=0), 0.0)
        allocated_after = (1 - free + asked)[has]
        return {
            "is_machine": 1.0,
            "is_peer": 0.0,
            "speed": speed,
            "price": price,
            "alignment": float(asked @ free),
            "allocation_gap": float(allocated_after.std()),
            "expected_duration": stretch,
            "expected_late": float(waited_s > late_s),
            "expected_slack": (finish_s - waited_s - mean_s * stretch) / mean_s,
            "running": np.log1p(
                ((self.rows["status"] == RUNNING) & (self.rows["machine"] == m)).sum()
            ),
            "takes_largest_slot": float(m == slot),
            "cost": price * asked.max() * stretch,
            "digest_age": 0.0,
            "sent_share": 0.0,
            "transfer": 0.0,
            "fits_largest_slot": 0.0,
            **self._named("free_share", free),
            **self._named("free_share_after", free - asked),
            **self._named("utilization", now[m]),
            **self._named("utilization_after", after[m]),
            **self._named("utilization_mean", self.mean[m]),
            **self._named("utilization_sd", np.sqrt(self.variance[m])),
            **self._named("imbalance_change", change if there[m] else np.full(len(change), np.nan)),
            **self._named("relative_size", capacity[m] / largest),
        }

    def peer_columns(self, peer: str) -> dict[str, float]:
        _, instance, task = self.head()
        digest, sent = self.digests[peer], self.sent(peer)
        request = self.state.request[0, instance["task"]]
        mean_s = float(task["known_mean_s"])
        rules = self.experiment.cluster
        way_s = rules.offload_base_s + rules.offload_s_per_gib * request[1] / 1024
        waited_s = (self.now_us - instance["ready_us"]) / MICROSECONDS
        late_s, finish_s = task["latest_wait_us"] / 1e6, task["latest_finish_us"] / 1e6
        allocatable = np.maximum(digest["allocatable"], 1)
        own = np.maximum(self.state.allocatable[0][self.status() == UP].sum(axis=0), 1)
        free = (digest["free"] - sent) / allocatable
        nothing = np.zeros(len(request))
        after_s = waited_s + way_s + mean_s * digest["slowdown"]
        largest = _first_undominated(digest["machines"])
        return {
            "is_machine": 0.0,
            "is_peer": 1.0,
            "speed": digest["speed"],
            "price": digest["price"],
            "alignment": 0.0,
            "allocation_gap": 0.0,
            "expected_duration": digest["slowdown"],
            "expected_late": float(waited_s + way_s > late_s),
            "expected_slack": (finish_s - after_s) / mean_s,
            "running": np.log1p(digest["queue"]),
            "takes_largest_slot": 0.0,
            "cost": digest["price"] * (request / largest).max() * digest["slowdown"],
            "digest_age": (self.now_us - self.digest_us) / 1e6 / rules.digest_period_s,
            "sent_share": sent[0] / allocatable[0],
            "transfer": way_s / mean_s,
            "fits_largest_slot": float((request <= digest["slot"]).all()),
            **self._named("free_share", free),
            **self._named("free_share_after", free - request / allocatable),
            **self._named("utilization", digest["utilization"]),
            **self._named("utilization_after", nothing),
            **self._named("utilization_mean", nothing),
            **self._named("utilization_sd", digest["imbalance"]),
            **self._named("imbalance_change", nothing),
            **self._named("relative_size", digest["allocatable"] / own),
        }

    def mask(self) -> list[bool]:
        _, instance, _ = self.head()
        unasked = self.state.request[0, instance["task"]] == 0
        request = self.state.request[0, instance["task"]]
        rules = self.experiment.cluster
        is_open = [
            bool(
                status == UP
                and (rules.placement == "unmasked" or ((request <= free) | unasked).all())
            )
            for status, free in zip(self.status(), self.free(), strict=True)
        ]
        for peer in self.peers:
            digest = self.digests[peer]
            room = digest["free"] + rules.peer_queue_allowance * digest["allocatable"]
            is_open.append(
                bool(
                    instance["hops"] < rules.max_hops
                    and (request + self.sent(peer) <= room).all()
                    and any((request <= machine).all() for machine in digest["machines"])
                )
            )
        return is_open

    def _named(self, name: str, values: np.ndarray) -> dict[str, float]:
        resources = self.experiment.resources
        return {f"{name}:{r}": float(v) for r, v in zip(resources, values, strict=True)}


def _first_undominated(machines_up: np.ndarray) -> np.ndarray:
    """Return, by resource, what the first machine that has it and that no other exceeds has."""
    largest = np.zeros(machines_up.shape[1])
    for number, machine in enumerate(machines_up):
        others = np.delete(machines_up, number, axis=0)
        if not any((other >= machine).all() and (other > machine).any() for other in others):
            largest = np.where(largest > 0, largest, machine)
    return np.maximum(largest, 1)
