import inspect
from pathlib import Path

import pytest
import typer

from marl_sched.commands.demo import demo
from marl_sched.commands.evaluating import evaluate
from marl_sched.commands.training import train
from marl_sched.commands.tuning import tune


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(demo, []), (train, ["a.yaml"]), (evaluate, ["a.yaml"]), (tune, ["a.yaml"])],
)
def test_defaults_of_a_command_pass_its_own_parsers(function: object, arguments: list[str]) -> None:
    app = typer.Typer()
    app.command()(function)  # type: ignore[type-var]
    context = typer.main.get_command(app).make_context("it", arguments)
    assert set(context.params) == set(inspect.signature(function).parameters)  # type: ignore[arg-type]
    if function is demo:
        assert context.params["out"] == Path("runs/demo")
