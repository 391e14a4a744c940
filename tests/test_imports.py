"""Which way imports run: read from the source, so that none can hide in a function."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("marl_sched", "zones", "federation", "dashboard")

# A module may import the modules of its own part, those of the parts named here, and LEAVES.
LEAVES = {
    "marl_sched.array_reading",
    "marl_sched.errors",
    "marl_sched.files",
    "marl_sched.fit_check",
    "marl_sched.kernel_cache",
    "marl_sched.log_lines",
}
LOW = {"marl_sched.config", "marl_sched.observation"}
SIMULATION = {*LOW, "marl_sched.workload", "marl_sched.cluster"}
ALLOWED: dict[str, set[str]] = {
    "marl_sched.errors": set(),
    "marl_sched.files": set(),
    "marl_sched.fit_check": set(),
    "marl_sched.kernel_cache": set(),
    "marl_sched.log_lines": set(),
    "marl_sched.config": set(),
    "marl_sched.observation": {"marl_sched.config"},
    "marl_sched.workload": LOW,
    "marl_sched.cluster": {*LOW, "marl_sched.workload"},
    "marl_sched.envs": SIMULATION,
    "marl_sched.agents": LOW,
    "marl_sched.distillation": {*SIMULATION, "marl_sched.envs", "marl_sched.agents"},
    "zones": {"marl_sched"},
    "federation": {"marl_sched", "zones"},
    "dashboard": {"marl_sched", "zones.view"},
}
# The face of the package and the command line are put together from everything.
COMPOSITION = ("marl_sched", "marl_sched.cli", "marl_sched.commands")

# Only these modules, and those below them, may import what is named.
HOMES: dict[str, tuple[str, ...]] = {
    "flwr": ("federation",),
    "pettingzoo": ("marl_sched.envs",),
    "gymnasium": ("marl_sched.envs",),
    "torch": ("marl_sched.agents", "marl_sched.distillation", "zones", "federation.weights"),
    "grpc": ("zones", "federation"),
    "socket": ("zones", "federation", "dashboard"),
    "fastapi": ("dashboard",),
    "starlette": ("dashboard",),
    "uvicorn": ("dashboard",),
    "click": ("marl_sched.cli",),
    "typer": ("marl_sched.cli", "marl_sched.commands"),
    "pickle": (),
    "random": (),
}
PUBLIC_FLOWER = ("flwr.app", "flwr.serverapp", "flwr.clientapp")
HEAVY = {"torch", "flwr", "matplotlib", "pettingzoo", "numba", "polars"}


@dataclass(frozen=True)
class Import:
    module: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}"


def is_in(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imports_of(path: Path) -> Iterator[Import]:
    module = module_name(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(module, name.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for name in node.names:
                full = f"{node.module}.{name.name}"
                imported = full if is_module(full) else str(node.module)
                yield Import(module, imported, node.lineno)


SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
IMPORTS = [found for path in SOURCES for found in imports_of(path)]
OURS = [found for found in IMPORTS if found.imported.split(".")[0] in PACKAGES]


def part_of(module: str) -> str | None:
    return next((part for part in ALLOWED if is_in(module, part)), None)


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 20
    assert any(found.imported == "marl_sched.errors" for found in OURS)


def test_parts_import_only_what_lies_below_them() -> None:
    wrong = []
    for found in OURS:
        part = part_of(found.module)
        if part is None:
            continue
        allowed = {part, *ALLOWED[part], *LEAVES}
        if not any(is_in(found.imported, other) for other in allowed):
            wrong.append(str(found))
    assert wrong == []


def test_modules_beside_the_parts_belong_to_the_library() -> None:
    """evaluation, report and the like: on all of marl_sched, never on zones or federation."""
    wrong = [
        str(found)
        for found in OURS
        if part_of(found.module) is None
        and not any(is_in(found.module, name) for name in COMPOSITION[1:])
        and found.module != "marl_sched"
        and not is_in(found.imported, "marl_sched")
    ]
    assert wrong == []


def test_nothing_imports_the_command_line() -> None:
    """The library does not; commands are loaded by name, but may share their helpers."""
    wrong = [
        str(found)
        for found in OURS
        if is_in(found.imported, "marl_sched.cli")
        or (
            is_in(found.imported, "marl_sched.commands")
            and not is_in(found.module, "marl_sched.commands")
            and found != Import("marl_sched.cli", "marl_sched.commands", found.line)
        )
    ]
    assert wrong == []


def test_only_the_version_is_imported_from_the_face_of_the_package() -> None:
    assert {found.module for found in OURS if found.imported == "marl_sched"} <= {
        "marl_sched.cli",
        "marl_sched.commands",
    }


@pytest.mark.parametrize("library", HOMES)
def test_outside_libraries_are_imported_only_at_home(library: str) -> None:
    homes = HOMES[library]
    wrong = [
        str(found)
        for found in IMPORTS
        if is_in(found.imported, library) and not any(is_in(found.module, home) for home in homes)
    ]
    assert wrong == []


def test_private_names_of_flower_are_in_one_module() -> None:
    wrong = [
        str(found)
        for found in IMPORTS
        if is_in(found.imported, "flwr")
        and found.module != "federation.flower_private"
        and not any(is_in(found.imported, public) for public in PUBLIC_FLOWER)
    ]
    assert wrong == []


def test_only_few_import_by_name() -> None:
    """A name in a string would hide from the tests above."""
    by_name = {
        module_name(path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr == "import_module")
        or (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
    }
    assert by_name <= {"marl_sched", "marl_sched.cli", "marl_sched.workload.traces"}


def loaded_after(code: str) -> set[str]:
    """Return which heavy libraries a fresh interpreter has loaded after some code."""
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return HEAVY & set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import marl_sched") == set()


def test_showing_a_configuration_loads_nothing_heavy() -> None:
    code = "from marl_sched.cli import run\nassert run(['show-config', 'configs/base.yaml']) == 0"
    assert loaded_after(code) == set()


def test_help_loads_no_command() -> None:
    code = "from marl_sched.cli import run\nassert run(['--help']) == 0"
    assert loaded_after(code) == set()


def test_rules_run_without_torch_and_flower() -> None:
    code = """
from marl_sched.agents.heuristics import make_policy
from marl_sched.config import load_config
from marl_sched.observation import Layout
experiment = load_config("configs/base.yaml")
make_policy("kube-default", Layout(tuple(experiment.resources)), experiment)
"""
    assert not loaded_after(code) & {"torch", "flwr"}


def test_the_dashboard_waits_for_no_library_of_a_run() -> None:
    assert not loaded_after("import marl_sched.commands.dashboard") & HEAVY


def test_a_zone_loads_nothing_that_only_traces_and_reports_need() -> None:
    loaded = loaded_after("import marl_sched.commands.zone")
    assert loaded == {"torch", "flwr", "numba"}


def test_comparing_rules_waits_for_neither_torch_nor_flower() -> None:
    assert not loaded_after("import marl_sched.commands.evaluating") & {
        "torch",
        "flwr",
        "pettingzoo",
    }
