"""The commands of `marl-sched`, one module a command or group of commands.

To add one: write a module here with a function whose docstring is the help text (one line, then
`Examples:`) and whose parameters are Typer's arguments and options (`options.py` has the shared
ones), or for a group with a `typer.Typer(add_completion=False)` that has a callback; then add a
line to COMMANDS. A command module imports what it needs at its top, torch and Flower too: it is
loaded only when its command runs, and nothing but the command line loads it.

Results go to stdout (`typer.echo`), progress and talk to stderr (`progress.py`). A command that
writes files ends by saying where, and what to run next. To stop on Ctrl-C with a word about the
checkpoint: `raise KeyboardInterrupt("stopped after round 3; go on with: ...")`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A command that has not been loaded yet."""

    target: str
    """`MODULE:NAME` of a function or a `typer.Typer`; the module is below marl_sched.commands."""
    summary: str
    """First line of its help, shown by `marl-sched --help` without loading it."""


COMMANDS = {
    "demo": Entry(
        "demo:demo",
        "Train three zones on a real hour of Alibaba's cluster and compare them with rules.",
    ),
    "train": Entry(
        "training:train", "Train the zones' agents and average them, all in this process."
    ),
    "federate": Entry(
        "federate:federate",
        "Train like `train`, every zone in a process of its own; weights travel over Flower.",
    ),
    "evaluate": Entry(
        "evaluating:evaluate",
        "Compare policies over the same held-out episodes; write a report and plots.",
    ),
    "compare": Entry(
        "compare:compare",
        "Train policies with several seeds each, and compare them with rules on held-out episodes.",
    ),
    "capacity": Entry(
        "capacity:capacity",
        "Find the largest offered load at which few instances finish late, policy by policy.",
    ),
    "tune": Entry(
        "tuning:tune",
        "Tune the weights of the rule `tuned`: random search, then steps around the best.",
    ),
    "refine": Entry(
        "refining:refine",
        "Refine what trained policies decide by: margin, shares and rule, on the tune split.",
    ),
    "prune": Entry(
        "prune:prune",
        "Make a run's network smaller, and say what that costs and saves.",
    ),
    "trace": Entry(
        "trace:trace",
        "Turn raw traces into task tables, describe them, or generate tables like them.",
    ),
    "compile": Entry(
        "compiling:compile_kernels",
        "Compile the kernels of simulator, learner and exchange, if they are not yet.",
    ),
    "zone": Entry(
        "zone:zone",
        "Be a zone of a run on this host: train where the coordinator is told so, until stopped.",
    ),
    "scaleout": Entry(
        "scaleout:scaleout",
        "Run the federation at several sizes, measure what it costs, and project larger ones.",
    ),
    "certificates": Entry(
        "certificates:certificates",
        "Make the coordinator's certificates; let new zones in, and put them out.",
    ),
    "compose": Entry(
        "compose:compose",
        "Print a compose file that runs an experiment, with a named service for every zone.",
    ),
    "stack": Entry(
        "stack:stack",
        "Be the coordinator of a stack of containers: train, compare, stay up with the report.",
    ),
    "dashboard": Entry(
        "dashboard:dashboard", "Show a run in the browser while it is made, or after."
    ),
    "show-config": Entry(
        "show_config:show_config",
        "Print a configuration with every default written out, or the JSON schema.",
    ),
}
"""All commands by name, in the order of `marl-sched --help`."""
