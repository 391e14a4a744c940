"""One policy over the test episodes, in a process of its own: `python -m` with a Play as JSON.

What was played is kept after every batch, so that a killed evaluation goes on where it was, and
more episodes may be asked for later. Shapes: E episodes.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.heuristics import rule_factory
from marl_sched.agents.policies import load_policy
from marl_sched.agents.policy import Policy
from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.agents.tuned import tuned_path
from marl_sched.config import Agent, Experiment, load_config
from marl_sched.config.hashing import environment_hash, without_silent
from marl_sched.errors import CheckpointError, MarlSchedError, RunError
from marl_sched.evaluation import make_plain_env
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder
from marl_sched.statistics import TUNED

_KIND = "played episodes"
_LATENCY = "decision_latency_us"
_TUPLES = ("overrides", "agent", "adapted_zones", "counted")

load_cached = lru_cache(maxsize=64)(load_config)
"""`load_config` that remembers: a plan asks for the same few experiments again and again."""


@dataclass(frozen=True)
class Play:
    """What to play, and where to keep it.

    Attributes:
        config: The configuration.
        overrides: Of it, those of the setting among them.
        n_episodes: E.
        values: The file of the episodes' values.
        rule: Name of a rule; empty: a trained policy.
        tuned: Folder of the tuned weights; empty: the default one.
        run: Folder of the training run; empty: a rule.
        takes: Zone -> the zone whose policy decides there; others: their own.
        agent_config: Configuration whose `agent` decides, as a rule the run's own, in which what
            training found out is written; empty: what the policy's file says.
        agent: Overrides of that configuration.
        split: Split of the episodes.
        adapted: Folder of the run in which some zones have gone on learning; empty: none.
        adapted_zones: Those zones: they decide by what was learnt there.
        counted: Zones whose figures count; empty: all.
    """

    config: str
    overrides: tuple[str, ...]
    n_episodes: int
    values: str
    rule: str = ""
    tuned: str = ""
    run: str = ""
    takes: Mapping[str, str] = field(default_factory=dict)
    agent_config: str = ""
    agent: tuple[str, ...] = ()
    split: str = "test"
    adapted: str = ""
    adapted_zones: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, text: str) -> "Play":
        """Read what `as_json` wrote."""
        found = json.loads(text)
        lists = {key: tuple(found[key]) for key in _TUPLES}
        return cls(**(found | lists))

    def as_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def experiment(self) -> Experiment:
        """What is played."""
        return load_cached(self.config, self.overrides)

    @property
    def values_path(self) -> Path:
        """The file of the episodes' values."""
        return Path(self.values)

    def identity(self) -> str:
        """Return a hash of all that the values depend on; of episodes only which, not how many.

        Raises:
            CheckpointError: The run has no published policy.
        """
        files: list[Path] = []
        if self.run:
            names = self.experiment.zone_names
            files = [path for _, path in sorted(self._policy_files(names).items())]
        elif self.rule == TUNED:
            files = [tuned_path(self.experiment, Path(self.tuned) if self.tuned else None)]
        content = {
            "environment": environment_hash(self.experiment),
            "replicas": self.experiment.evaluation.replicas,
            "rule": self.rule,
            "files": [hashlib.sha256(_bytes(path)).hexdigest() for path in files],
            "takes": dict(self.takes),
            "agent": self._agent and without_silent("agent", self._agent.model_dump(mode="json")),
            "split": self.split,
            "version": version("marl-sched"),
        }
        if self.counted:
            content["counted"] = sorted(self.counted)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def make_policies(self) -> Callable[[str], Policy]:
        """Return what makes the policy of a zone.

        Raises:
            ConfigError: No such rule, or no tuned weights.
            CheckpointError: The run has no published policy, or one of another architecture.
        """
        experiment = self.experiment
        layout = Layout(tuple(experiment.resources))
        if not self.run:
            tuned = Path(self.tuned) if self.tuned else None
            return rule_factory(self.rule, layout, experiment, tuned)
        agent = self._agent
        files = self._policy_files(experiment.zone_names)
        policies = {zone: load_policy(path, layout, agent) for zone, path in files.items()}
        return lambda zone: policies[zone]

    @property
    def _agent(self) -> Agent | None:
        return load_cached(self.agent_config, self.agent).agent if self.agent_config else None

    def _policy_files(self, zones: Sequence[str]) -> dict[str, Path]:
        """Return the file of every zone's policy: its own, where zones have their own."""
        taken = {zone: self.takes.get(zone, zone) for zone in zones}
        files = RunFolder(Path(self.run)).policy_paths(taken.values())
        for zone, origin in taken.items():
            if not files[origin].exists():
                raise CheckpointError(
                    f"{files[origin]}: no such file: zone {origin} has no policy of its own in "
                    f"this run; say in the study whose policy decides: takes: {{{zone}: ZONE}}"
                )
        found = {zone: files[origin] for zone, origin in taken.items()}
        if self.adapted:
            found |= RunFolder(Path(self.adapted)).policy_paths(self.adapted_zones)
        return found


@dataclass(frozen=True)
class Played:
    """Episodes that were played.

    Attributes:
        identity: What they depend on (`Play.identity`).
        metrics: Metric -> (E,) values.
        n_decisions: Decisions of all zones.
        decision_s: Seconds that the policies took for them.
        seconds: Wall seconds of it all.
    """

    identity: str
    metrics: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    n_decisions: int = 0
    decision_s: float = 0.0
    seconds: float = 0.0

    @property
    def n_episodes(self) -> int:
        """E."""
        return next((len(values) for values in self.metrics.values()), 0)

    def first(self, n_episodes: int) -> "Played":
        """Return its first episodes; times are those of all."""
        cut = {name: values[:n_episodes] for name, values in self.metrics.items()}
        return replace(self, metrics=cut)

    def save(self, path: Path) -> None:
        """Write it, atomically."""
        metadata = {
            "identity": self.identity,
            "n_decisions": self.n_decisions,
            "decision_s": self.decision_s,
            "seconds": self.seconds,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(path, _KIND, metadata, self.metrics)


def read_played(path: Path) -> Played | None:
    """Read episodes; None if there are none.

    Raises:
        CheckpointError: The file is not a whole one of ours.
    """
    if not path.exists():
        return None
    metadata, arrays = read_arrays(path, _KIND)
    try:
        return Played(metrics=arrays, **metadata)
    except TypeError as error:
        raise CheckpointError(f"{path}: not a file of played episodes: {error}") from None


def play(order: Play) -> Played:
    """Play what is not played yet, batch by batch, and keep it.

    Only whole batches are gone on from: the last bits of a network's values depend on the batch.
    """
    experiment, path = order.experiment, order.values_path
    replicas = experiment.evaluation.replicas
    done = read_played(path)
    if done is None or done.identity != order.identity():
        done = Played(order.identity())
    if done.n_episodes >= order.n_episodes:
        return done
    done = done.first(done.n_episodes // replicas * replicas)
    make_policy = order.make_policies()
    for first in range(done.n_episodes, order.n_episodes, replicas):
        batch = list(range(first, min(first + replicas, order.n_episodes)))
        done = _add(done, order, make_policy, batch)
        done.save(path)
    return done


def _add(
    done: Played,
    order: Play,
    make_policy: Callable[[str], Policy],
    batch: Sequence[int],
) -> Played:
    """Play a batch and add it."""
    start_s = time.perf_counter()
    env = make_plain_env(order.experiment, len(batch))
    policies = {name: make_policy(name) for name in order.experiment.zone_names}
    new = env.run(policies, order.split, batch, order.counted)
    del new[_LATENCY]
    return Played(
        identity=done.identity,
        metrics={
            name: np.concatenate([done.metrics[name], values]) if done.metrics else values
            for name, values in new.items()
        },
        n_decisions=done.n_decisions + env.decisions,
        decision_s=done.decision_s + env.decision_s,
        seconds=done.seconds + time.perf_counter() - start_s,
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None


def _main() -> int:
    try:
        play(Play.of_json(sys.argv[1]))
    except MarlSchedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
