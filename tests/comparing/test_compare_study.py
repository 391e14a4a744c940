from pathlib import Path

import pytest

from marl_sched.agents.heuristics import FIXED_RULES
from marl_sched.comparing.study import STUDIES, dump_study, load_study
from marl_sched.config import load_config
from marl_sched.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
STUDIED = {
    "algorithms": "base",
    "agent": "base",
    "corrections": "base",
    "distribution": "risk",
    "federation": "disjoint",
    "grid": "base",
    "resource-weights": "base",
    "rules": "base",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_overrides_of_our_studies_fit_the_configuration_they_are_for(path: Path) -> None:
    study, config = load_study(path), CONFIGS / f"{STUDIED[path.stem]}.yaml"
    for policy in study.policies:
        load_config(config, [*policy.set, *policy.evaluate])
    for setting in study.settings:
        met = config if setting.config is None else CONFIGS / setting.config
        experiment = load_config(met, setting.set)
        named = [*setting.takes, *setting.counts]
        if setting.adapt is not None:
            named += [*setting.adapt.zones, *setting.adapt.fresh]
            for policy in study.policies:
                load_config(met, [*setting.set, *policy.set, *setting.adapt.set])
        assert set(named) <= set(experiment.zone_names)


def test_study_is_written_as_it_is_read(tmp_path: Path) -> None:
    study = load_study(Path("federation"))
    assert load_study(written(tmp_path, dump_study(study))) == study


def test_default_study_has_every_rule_and_our_own_first() -> None:
    study = load_study()
    assert study.rule_names == [*FIXED_RULES, "tuned"]
    assert study.our_names == ["qrdqn"]


def test_only_leaves_the_named_policies_and_rules() -> None:
    study = load_study().only(["kube-default", "ppo"])
    assert (study.policy_names, study.rule_names) == (["ppo"], ["kube-default"])
    assert study.our_names == ["ppo"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policies: []\n", "policies = [], expected a list (at least 1)"),
        ("rules: [random]\n", "policies is missing, expected"),
        ("policies: [{nmae: a}]\n", "policies[0].name is missing"),
        ("policies: [{name: a, sets: []}]\n", "sets = [] is not a known key, expected one of name"),
        ("policies: [{name: a, set: [1]}]\n", "policies[0].set[0] = 1, expected a string"),
        ("policies: [{name: a}, {name: a}]\n", "policies[1].name = a, expected a name"),
        ("policies: [{name: random}]\n", "policies[0].name = random, expected a name"),
        ("policies: [{name: a, set: [seed=3]}]\n", "set[0] = seed=3, expected no seed"),
        (
            "policies: [{name: a, evaluate: [workload.load=0.9]}]\n",
            "evaluate[0] = workload.load=0.9, expected agent.KEY=VALUE",
        ),
        ("policies: [{name: a}]\nrules: [kube]\n", "rules[0] = kube, expected rules or random,"),
        ("policies: [{name: a}]\nours: [b]\n", "ours[0] = b, expected names out of a"),
        (
            "policies: [{name: a}]\nsettings: [{name: x}, {name: x}]\n",
            "settings[1].name = x, expected every name once",
        ),
        *(
            (
                f"policies: [{{name: a}}]\nsettings: [{{name: own}}, {{name: {name}}}]\n",
                f"settings[1].name = {name}, expected the name of a folder beside runs, values, "
                "logs and the files of a comparison",
            )
            for name in ("runs", "values", "logs", "report.md", "evaluation.json")
        ),
        (
            "policies: [{name: a}]\nsettings: [{name: x, split: train}]\n",
            "settings[0].split = train, expected test or validation",
        ),
        (
            "policies: [{name: a}]\nsettings: [{name: x, adapt: {set: []}}]\n",
            "settings[0].adapt.zones is missing",
        ),
        (
            "policies: [{name: a}]\nsettings: [{name: x, adapt: {zones: [b], set: [seed=1]}}]\n",
            "settings[0].adapt.set[0] = seed=1, expected no seed",
        ),
        (
            "policies: [{name: a}, {name: b, of: [c]}]\n",
            "policies[1].of[0] = c, expected names out of a",
        ),
        (
            "policies: [{name: a}, {name: b, of: [a]}, {name: c, of: [b]}]\n",
            "policies[2].of[0] = b, expected names out of a",
        ),
        (
            "policies: [{name: a}, {name: b, of: [a], set: [agent.n_step=2]}]\n",
            "policies[1].set = ['agent.n_step=2'], expected none with `of`",
        ),
        ("policies: [{name: a, refine: 9}]\n", "policies[0].refine = 9, expected it with `of`"),
        (
            "policies: [{name: a}, {name: b, of: [a]}]\n"
            "settings: [{name: x, adapt: {zones: [z]}}]\n",
            "settings[0].adapt, expected none beside b, which is not trained",
        ),
        ("- a\n", "expected a mapping of keys"),
    ],
)
def test_bad_study_is_refused_by_key_value_and_what_is_allowed(
    text: str, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load_study(path)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)


def test_unknown_name_of_only_is_refused() -> None:
    with pytest.raises(ConfigError, match="--only sarsa: expected names out of qrdqn, double-dqn"):
        load_study().only(["sarsa"])
    with pytest.raises(ConfigError, match="--only random: expected at least one of qrdqn"):
        load_study().only(["random"])


def test_only_keeps_what_a_policy_is_made_of(tmp_path: Path) -> None:
    text = "policies: [{name: a}, {name: b}, {name: c}, {name: d, of: [a, c], refine: 5}]\n"
    study = load_study(written(tmp_path, text)).only(["d"])
    assert study.policy_names == ["a", "c", "d"]
    assert study.policies[-1].what == "a + c, refined in 5 evaluations"
