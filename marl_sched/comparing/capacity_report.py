"""The report of a measurement of capacities, for its report.md and for docs/results.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from marl_sched.agents.heuristics import RULES
from marl_sched.comparing.capacity import BASELINES, VIOLATIONS, Capacity
from marl_sched.comparing.crossing import ABOVE, BELOW, Crossing
from marl_sched.comparing.drawing import plot_violations
from marl_sched.comparing.tables import check_table
from marl_sched.comparing.verdicts import load_bars, load_checks
from marl_sched.config import Experiment, dump_config
from marl_sched.files import write_atomically
from marl_sched.report_tables import markdown_table, show_interval, show_number

CAPACITY_PLOT = "capacity.png"
ABOUT_FILE, CONFIG_FILE, REPORT_FILE = "about.md", "config.yaml", "report.md"


def save(capacity: Capacity, folder: Path, command: str, missing: Sequence[str]) -> None:
    """Write figures, plot and report.

    Args:
        capacity: What was found.
        folder: Where to write.
        command: The command that made it.
        missing: Jobs that failed, and why.
    """
    _save_figures(capacity, folder)
    parts = [f"# {capacity.origin['experiment']}: capacity\n"]
    if missing:
        parts.append("**Not complete.** " + " ".join(f"{line}." for line in missing) + "\n")
    parts += sections(capacity, "##", "", command)
    _write(folder / REPORT_FILE, "\n".join(parts))


def save_record(capacity: Capacity, experiment: Experiment, folder: Path, about: str) -> None:
    """Write what docs/results.md is made from, with the configuration at its own load.

    An about.md that is there is kept: people write in it.
    """
    _save_figures(capacity, folder)
    _write(folder / CONFIG_FILE, dump_config(experiment))
    if not (folder / ABOUT_FILE).exists():
        _write(folder / ABOUT_FILE, about)


def sections(capacity: Capacity, heading: str, image_folder: str, command: str) -> Iterator[str]:
    """Yield the sections of the report.

    Args:
        capacity: What was found.
        heading: `##` or deeper.
        image_folder: Where the plot is, seen from the page; empty, or with a slash at its end.
        command: The command that made it; empty: it stands elsewhere.
    """
    bound, origin = capacity.origin["bound"], capacity.origin
    yield (
        f"The largest offered load at which at most {bound:.3g} of the instances finish late "
        f"(`{VIOLATIONS}`), over {origin['n_episodes']} held-out episodes, the same for all "
        "policies; brackets are 95% intervals. More is better.\n"
    )
    if bars := check_table(load_checks(capacity, load_bars())):
        yield f"{heading} Bars\n\n{bars}"
    yield f"{heading} Largest load\n\n{largest_load_table(capacity)}{_cuts(capacity)}"
    yield (
        f"{heading} Violations by load\n\n{violation_table(capacity)}\n"
        f"![Violations by offered load]({image_folder}{CAPACITY_PLOT})\n\n"
        "The largest load is where a policy's violations, their mean over training seeds and "
        "episodes, first exceed the bound, by a straight line between the last load of the table "
        "that keeps it and the next. What happens at larger loads does not count; the curve need "
        "not rise. Learned policies and the weights of `tuned` are the same at all loads.\n"
    )
    yield f"{heading} How it was made\n\n{_origin_lines(capacity, command)}"


def largest_load_table(capacity: Capacity) -> str:
    """Return a line a policy, the largest load first, with the ratios to the baselines."""
    ratios = {(ratio.policy, ratio.baseline): ratio.found for ratio in capacity.ratios}
    baselines = [name for name in BASELINES if name in capacity.rows]
    configured = capacity.origin["configured_load"]
    lines = []
    for one in capacity.by_load:
        found, seeds = one.found, one.by_seed
        is_learned = one.policy not in RULES
        offered = None if found.value is None else found.value * configured
        lines.append(
            [
                f"**{one.policy}**" if is_learned else one.policy,
                show_crossing(found),
                _limit(found) + show_number(offered),
                str(one.n_training_seeds) if is_learned else "",
                f"{show_number(min(seeds))} .. {show_number(max(seeds))}" if is_learned else "",
                *(
                    "1" if name == one.policy else show_crossing(ratios[one.policy, name])
                    for name in baselines
                ),
            ]
        )
    header = ["policy", "largest load, of the configured one", "offered load", "training seeds"]
    header += ["lowest .. highest seed", *(f"/ {name}" for name in baselines)]
    return markdown_table(header, lines)


def violation_table(capacity: Capacity) -> str:
    """Return a line a load with the violations of every policy."""
    names = [one.policy for one in capacity.by_load]
    configured = capacity.origin["configured_load"]
    lines = []
    for number, share in enumerate(capacity.shares):
        rows = [capacity.rows[name][number] for name in names]
        cells = [f"{show_number(r.mean)} {show_interval(r.ci95_low, r.ci95_high)}" for r in rows]
        lines.append([f"{share:g}", show_number(share * configured), *cells])
    return markdown_table(["of the configured load", "offered load", *names], lines)


def show_crossing(found: Crossing) -> str:
    """Return a largest load, or a ratio of two, as tables show it."""
    if found.value is None:
        return "not defined: outside the grid"
    interval = show_interval(found.ci95_low, found.ci95_high)
    return f"{_limit(found)}{show_number(found.value)} {interval}".strip()


def _limit(found: Crossing) -> str:
    return {BELOW: "< ", ABOVE: ">= "}.get(found.outside, "")


def _cuts(capacity: Capacity) -> str:
    """Say whose intervals end where the grid does; empty if none."""
    cut = [
        f"{one.policy} {one.found.share_outside:.1%}"
        for one in capacity.by_load
        if one.found.share_outside > 0
    ]
    if not cut:
        return ""
    return (
        f"\nResamples outside the grid of loads: {', '.join(cut)}; intervals are cut there, and "
        "ratios with it. More loads (`--loads`) would show it.\n"
    )


def _origin_lines(capacity: Capacity, command: str) -> str:
    origin = capacity.origin
    learned = [f"{n.policy}: {n.n_training_seeds}" for n in capacity.loads if n.policy not in RULES]
    lines = [
        *([f"command: `{command}`"] if command else []),
        f"configuration: {origin['experiment']}, hash {origin['config_hash']}, seed "
        f"{origin['seed']}; its load is {origin['configured_load']:g}",
        f"episodes: {origin['n_episodes']} of the {origin['split']} split at every load, "
        f"{origin['replicas']} at once",
        f"training seeds of learned policies: {', '.join(learned) or 'none'}",
        f"duration_knowledge: {origin['duration_knowledge']}; placement: {origin['placement']}",
        f"intervals: 95%, bootstrap of {origin['bootstrap_samples']} resamples over training seeds "
        "and episodes, the same for all policies and loads; a largest load is no mean over "
        "episodes, so there is no mean log ratio",
        "versions: " + ", ".join(f"{k} {v}" for k, v in origin["versions"].items()),
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _save_figures(capacity: Capacity, folder: Path) -> None:
    capacity.save(folder)
    plot_violations(capacity, folder / CAPACITY_PLOT)


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))
