"""What a measurement of capacities plays: all policies over the same episodes at every load."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from marl_sched.comparing.capacity import (
    CAPACITY_FILE,
    VIOLATIONS,
    Capacity,
    load_capacity,
    measure,
)
from marl_sched.comparing.estimates import Estimates
from marl_sched.comparing.jobs import Evaluating
from marl_sched.comparing.playing import Play, load_cached, read_played
from marl_sched.comparing.trained import Trained
from marl_sched.config import Experiment
from marl_sched.config.hashing import environment_hash
from marl_sched.errors import ConfigError, RunError, TraceError
from marl_sched.evaluation import origin_of
from marl_sched.run_folder import RunFolder
from marl_sched.statistics import Bootstrap, Values
from marl_sched.workload.episodes import draw_workload

_SPLIT = "test"


@dataclass(frozen=True)
class LoadPlan:
    """A measurement of capacities.

    Attributes:
        config: The configuration.
        overrides: Of it.
        shares: Loads as shares of the configured one, rising.
        rules: Names of rules.
        learned: Trained policies.
        n_episodes: Test episodes; None: the configuration's.
        out: The folder of it all.
        tuned: Folder of the tuned weights; None: the default one.
    """

    config: Path
    overrides: tuple[str, ...]
    shares: tuple[float, ...]
    rules: tuple[str, ...]
    learned: tuple[Trained, ...]
    n_episodes: int | None
    out: Path
    tuned: Path | None
    _estimates: Estimates = field(default_factory=Estimates, init=False, repr=False)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment at its configured load."""
        experiment = load_cached(str(self.config), self.overrides)
        if self.n_episodes is None:
            return experiment
        evaluation = experiment.evaluation.model_copy(update={"episodes": self.n_episodes})
        return experiment.model_copy(update={"evaluation": evaluation})

    @cached_property
    def jobs(self) -> list[Evaluating]:
        """All evaluations, load by load."""
        return [job for share in self.shares for job in self._jobs_at(share)]

    def check(self) -> None:
        """Check all that can be known before anything is played.

        Raises:
            ConfigError: The configuration is not valid, a load is too small for its background use
                and waves, or there are no tuned weights.
            TraceError: A load is too large for its trace.
            CheckpointError: A run has no policy, or one that does not fit the configuration.
            RunError: The folder holds the capacities of another configuration.
        """
        self._check_folder()
        for share in self.shares:
            self._check_load(share)
        for job in self._jobs_at(1.0):
            job.order.make_policies()

    def measure(self, bound: float) -> Capacity:
        """Put together what was played; what lacks a load is left out.

        Args:
            bound: Largest mean rate of violations that a load may have.

        Raises:
            RunError: There is no policy that was played at all loads.
        """
        violations = {
            name: values
            for name, seeds in self._seeds.items()
            if (values := self._violations(name, seeds)) is not None
        }
        if not violations:
            raise RunError(f"{self.out}: no policy was played at all loads, nothing to compare")
        settings = self.experiment.evaluation
        bootstrap = Bootstrap(self.experiment.seed, settings.bootstrap_samples, settings.episodes)
        origin = origin_of(self.experiment, _SPLIT, settings.episodes) | {
            "environment_hash": environment_hash(self.experiment),
            "configured_load": self.experiment.workload.load,
        }
        return measure(self.shares, violations, bound, bootstrap, origin)

    @property
    def _seeds(self) -> dict[str, list[int]]:
        """Policy -> its training seeds, [0] for a rule; learned policies first."""
        learned = {policy.name: list(policy.runs) for policy in self.learned}
        return learned | {rule: [0] for rule in self.rules}

    def _violations(self, policy: str, seeds: list[int]) -> list[Values] | None:
        """Return L arrays (S, E) over the seeds that were played at all loads; None: no seed."""
        jobs = {(job.setting, job.seed): job for job in self.jobs if job.policy == policy}
        settings = [_setting(share) for share in self.shares]
        whole = [s for s in seeds if all(jobs[setting, s].is_done() for setting in settings)]
        if not whole:
            return None
        return [_stacked([jobs[setting, seed] for seed in whole]) for setting in settings]

    def _jobs_at(self, share: float) -> Iterator[Evaluating]:
        for rule in self.rules:
            yield self._job(share, rule, 0, rule=rule)
        for policy in self.learned:
            for seed, run in policy.runs.items():
                yield self._job(share, policy.name, seed, run=run, agent=policy.agent)

    def _job(
        self,
        share: float,
        policy: str,
        seed: int,
        *,
        rule: str = "",
        run: Path | None = None,
        agent: tuple[str, ...] = (),
    ) -> Evaluating:
        name = f"{policy}-{seed}" if seed else policy
        place = f"load-{share:g}"
        order = Play(
            config=str(self.config),
            overrides=self._overrides(share),
            n_episodes=self.experiment.evaluation.episodes,
            values=str(self.out / "values" / place / f"{name}.npz"),
            rule=rule,
            tuned=str(self.tuned or ""),
            run="" if run is None else str(run),
            agent_config=str(RunFolder(run).config_path) if run is not None and agent else "",
            agent=agent,
            split=_SPLIT,
        )
        cost = self._estimates.playing_s(order.experiment, order.n_episodes, bool(rule))
        log = self.out / "logs" / place / f"{name}.log"
        return Evaluating(policy, seed, _setting(share), order, log, (), cost)

    def _overrides(self, share: float) -> tuple[str, ...]:
        """Return the overrides that scale the load, that of zones with one of their own too."""
        experiment = self.experiment
        loads = {"workload.load": experiment.workload.load}
        loads |= {
            f"zones[{index}].load": zone.load
            for index, zone in enumerate(experiment.zones)
            if zone.load is not None
        }
        scaled = [f"{key}={load * share:.12g}" for key, load in loads.items()]
        return (*self.overrides, *scaled)

    def _check_load(self, share: float) -> None:
        """Check that the first test episode can be drawn."""
        try:
            experiment = load_cached(str(self.config), self._overrides(share))
            for zone in experiment.zones:
                draw_workload(experiment, zone, _SPLIT, 0)
        except (ConfigError, TraceError) as error:
            raise type(error)(f"at {share:g} of the configured load: {error}") from None

    def _check_folder(self) -> None:
        if not (self.out / CAPACITY_FILE).exists():
            return
        found = load_capacity(self.out).origin.get("environment_hash")
        if found != environment_hash(self.experiment):
            raise RunError(
                f"{self.out}: holds the capacities of another configuration; give another folder: "
                "--out FOLDER"
            )


def _setting(share: float) -> str:
    return f"load {share:g}"


def _stacked(jobs: list[Evaluating]) -> Values:
    """Return (S, E) violations of jobs that are done."""
    played = [(job, read_played(job.order.values_path)) for job in jobs]
    return np.stack(
        [one.first(job.order.n_episodes).metrics[VIOLATIONS] for job, one in played if one]
    )
