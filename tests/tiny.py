"""Small clusters on hand-made tables, played through the real exchange."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.books import book_errors
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.cluster.machines import draw_background, draw_events
from marl_sched.cluster.metrics import episode_metrics
from marl_sched.cluster.state import EpisodeInput
from marl_sched.config import MICROSECONDS, Experiment, Zone
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation
from marl_sched.workload.episodes import draw_workload
from marl_sched.workload.table import InstanceTable

Act = Callable[[str, Observation], NDArray[np.int64]]

TASK_TYPES = [
    {
        "name": "small",
        "request": {"cpu_milli": 1000, "memory_mib": 1024},
        "mean_s": 6.0,
        "sigma": 0.4,
        "use": {"cpu_milli": {"mean": 0.7, "sd": 0.2}, "memory_mib": {"mean": 0.8, "sd": 0.1}},
        "finish_slack": 2.5,
    },
    {
        "name": "large",
        "request": {"cpu_milli": 3000, "memory_mib": 2048},
        "mean_s": 12.0,
        "sigma": 0.5,
        "use": {"cpu_milli": {"mean": 0.9, "sd": 0.2}, "memory_mib": {"mean": 0.6, "sd": 0.1}},
        "finish_slack": 3.0,
        "priority": 1,
    },
]


def asking(*changes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the task types with other requests; the use of what is not requested is left out."""
    types = []
    for task_type, change in zip(TASK_TYPES, changes, strict=True):
        request = {**task_type["request"], **change}
        use = {name: use for name, use in task_type["use"].items() if request[name]}
        types.append({**task_type, "request": request, "use": use})
    return types


def machines(
    count: int = 1,
    cpu: int = 4000,
    memory: int = 8192,
    speed: float = 1.0,
    gpu: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a group of machines of two resources, of three with `gpu`."""
    capacity = {"cpu_milli": cpu, "memory_mib": memory}
    if gpu is not None:
        capacity["gpu"] = gpu
    return {"count": count, "capacity": capacity, "speed": speed, **more}


def zone(name: str, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a zone; one machine of 4 cores and 8 GiB by default."""
    return {"name": name, "machines": list(groups) or [machines()], **more}


def tiny(*zones: dict[str, Any], has_gpus: bool = False, **changes: Any) -> Experiment:
    """Return an experiment of 60 s + 60 s in windows of 5 s, a digest every 10 s.

    Mappings among the changes are merged into what stands there. With gpus, every machine has 4 and
    every instance asks for 1, as a third resource, where it says nothing else.
    """
    values: dict[str, Any] = {
        "version": 1,
        "name": "tiny",
        "zones": list(zones) or [zone("a")],
        "cluster": {"window_s": 5.0, "digest_period_s": 10.0, "interference": 0.8},
        "episode": {"horizon_s": 60.0, "drain_s": 60.0, "measured_from": 0.0},
        "workload": {
            "kind": "synthetic",
            "load": 0.7,
            "task_types": TASK_TYPES,
            "streams": [
                {
                    "name": "batch",
                    "arrivals": {"kind": "modulated-poisson"},
                    "stage_probabilities": [0.6, 0.4],
                    "mean_instances": 2.0,
                    "max_instances": 4,
                }
            ],
        },
        "reward": {"imbalance_rate": 0.5},
    }
    for key, change in changes.items():
        values[key] = {**values.get(key, {}), **change} if isinstance(change, dict) else change
    if has_gpus:
        values = _with_gpus(values)
    return Experiment.model_validate(values)


def with_gpus_on_some(**changes: Any) -> Experiment:
    """Return zones with gpus on some, all and none of the machines; one task type asks for one.

    The other type asks for no memory either, and background use takes memory and gpus.
    """
    use = {"mean": {"memory_mib": 0.2, "gpu": 0.3}, "sd": 0.1, "step_s": 10.0}
    types = asking({"gpu": 0, "memory_mib": 0}, {"gpu": 1})
    return tiny(
        zone("a", machines(2, gpu=2), machines(cpu=8000, gpu=0, price_per_hour=2.5), load=1.3),
        zone("b", machines(2, gpu=4), failures={"mean_up_s": 40.0, "mean_down_s": 6.0}),
        zone("c", machines(2, gpu=0), background=use),
        **{
            "has_gpus": True,
            "cluster": {"peer_queue_allowance": 0.3},
            "workload": {"task_types": types},
            "seed": 5,
            **changes,
        },
    )


def _with_gpus(values: dict[str, Any]) -> dict[str, Any]:
    zones = [
        {
            **one,
            "machines": [
                {**group, "capacity": {"gpu": 4, **group["capacity"]}} for group in one["machines"]
            ],
        }
        for one in values["zones"]
    ]
    types = []
    for one in values["workload"]["task_types"]:
        request = {"gpu": 1, **one["request"]}
        use = {"gpu": {"mean": 0.9, "sd": 0.2}} if request["gpu"] else {}
        types.append({**one, "request": request, "use": {**use, **one["use"]}})
    return {
        **values,
        "resources": ["cpu_milli", "memory_mib", "gpu"],
        "zones": zones,
        "workload": {**values["workload"], "task_types": types, "request_jitter": 0.0},
    }


@dataclass(frozen=True)
class Task:
    """Equal instances, one per entry of `work_s`; parents are tasks of the job, by number."""

    work_s: Sequence[float]
    request: Sequence[int] = (1000, 1024)
    use: Sequence[float] | None = None
    parents: Sequence[int] = ()
    priority: int = 0
    reference_s: float = 10.0
    late_s: float = 5.0
    finish_s: float = 30.0


@dataclass(frozen=True)
class Job:
    """Tasks that arrive together."""

    at_s: float
    tasks: Sequence[Task]


def table(*jobs: Job, n_resources: int = 2) -> InstanceTable:
    """Return the instance table of jobs, by arrival."""
    tasks = [task for job in jobs for task in job.tasks]
    first = np.cumsum([0, *(len(job.tasks) for job in jobs)])
    parents = [
        [first[number] + parent for parent in task.parents]
        for number, job in enumerate(jobs)
        for task in job.tasks
    ]
    use = [task.request if task.use is None else task.use for task in tasks for _ in task.work_s]

    def integers(values: Any) -> NDArray[np.int64]:
        return np.array(values, np.int64)

    def floats(values: Any) -> NDArray[np.float64]:
        return np.array(values, np.float64)

    n = n_resources
    return InstanceTable(
        job_arrival_us=integers([round(job.at_s * MICROSECONDS) for job in jobs]),
        job_task_start=integers(first),
        task_instance_start=integers(np.cumsum([0, *(len(task.work_s) for task in tasks)])),
        task_parent_start=integers(np.cumsum([0, *(len(rows) for rows in parents)])),
        task_parents=integers([row for rows in parents for row in rows]),
        task_priority=integers([task.priority for task in tasks]),
        task_class=integers([0 for _ in tasks]),
        request=integers([task.request for task in tasks]).reshape(len(tasks), n),
        reference_s=floats([task.reference_s for task in tasks]),
        known_mean_s=floats([task.reference_s for task in tasks]),
        known_sigma=floats([0.5 for _ in tasks]),
        known_use=floats([task.request for task in tasks]).reshape(len(tasks), n),
        latest_wait_us=integers([round(task.late_s * MICROSECONDS) for task in tasks]),
        latest_finish_us=integers([round(task.finish_s * MICROSECONDS) for task in tasks]),
        work_us=integers([round(s * MICROSECONDS) for task in tasks for s in task.work_s]),
        use=floats(use).reshape(len(use), n),
    )


def given(
    experiment: Experiment, zone: Zone, jobs: InstanceTable, episode: int = 0
) -> EpisodeInput:
    """Return a zone's input: a given table, its configured events and background."""
    return EpisodeInput(
        jobs,
        draw_events(experiment, zone, "train", episode),
        draw_background(experiment, zone, "train", episode),
    )


def first_open(_zone: str, observation: Observation) -> NDArray[np.int64]:
    """Pick the first unmasked candidate: machines before peers."""
    return np.argmax(observation.mask, axis=1).astype(np.int64)


def first_peer(_zone: str, observation: Observation) -> NDArray[np.int64]:
    """Pick the first unmasked peer, the first unmasked machine without one."""
    m = observation.n_machines
    peers = observation.mask[:, m:]
    if not peers.shape[1]:
        return first_open(_zone, observation)
    chosen = m + np.argmax(peers, axis=1)
    return np.where(peers.any(axis=1), chosen, np.argmax(observation.mask, axis=1))


def sending(*decisions: tuple[str, int], peer: int = 0) -> Act:
    """Return a policy that offloads the decisions named, (zone, number), and else places here."""

    def act(name: str, observation: Observation) -> NDArray[np.int64]:
        sent = np.array([(name, number) in decisions for number in observation.decision.tolist()])
        return np.where(sent, observation.n_machines + peer, first_open(name, observation))

    return act


def at_random(seed: int) -> Act:
    """Return a policy that picks any unmasked candidate, by one generator a zone."""
    generators: dict[str, np.random.Generator] = {}

    def act(name: str, observation: Observation) -> NDArray[np.int64]:
        if name not in generators:
            generators[name] = np.random.default_rng([seed, len(name), *name.encode()])
        draws = generators[name].random(observation.mask.shape)
        return np.argmax(np.where(observation.mask, draws, -1.0), axis=1).astype(np.int64)

    return act


@dataclass
class Cluster:
    """Zones on given inputs, in one thread; every step keeps the books.

    Attributes:
        settled: By zone, (replica, decision) -> rewards in the order they came.
        decided: By zone, (replica, decision, action) in the order they were taken.
        drawn: By zone, the table of the first replica, where it was drawn.
    """

    experiment: Experiment
    n_replicas: int = 1
    checks_books: bool = True
    settled: dict[str, dict[tuple[int, int], list[float]]] = field(default_factory=dict)
    decided: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    drawn: dict[str, InstanceTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        exchange = LocalExchange(self.experiment.zone_names, timeout_s=20.0)
        self.zones = {
            name: ZoneEnv(self.experiment, name, exchange, self.n_replicas)
            for name in sorted(self.experiment.zone_names)
        }

    def start(self, tables: Mapping[str, InstanceTable | Sequence[InstanceTable]]) -> "Cluster":
        """Begin an episode on tables; a zone without one has no jobs."""
        for name, env in self.zones.items():
            jobs = tables.get(name, table(n_resources=self.experiment.n_resources))
            each = [jobs] * self.n_replicas if isinstance(jobs, InstanceTable) else jobs
            inputs = [
                given(self.experiment, env.simulator.zone, one, e) for e, one in enumerate(each)
            ]
            env.begin_with(inputs)
        self.opened()
        return self

    def draw(self, split: str, episodes: Sequence[int]) -> "Cluster":
        """Begin episodes of the configured workload."""
        for name, env in self.zones.items():
            env.begin(split, episodes)
            drawn = draw_workload(self.experiment, env.simulator.zone, split, episodes[0])
            self.drawn[name] = drawn
        self.opened()
        return self

    def opened(self) -> None:
        """Open the first window, once every zone has begun."""
        for env in self.zones.values():
            env.receive()
        self.settled = {name: {} for name in self.zones}
        self.decided = {name: [] for name in self.zones}

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return all(env.done for env in self.zones.values())

    def play(
        self, act: Act = first_open, until_s: float | None = None, each: Act | None = None
    ) -> "Cluster":
        """Play windows that start before `until_s`; `each` sees every observation first."""
        while not self.done:
            if until_s is not None and self.now_s >= until_s:
                return self
            for name, env in self.zones.items():
                while (observation := env.observe()) is not None:
                    if each is not None:
                        each(name, observation)
                    actions = act(name, observation)
                    self.decided[name] += zip(
                        observation.replica.tolist(),
                        observation.decision.tolist(),
                        actions.tolist(),
                        strict=True,
                    )
                    env.step(actions)
                    self._check(name)
            self.end_window()
        return self

    def end_window(self) -> None:
        """Exchange and open the next window in all zones."""
        for env in self.zones.values():
            env.post()
        for name, env in self.zones.items():
            env.receive()
            self._check(name)
            self._note_settlements(name, env)

    def _check(self, name: str) -> None:
        if self.checks_books:
            errors = book_errors(self.zones[name].simulator.state)
            assert not errors, (name, errors)

    def _note_settlements(self, name: str, env: ZoneEnv) -> None:
        settled = env.settlements()
        for replica, decision, reward in zip(
            settled.replica.tolist(),
            settled.decision.tolist(),
            settled.reward.tolist(),
            strict=True,
        ):
            self.settled[name].setdefault((replica, decision), []).append(reward)

    @property
    def now_s(self) -> float:
        """Start of the current window."""
        env = next(iter(self.zones.values()))
        return max(0, env.window) * self.experiment.window_us / MICROSECONDS

    def rows(self, name: str, replica: int = 0) -> Any:
        """Return a zone's instance rows."""
        state = self.zones[name].simulator.state
        return state.instance[replica, : state.zone["n_instances"][replica]]

    def times(self, name: str, column: str) -> list[float]:
        """Return a column of times of all rows in seconds."""
        return (self.rows(name)[f"{column}_us"] / MICROSECONDS).tolist()

    def metrics(self) -> dict[str, NDArray[np.float64]]:
        """Return the metrics of the finished episode."""
        return episode_metrics(self.experiment, [env.finish() for env in self.zones.values()])
