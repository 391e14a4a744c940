"""What a comparison compares, as data: a YAML file of policies, rules and settings.

policies:                     # every one is trained with every training seed
  - name: qrdqn
  - {name: risk-averse, set: [agent.algorithm=qrdqn], evaluate: [agent.cvar_alpha=0.25]}
rules: [kube-default, tuned]
settings:                     # every policy and rule meets the test episodes of every setting
  - name: own
  - {name: busier, set: [workload.load=0.9]}
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from marl_sched.agents.heuristics import FIXED_RULES, RULES
from marl_sched.comparing.folder import RUNS_FOLDER
from marl_sched.config.base import WHOLE_FILE, Model, Name, PositiveInt
from marl_sched.config.loading import one_line, read_mapping
from marl_sched.config.messages import problems
from marl_sched.config.yaml_text import render_yaml
from marl_sched.errors import ConfigError

STUDIES = Path(__file__).parents[1] / "data" / "studies"
DEFAULT_STUDY = STUDIES / "algorithms.yaml"
ALL_RULES = "rules"
"""Stands for all fixed rules."""
_AGENT = "agent."
_AS_IT_IS = "the configuration as it is"
_NO_SETTINGS = (RUNS_FOLDER, "values", "logs")
"""Folders of a comparison beside those of its settings."""
_NO_SUFFIX = re.compile(r"\.(json|md|npz|png|yaml)$")
"""Files of a comparison beside the folders of its settings."""
TEST = "test"
"""The split of held-out episodes."""


class StudyPolicy(Model):
    """One learned policy: how its training and its choices differ from the configuration."""

    name: Name
    """What tables call it."""
    set: list[str] = Field(default=[])
    """Overrides of the configuration it is trained with, as in federation.strategy=none."""
    of: list[str] = Field(default=[])
    """Policies of the study, trained ones, that it is made of instead of being trained: their
    corrections of the rule are added up, seed by seed, as by `marl-sched refine`."""
    refine: PositiveInt = 1
    """With `of`: points of the search over margin, shares and rule; 1: none."""
    evaluate: list[str] = Field(default=[])
    """Overrides of `agent` that it decides with when it is evaluated, as in
    agent.cvar_alpha=0.25; what it meets is said by `settings`."""

    @property
    def what(self) -> str:
        """How it differs from the configuration, in a line."""
        evaluated = [f"(evaluated with {text})" for text in self.evaluate]
        made = [f"{' + '.join(self.of)}, refined in {self.refine} evaluations"] if self.of else []
        return " ".join([*made, *self.set, *evaluated]) or _AS_IT_IS

    @property
    def is_trained(self) -> bool:
        """Whether it has a training of its own."""
        return not self.of


class Adapt(Model):
    """Learning that goes on in a setting before policies are evaluated there."""

    zones: list[str] = Field(min_length=1)
    """Zones that decide by what was learnt in the setting; the others by what they brought."""
    set: list[str] = Field(default=[])
    """Overrides of that training, which is of the setting's configuration and the policy's own
    overrides, as in training.rounds=1."""
    fresh: list[str] = Field(default=[])
    """Zones that begin it with drawn weights; the others with the policy they decide by."""


class Setting(Model):
    """What all policies and rules are evaluated in."""

    name: Name
    """What tables call it."""
    config: str | None = None
    """Another configuration than the compared one, a file beside it; null: the compared one."""
    set: list[str] = Field(default=[])
    """Overrides, as in workload.load=0.9."""
    takes: dict[str, str] = Field(default={})
    """Zone -> the zone whose policy decides there, where zones have policies of their own and one
    was not there when they were trained; default: each its own."""
    counts: list[str] = Field(default=[])
    """Zones whose figures count; default: all."""
    split: Literal["test", "validation"] = "test"
    """Episodes that are played. What is chosen among policies is chosen on validation ones."""
    adapt: Adapt | None = None
    """Learning in the setting before it is evaluated; null: none."""

    @property
    def what(self) -> str:
        """How it differs from the configuration, in a line."""
        return " ".join([*([self.config] if self.config else []), *self.set]) or _AS_IT_IS


class Study(Model):
    """What a comparison compares."""

    policies: list[StudyPolicy] = Field(min_length=1)
    """Learned policies; all are trained."""
    rules: list[str] = Field(default=["rules", "tuned"])
    """Rules; `rules` stands for all fixed ones."""
    settings: list[Setting] = Field(default=[Setting(name="own")], min_length=1)
    """What they are evaluated in."""
    ours: list[str] = Field(default=[])
    """Policies whose ratio to every other learned one is given; default: the first."""

    @property
    def rule_names(self) -> list[str]:
        """Names of the rules, each once."""
        given = [FIXED_RULES if name == ALL_RULES else (name,) for name in self.rules]
        return list(dict.fromkeys(name for names in given for name in names))

    @property
    def policy_names(self) -> list[str]:
        """Names of the learned policies."""
        return [policy.name for policy in self.policies]

    @property
    def our_names(self) -> list[str]:
        """Names of the policies that are compared with all others."""
        return list(self.ours) or self.policy_names[:1]

    def only(self, names: Iterable[str]) -> "Study":
        """Return the study with fewer policies and rules.

        Raises:
            ConfigError: A name is neither; or no policy is left.
        """
        chosen = list(names)
        allowed = [*self.policy_names, *self.rule_names]
        for name in chosen:
            if name not in allowed:
                raise ConfigError(f"--only {name}: expected names out of {', '.join(allowed)}")
        made = [name for one in self.policies if one.name in chosen for name in one.of]
        policies = [policy for policy in self.policies if policy.name in (*chosen, *made)]
        if not policies:
            raise ConfigError(
                f"--only {','.join(chosen)}: expected at least one of "
                f"{', '.join(self.policy_names)}"
            )
        return self.model_copy(
            update={
                "policies": policies,
                "rules": [name for name in self.rule_names if name in chosen],
                "ours": [name for name in self.ours if name in chosen],
            }
        )

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        found = list(self._problems())
        if found:
            raise PydanticCustomError(WHOLE_FILE, "the parts do not fit", {"problems": found})
        return self

    def _problems(self) -> Iterator[str]:
        yield from self._policy_problems()
        for index, name in enumerate(self.rules):
            if name not in (*RULES, ALL_RULES):
                yield f"rules[{index}] = {name}, expected {ALL_RULES} or {', '.join(RULES)}"
        names = [setting.name for setting in self.settings]
        for index, setting in enumerate(self.settings):
            if setting.name in names[:index]:
                yield f"settings[{index}].name = {setting.name}, expected every name once"
            if setting.name in _NO_SETTINGS or _NO_SUFFIX.search(setting.name):
                yield (
                    f"settings[{index}].name = {setting.name}, expected the name of a folder "
                    f"beside {', '.join(_NO_SETTINGS)} and the files of a comparison"
                )
            yield from _seeds(f"settings[{index}].set", setting.set)
            if setting.adapt is not None:
                yield from self._made_ones(f"settings[{index}].adapt")
                yield from _seeds(f"settings[{index}].adapt.set", setting.adapt.set)

    def _policy_problems(self) -> Iterator[str]:
        for index, policy in enumerate(self.policies):
            path = f"policies[{index}]"
            if policy.name in (*RULES, ALL_RULES, *self.policy_names[:index]):
                yield f"{path}.name = {policy.name}, expected a name that no rule or policy has"
            yield from _seeds(f"{path}.set", policy.set)
            yield from self._origin_problems(path, policy)
            for number, text in enumerate(policy.evaluate):
                if not text.strip().startswith(_AGENT):
                    yield (
                        f"{path}.evaluate[{number}] = {text}, expected agent.KEY=VALUE; what "
                        "policies meet is said by `settings`"
                    )
        for index, name in enumerate(self.ours):
            if name not in self.policy_names:
                allowed = ", ".join(self.policy_names)
                yield f"ours[{index}] = {name}, expected names out of {allowed}"

    def _made_ones(self, path: str) -> Iterator[str]:
        for policy in self.policies:
            if policy.of:
                yield f"{path}, expected none beside {policy.name}, which is not trained (`of`)"

    def _origin_problems(self, path: str, policy: StudyPolicy) -> Iterator[str]:
        trained = [one.name for one in self.policies if one.is_trained]
        for number, name in enumerate(policy.of):
            if name not in trained:
                allowed = ", ".join(trained) or "trained policies"
                yield f"{path}.of[{number}] = {name}, expected names out of {allowed}"
        if policy.of and policy.set:
            yield f"{path}.set = {policy.set}, expected none with `of`: it is not trained"
        if policy.refine > 1 and not policy.of:
            yield f"{path}.refine = {policy.refine}, expected it with `of` only"


def study_path(path: Path | None = None) -> Path:
    """Return the file of a study: a path, the name of one of ours, or without it the default."""
    ours = DEFAULT_STUDY if path is None else STUDIES / f"{path}.yaml"
    is_given = path is not None and (path.is_file() or not ours.exists())
    return path if path is not None and is_given else ours


def load_study(path: Path | None = None) -> Study:
    """Read a study; without a file, that of all learning algorithms.

    Args:
        path: A file, or the name of a study that comes with the package.

    Raises:
        ConfigError: It cannot be read, or a key or value is not valid; the message names file, key,
            value and what is allowed.
    """
    path = study_path(path)
    try:
        return Study.model_validate(read_mapping(path))
    except ValidationError as error:
        found = problems(error, Study)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise ConfigError(one_line(f"{path}: {found[0]}{more}"))


def dump_study(study: Study) -> str:
    """Return a study as YAML, every field written out."""
    return render_yaml(study.model_dump(mode="json"))


def _seeds(path: str, overrides: Iterable[str]) -> Iterator[str]:
    """Yield overrides of the seed: training seeds are counted, test episodes are the config's."""
    for number, text in enumerate(overrides):
        if text.partition("=")[0].strip() == "seed":
            yield f"{path}[{number}] = {text}, expected no seed: --training-seeds counts them"
