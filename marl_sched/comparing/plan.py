"""What a comparison will do: its jobs, in order, and about how long they take."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from marl_sched.agents.tuned import tuned_path
from marl_sched.comparing.adapting import Adapting
from marl_sched.comparing.estimates import Estimates
from marl_sched.comparing.folder import RUNS_FOLDER
from marl_sched.comparing.jobs import Evaluating, Job, Training
from marl_sched.comparing.playing import Play, load_cached
from marl_sched.comparing.refining import Refining
from marl_sched.comparing.study import DEFAULT_STUDY, Adapt, Setting, Study, StudyPolicy
from marl_sched.config import Experiment
from marl_sched.errors import ConfigError
from marl_sched.run_folder import RunFolder
from marl_sched.starting import DRAWN
from marl_sched.statistics import KUBE_DEFAULT, TUNED

_VALIDATION = "validation"


@dataclass(frozen=True)
class Plan:
    """A comparison.

    Attributes:
        config: The configuration.
        overrides: Of it.
        study: What is compared.
        n_seeds: Training seeds 1 .. n_seeds of every policy.
        n_episodes: Test episodes; None: the configuration's.
        out: The folder of it all.
        tuned: Folder of the tuned weights; None: the default one.
        study_file: Where the study stands, for messages.
    """

    config: Path
    overrides: tuple[str, ...]
    study: Study
    n_seeds: int
    n_episodes: int | None
    out: Path
    tuned: Path | None
    study_file: Path = DEFAULT_STUDY
    _estimates: Estimates = field(default_factory=Estimates, init=False, repr=False)

    @cached_property
    def experiment(self) -> Experiment:
        """The compared experiment."""
        return load_cached(str(self.config), self.overrides)

    @property
    def seeds(self) -> range:
        """The training seeds."""
        return range(1, self.n_seeds + 1)

    @property
    def tuned_weights(self) -> Path:
        """The file of the tuned rule's weights, be it there or not."""
        return tuned_path(self.experiment, self.tuned)

    def setting_experiment(self, setting: Setting) -> Experiment:
        """Return what policies meet in a setting; its seed is the configuration's own.

        Training seeds draw other training and validation episodes, and other first weights. All
        policies, whatever seed they were trained with, meet the same test episodes.
        """
        experiment = load_cached(*self._source(setting))
        if self.n_episodes is None:
            return experiment
        evaluation = experiment.evaluation.model_copy(update={"episodes": self.n_episodes})
        return experiment.model_copy(update={"evaluation": evaluation})

    def check(self) -> None:
        """Check all that can be known before anything runs.

        Raises:
            ConfigError: The configuration is not valid, an override of the study does not fit, or
                zones and policies do not; the message names the study and its policy or setting.
            RunError: The folder holds runs of another configuration.
        """
        _ = self.experiment
        for setting in self.study.settings:
            with self._naming(f"settings {setting.name}"):
                self._check_setting(setting)
        for policy in self.study.policies:
            with self._naming(f"policies {policy.name}, set"):
                self._training(policy, 1)
            with self._naming(f"policies {policy.name}, evaluate"):
                load_cached(str(self.config), (*self.overrides, *policy.set, *policy.evaluate))
        jobs: list[Training | Adapting | Refining]
        jobs = [*self.trainings, *self.adaptations, *self.refinings]
        for job in jobs:
            _ = job.experiment
            job.check()

    @cached_property
    def trainings(self) -> list[Training]:
        """All trainings, seed by seed, so that every policy has its first one early."""
        trained = [policy for policy in self.study.policies if policy.is_trained]
        return [self._training(policy, seed) for seed in self.seeds for policy in trained]

    @cached_property
    def refinings(self) -> list[Refining]:
        """All policies that are made of trained ones."""
        made = [policy for policy in self.study.policies if not policy.is_trained]
        return [self._refining(policy, seed) for seed in self.seeds for policy in made]

    @cached_property
    def adaptations(self) -> list[Adapting]:
        """All trainings that go on in a setting."""
        return [
            self._adapting(setting, setting.adapt, policy, seed)
            for seed in self.seeds
            for policy in self.study.policies
            for setting in self.study.settings
            if setting.adapt is not None
        ]

    @cached_property
    def evaluations(self) -> list[Evaluating]:
        """All evaluations in settings: rules first, they need no training."""
        found = [
            self._of_rule(setting, rule)
            for setting in self.study.settings
            for rule in self.study.rule_names
        ]
        return found + [
            self._of_run(setting, policy, seed)
            for seed in self.seeds
            for policy in self.study.policies
            for setting in self.study.settings
        ]

    @cached_property
    def yardsticks(self) -> list[Evaluating]:
        """Two rules on the validation episodes of every training seed, for the curves."""
        if not self.experiment.training.validation_episodes:
            return []
        return [
            self._yardstick(rule, seed)
            for rule in (KUBE_DEFAULT, TUNED)
            if rule in self.study.rule_names
            for seed in self.seeds
        ]

    @cached_property
    def jobs(self) -> list[Job]:
        """All jobs; what is cheap or was waited for comes first."""
        evaluations = list(self.evaluations)
        made: list[Job] = [*self.adaptations, *self.refinings]
        return [*evaluations, *made, *self.trainings, *self.yardsticks]

    @contextmanager
    def _naming(self, place: str) -> Iterator[None]:
        """Say of a configuration's error which part of the study makes it."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"{self.study_file}: {place}: {error}") from None

    def _check_setting(self, setting: Setting) -> None:
        names = self.setting_experiment(setting).zone_names
        for key, zones in _named_zones(setting).items():
            for zone in zones:
                if zone not in names:
                    raise ConfigError(
                        f"{key} names {zone}, expected names out of {', '.join(names)}"
                    )
        self._playing_s(self._order(setting, ""), is_rule=True)

    def _source(self, setting: Setting) -> tuple[str, tuple[str, ...]]:
        path = self.config if setting.config is None else self.config.parent / setting.config
        own = () if setting.config is not None else self.overrides
        return str(path), (*own, *setting.set)

    def _training(self, policy: StudyPolicy, seed: int) -> Training:
        name = f"{policy.name}-{seed}"
        overrides = (*self.overrides, *policy.set, f"seed={seed}")
        return Training(
            policy=policy.name,
            seed=seed,
            config=str(self.config),
            overrides=overrides,
            tuned=self.tuned,
            folder=self.out / RUNS_FOLDER / name,
            log=self.out / "logs" / f"train-{name}.log",
            cost_s=self._estimates.training_s(load_cached(str(self.config), overrides)),
        )

    def _refining(self, policy: StudyPolicy, seed: int) -> Refining:
        name = f"{policy.name}-{seed}"
        overrides = (*self.overrides, f"seed={seed}")
        experiment = load_cached(str(self.config), overrides)
        n_episodes = policy.refine * experiment.tuning.episodes if policy.refine > 1 else 0
        by_name = {one.name: one for one in self.study.policies}
        return Refining(
            policy=policy.name,
            seed=seed,
            config=str(self.config),
            overrides=overrides,
            origins=tuple(self._training(by_name[origin], seed) for origin in policy.of),
            n_evaluations=policy.refine,
            folder=self.out / RUNS_FOLDER / name,
            log=self.out / "logs" / f"refine-{name}.log",
            cost_s=self._estimates.playing_s(experiment, n_episodes, is_rule=False),
        )

    def _adapting(self, setting: Setting, adapt: Adapt, policy: StudyPolicy, seed: int) -> Adapting:
        name = f"{policy.name}-{seed}"
        config, own = self._source(setting)
        overrides = (*own, *policy.set, *adapt.set, f"seed={seed}")
        training = Training(
            policy=policy.name,
            seed=seed,
            config=config,
            overrides=overrides,
            tuned=self.tuned,
            folder=self._adapted(setting, name),
            log=self.out / "logs" / f"adapt-{setting.name}-{name}.log",
            cost_s=self._estimates.training_s(load_cached(config, overrides)),
        )
        takes = setting.takes | dict.fromkeys(adapt.fresh, DRAWN)
        return Adapting(setting.name, self._training(policy, seed), takes, training)

    def _adapted(self, setting: Setting, name: str) -> Path:
        """Return the folder of a policy's training in a setting."""
        return self.out / RUNS_FOLDER / "adapted" / setting.name / name

    def _of_rule(self, setting: Setting, rule: str) -> Evaluating:
        order = replace(self._order(setting, rule), rule=rule, tuned=str(self.tuned or ""))
        cost = self._playing_s(order, is_rule=True)
        return Evaluating(rule, 0, setting.name, order, self._log(setting, rule), (), cost)

    def _of_run(self, setting: Setting, policy: StudyPolicy, seed: int) -> Evaluating:
        name = f"{policy.name}-{seed}"
        run = self.out / RUNS_FOLDER / name
        order = replace(
            self._order(setting, name),
            run=str(run),
            takes=dict(setting.takes),
            agent_config=str(RunFolder(run).config_path) if policy.evaluate else "",
            agent=tuple(policy.evaluate),
        )
        needs = f"train {name}" if policy.is_trained else f"refine {name}"
        if setting.adapt is not None:
            needs = f"adapt {name} to {setting.name}"
            adapted = str(self._adapted(setting, name))
            order = replace(order, adapted=adapted, adapted_zones=tuple(setting.adapt.zones))
        log = self._log(setting, name)
        cost = self._playing_s(order, is_rule=False)
        return Evaluating(policy.name, seed, setting.name, order, log, (needs,), cost)

    def _yardstick(self, rule: str, seed: int) -> Evaluating:
        name = f"{rule}-{seed}"
        order = Play(
            config=str(self.config),
            overrides=(*self.overrides, f"seed={seed}"),
            n_episodes=self.experiment.training.validation_episodes,
            values=str(self.out / "values" / _VALIDATION / f"{name}.npz"),
            rule=rule,
            tuned=str(self.tuned or ""),
            split=_VALIDATION,
        )
        log = self.out / "logs" / f"{_VALIDATION}-{name}.log"
        return Evaluating(rule, seed, _VALIDATION, order, log, (), self._playing_s(order, True))

    def _order(self, setting: Setting, name: str) -> Play:
        source, overrides = self._source(setting)
        values = self.out / "values" / f"{setting.split}-{setting.name}" / f"{name}.npz"
        return Play(
            source,
            overrides,
            self.setting_experiment(setting).evaluation.episodes,
            str(values),
            split=setting.split,
            counted=tuple(setting.counts),
        )

    def _playing_s(self, order: Play, is_rule: bool) -> float:
        return self._estimates.playing_s(order.experiment, order.n_episodes, is_rule)

    def _log(self, setting: Setting, name: str) -> Path:
        return self.out / "logs" / f"evaluate-{setting.name}" / f"{name}.log"


def _named_zones(setting: Setting) -> dict[str, Iterable[str]]:
    """Return the zones that a setting names, by key."""
    named: dict[str, Iterable[str]] = {"takes": setting.takes, "counts": setting.counts}
    if setting.adapt is not None:
        named |= {"adapt.zones": setting.adapt.zones, "adapt.fresh": setting.adapt.fresh}
    return named
