"""Bad configurations: one line with file, key, value and what is allowed, and exit code 2."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from marl_sched.cli import run
from marl_sched.config import load_config
from marl_sched.errors import ConfigError

BASE = Path(__file__).parents[2] / "configs" / "base.yaml"
TEXT = BASE.read_text(encoding="utf-8")
TRACE = ["workload={kind: trace, path: x}", *(f"zones[{zone}].mix=null" for zone in range(3))]
BACKGROUND = "zones[0].background"

# What is overridden, and what the message says after `FILE with --set ...: `.
BAD_VALUES = {
    "foo=1": "foo = 1 is not a known key, expected one of version, name, seed, resources, ",
    "agent.foo=x": "agent.foo = x is not a known key, expected one of algorithm, prior, ",
    "zones[1].machines[0].foo=1": "zones[1].machines[0].foo = 1 is not a known key, expected one "
    "of count, capacity, ",
    "workload.streams[0].arrivals.period_s=3": "workload.streams[0].arrivals.period_s = 3 is not a "
    "known key, expected one of kind, calm_s, ",
    "version=2": "version = 2, expected 1",
    "version=true": "version = true, expected 1",
    "name=no spaces": "name = no spaces, expected a name (a letter, then ",
    'name="a\\n"': "name = 'a ', expected a name",
    "seed=": "seed = null, expected an integer >= 0",
    "seed=-1": "seed = -1, expected an integer >= 0",
    "seed=1e30": "seed = 1.0e+30, expected a number of at most 1e+12",
    "zones=[]": "zones = [], expected a list (at least 1) of mappings with the keys name, ",
    "zones[1].machines=[]": "zones[1].machines = [], expected a list (at least 1) of mappings",
    "zones[1].machines=": "zones[1].machines = null, expected a list (at least 1) of mappings",
    "zones[1].machines[0].count=-4": "zones[1].machines[0].count = -4, expected an integer > 0",
    "zones[1].machines[0].count=2.0": "zones[1].machines[0].count = 2.0, expected an integer > 0",
    "zones[1].machines[0].count=true": "zones[1].machines[0].count = true, expected an integer > 0",
    "zones[1].machines[0].count=1000000": "zones[1] has 1000014 machines, expected at most 100000",
    "zones[0].machines[1].capacity.cpu_milli=16 cores": "zones[0].machines[1].capacity.cpu_milli = "
    "16 cores, expected an integer >= 0",
    "zones[0].machines[1].capacity.cpu_milli=-1": "zones[0].machines[1].capacity.cpu_milli = -1, "
    "expected an integer >= 0",
    "zones[0].machines[1].capacity.cpu_milli=0": "zones[0].machines[1].capacity.cpu_milli = 0, "
    "expected an integer > 0: only resources after memory_mib may be 0",
    "zones[0].machines[1].capacity.memory_mib=0": "zones[0].machines[1].capacity.memory_mib = 0, "
    "expected an integer > 0: only resources after memory_mib may be 0",
    "zones[0].machines[0].capacity={cpu_milli: 1000}": "zones[0].machines[0].capacity has the keys "
    "cpu_milli, expected exactly cpu_milli, memory_mib",
    "zones[0].machines[0].capacity={1: 2}": "zones[0].machines[0].capacity.1 = 1, expected names",
    "zones[0].machines[0].reserved={gpu: 1}": "zones[0].machines[0].reserved.gpu = 1, expected a "
    "resource of the machine and less than its capacity, none",
    "zones[0].machines[0].reserved={cpu_milli: 16000}": "zones[0].machines[0].reserved.cpu_milli = "
    "16000, expected a resource of the machine and less than its capacity, 16000",
    "zones[1].name=zone_0": "zones[1].name = zone_0, expected a name that does not stand there yet",
    "reward.resource_weighting=running": "reward.resource_weighting = running, expected fixed, "
    "adaptive",
    "reward={resource_weights: {cpu_milli: 0, memory_mib: 0}}": "reward.resource_weights = "
    "{cpu_milli: 0.0, memory_mib: 0.0}, expected a weight above 0 of one of cpu_milli, memory_mib",
    "reward={resource_weighting: adaptive, resource_weights: {cpu_milli: 2}}": "reward."
    "resource_weights = {cpu_milli: 2.0}, expected none with reward.resource_weighting = adaptive",
    "reward={name: composite, resource_weighting: adaptive}": "reward.resource_weighting = "
    "adaptive, expected fixed with reward.name = composite",
    "zones[0].load=0": "zones[0].load = 0, expected a number > 0 or null",
    "zones[0].load.x=1": "zones[0].load = {x: 1}, expected a number > 0 or null",
    "zones[0].mix={gpu: 1}": "zones[0].mix = {gpu: 1.0}, expected shares of web, etl, train, ",
    "zones[0].mix={web: 0}": "zones[0].mix = {web: 0.0}, expected shares of web, etl, train, ",
    "zones[0].machine_events=[{at_s: 1, machine: 20, kind: fail}]": "zones[0].machine_events[0]."
    "machine = 20, expected an index below the zone's 20 machines",
    "zones[0].failures={}": "zones[0].failures.mean_up_s is missing, expected a number > 0 (and 1",
    f"{BACKGROUND}={{mean: {{cpu_milli: .2}}, step_s: 7}}": f"{BACKGROUND}.step_s = 7.0, expected "
    "a multiple of cluster.window_s = 5.0",
    f"{BACKGROUND}={{mean: {{gpu: .2}}}}": f"{BACKGROUND}.mean names gpu, expected names out of ",
    "cluster.digest_period_s=7": "cluster.digest_period_s = 7.0, expected a multiple of "
    "cluster.window_s = 5.0",
    "cluster.digest_period_s=2.5": "cluster.digest_period_s = 2.5, expected a multiple of ",
    "cluster.window_s=0": "cluster.window_s = 0, expected a number > 0",
    "cluster.window_s=1e-9": "cluster.window_s = 1e-09, expected at least 0.000001",
    "cluster.window_s=0.001": "cluster.window_s = 0.001, expected at most 1000000 windows in an ",
    "cluster.interference=.nan": "cluster.interference = .nan, expected a number >= 0",
    "cluster.interference=.inf": "cluster.interference = .inf, expected a number >= 0",
    "cluster.interference=yes": "cluster.interference = yes, expected a number >= 0",
    "cluster.placement=maked": "cluster.placement = maked, expected masked or unmasked",
    "episode.measured_from=1.5": "episode.measured_from = 1.5, expected a number >= 0 and <= 1",
    "resources=[cpu_milli]": "resources = [cpu_milli], expected a list (at least 2) of names",
    "objective.imbalance_resources=[gpu]": "objective.imbalance_resources names gpu, expected ",
    "workload=3": "workload = 3, expected a mapping with kind: synthetic or trace",
    "workload={}": "workload.kind is missing, expected synthetic or trace",
    "workload.kind=tarce": "workload.kind = tarce, expected synthetic or trace",
    "workload.task_types[5].request.cpu_milli=64000": "workload.task_types[5].request = {cpu_milli:"
    " 64000, memory_mib: 32768}, expected that times 1 + request_jitter = 1.25 fits on a machine; ",
    "workload.task_types[5].request={}": "workload.task_types[5].request has the keys none, expect",
    "workload.task_types[5].request.cpu_milli=0": "workload.task_types[5].request.cpu_milli = 0, "
    "expected an integer > 0: only resources after cpu_milli may be 0",
    "workload.task_types[5].request.memory_mib=-1": "workload.task_types[5].request.memory_mib = "
    "-1, expected an integer >= 0",
    "workload.task_types[1].use={cpu_milli: {mean: 1, sd: 0}}": "workload.task_types[1].use has "
    "the keys cpu_milli, expected exactly cpu_milli, memory_mib",
    "workload.task_types[1].name=web": "workload.task_types[1].name = web, expected a name that ",
    "workload.task_types[1].use.cpu_milli.low=2": "workload.task_types[1].use.cpu_milli.low = 2.0, "
    "expected at most high = 1.3",
    "workload.streams[0].stage_probabilities=[.5, .2]": "workload.streams[0].stage_probabilities = "
    "[0.5, 0.2], expected a sum of 1",
    "workload.streams[0].arrivals={kind: waves, min_tasks: 3, max_tasks: 2}": "workload.streams[0]."
    "arrivals.min_tasks = 3, expected at most max_tasks = 2",
    "agent.cvar_alpha=0": "agent.cvar_alpha = 0, expected a number > 0 and <= 1",
    "agent.hidden=[8, -2]": "agent.hidden[1] = -2, expected an integer > 0",
    "evaluation.policies=[1]": "evaluation.policies[0] = 1, expected a string",
    "federation.quorum=4": "federation.quorum = 4, expected at most the number of zones, 3",
}  # fmt: skip


@pytest.mark.parametrize("override", BAD_VALUES)
def test_bad_value_is_named_with_what_is_allowed(override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(BASE, [override])
    given, message = f"{BASE} with --set {override}: ".replace("\n", "\\n"), str(caught.value)
    assert message.startswith(given + BAD_VALUES[override])
    assert "\n" not in message


BAD_OVERRIDES = {
    "seed": "expected key=value with a key like zones[0].load",
    "=3": "expected key=value",
    "a..b=1": "expected key=value",
    "[0]=1": "expected key=value",
    "zones[x].load=1": "expected key=value",
    "zones[-1].load=1": "expected key=value",
    "zones[3].load=1": "zones[3] does not exist, expected an index of 0 to 2",
    "zones.load=1": "has no key load, it is no mapping",
    "name[0]=x": "name = base has no index 0, it is no list",
    "name.x=1": "name = base has no key x, it is no mapping",
    "cluster[0]=1": "has no index 0, it is no list",
    "seed=[": "not valid YAML: line 1: ",
    "seed={a: 1, a: 2}": "not valid YAML: line 1: the key 'a' stands here twice",
}


@pytest.mark.parametrize("override", BAD_OVERRIDES)
def test_bad_override_is_named(override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(BASE, [override])
    assert str(caught.value).startswith(f"--set {override}: ")
    assert BAD_OVERRIDES[override] in str(caught.value)


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
BAD_FILES = {
    "empty": (b"", "the file is empty, expected a mapping of keys"),
    "comments only": (b"# nothing\n", "the file is empty, expected a mapping of keys"),
    "a list": (b"- 1\n- 2\n", "[1, 2], expected a mapping of keys"),
    "a scalar": (b"hello", "hello, expected a mapping of keys"),
    "not YAML": (b"zones: [1, 2", "not valid YAML: line 1: "),
    "a tab": (b"version: 1\n\tname: x\n", "not valid YAML: line 2: found character"),
    "binary": (b"PAR1\x00\x01", "not valid YAML: unacceptable character #x0000"),
    "not UTF-8": (TEXT.encode() + b"# \xe9\n", "not UTF-8: byte "),
    "UTF-16": (TEXT.encode("utf-16"), "not UTF-8: byte 0 is 0xff"),
    "a key twice": (TEXT.encode() + b"seed: 2\n", "the key 'seed' stands here twice"),
    "an inner key twice": (b"a: {b: 1, b: 2}\n", "line 1: the key 'b' stands here twice"),
    "aliases": (BOMB.encode(), "line 2: aliases like *a are not read, expected the value written"),
    "a tag": (b"a: !!python/name:os.system x\n", "line 1: tags like tag:yaml.org,2002:python/name"),
    "two documents": (b"a: 1\n---\nb: 2\n", "line 2: but found another document"),
    "a list as a key": (b"{[1]: 2}\n", "line 1: found unhashable key"),
    "deep nesting": (b"a: " + b"[" * 5000, "expected at most 30 levels of nesting"),
    "a long integer": (b"seed: " + b"9" * 5000, "not valid YAML: "),
    "five MiB": (b"#" * (5 << 20), "expected at most 4 MiB of YAML"),
    "a key missing": (TEXT.replace("name: base\n", "").encode(), "name is missing, expected a"),
    "a number as a key": (TEXT.encode() + b"7: x\n", "7 is not a known key, expected one of ver"),
    "a line break in a key": (TEXT.encode() + b'"a\\nb": x\n', "a\\nb = x is not a known key"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_one_line_and_exit_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD_FILES[name]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    assert run(["show-config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {path}: ")
    assert message in err
    assert err.count("\n") == 1


def test_duplicate_key_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("version: 1\nname: x\nversion: 1\n")
    with pytest.raises(ConfigError, match="line 3: the key 'version' stands here twice"):
        load_config(path)


@pytest.mark.parametrize("path", [BASE.parent, BASE.parent / "nowhere.yaml", Path("a\0b")])
def test_path_that_is_no_file_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: "):
        load_config(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["workload.train_arrivals_s=[0]"], r"train_arrivals_s = \[0\], expected a list \(exactly"),
        (["workload.test_arrivals_s=[0, 60]"], r"test_arrivals_s = \[0.0, 60.0\], expected a span"),
        (
            ["episode.horizon_s=900", "workload.test_arrivals_s=[1000, 3600]"],
            "expected no overlap with train_arrivals_s = ",
        ),
        (["zones[0].mix={web: 1}"], r"zones\[0\].mix is given, expected none: a trace has no"),
    ],
)
def test_bad_trace_workload_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(BASE, [*TRACE, *overrides])


def test_further_problems_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"expected an integer >= 0 \(and 2 more\)$"):
        load_config(BASE, ["seed=x", "agent.kappa=-1", "sla.late_factor=-1"])


def test_a_problem_elsewhere_is_not_blamed_on_an_override(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(TEXT.replace("load: 0.78", "load: -1"))
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["seed=3"])
    assert str(caught.value) == f"{path}: workload.load = -1, expected a number > 0"


def refusal(path: Path, *overrides: str) -> str | None:
    """Return why a configuration is refused, or None; anything but a ConfigError goes through."""
    try:
        load_config(path, overrides)
    except ConfigError as error:
        return str(error)
    return None


TOKENS = st.sampled_from(
    ["", "-1", "1e400", ".nan", "~", "[", "{", "}", ": ", "&a ", "*a", "!!int ", "'", "\n", "- ",
     "true", "\t", "\0", "é", "0x_", "9" * 30, "2001-99-99", "<<: ", "? ", "|", "%YAML 9\n---\n"]
)  # fmt: skip
PIECES = [piece.span() for piece in re.finditer(r"[\w.]+|[\[\]{}:,\n-]", TEXT)]


@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.lists(
        st.tuples(st.sampled_from(PIECES), TOKENS | st.text(max_size=4)), min_size=1, max_size=3
    )
)
@example([(PIECES[0], "")])
def test_mutated_file_is_an_experiment_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[tuple[int, int], str]]
) -> None:
    text = TEXT
    for (start, end), replacement in sorted(cuts, reverse=True):
        text = text[:start] + replacement + text[end:]
    path = tmp_path_factory.getbasetemp() / "mutated.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    error = refusal(path)
    assert error is None or (error.startswith(f"{path}: ") and "\n" not in error)


KEYS = [
    "seed",
    "zones",
    "zones[0].machines[1].capacity",
    "workload",
    "workload.streams[0].arrivals",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "name", "mix", "cpu_milli"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.sampled_from(KEYS), VALUES)
def test_any_value_is_an_experiment_or_a_config_error(key: str, value: object) -> None:
    from_python = repr(value).replace("None", "null").replace("True", "true")
    error = refusal(BASE, f"{key}={from_python}")
    assert error is None or "\n" not in error
