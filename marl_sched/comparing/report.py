"""The report of a comparison: the same sections for its report.md and for docs/results.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from marl_sched.comparing.grid import grid_tables
from marl_sched.comparing.merging import Compared
from marl_sched.comparing.record import CURVES_PLOT, SPEED_PLOT
from marl_sched.comparing.study import TEST, Study
from marl_sched.comparing.tables import (
    by_objective,
    check_table,
    duel_table,
    learned_names,
    metric_table,
    objective_table,
    rival_table,
    seeds_table,
    settings_table,
    speed_table,
)
from marl_sched.comparing.verdicts import checks, load_bars
from marl_sched.evaluation import Evaluation
from marl_sched.files import write_atomically
from marl_sched.report_tables import headline, origin_lines, ratio_table

REPORT_FILE = "report.md"


def write_report(
    compared: Compared, study: Study, folder: Path, command: str, missing: Sequence[str]
) -> Path:
    """Write report.md beside the plots.

    Args:
        compared: What was found.
        study: What was compared.
        folder: Where to write.
        command: The command that made it.
        missing: Jobs that failed, and why.
    """
    experiment = next(iter(compared.evaluations.values())).origin["experiment"]
    parts = [f"# {experiment}: comparison\n"]
    if missing:
        parts.append("**Not complete.** " + " ".join(f"{line}." for line in missing) + "\n")
    parts += sections(compared, study, "##", "", command)
    path = folder / REPORT_FILE
    text = "\n".join(parts)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def sections(
    compared: Compared, study: Study, heading: str, image_folder: str, command: str
) -> Iterator[str]:
    """Yield the sections of a comparison.

    Args:
        compared: What was found.
        study: What was compared.
        heading: `##` or deeper.
        image_folder: Where the plots are, seen from the page; empty, or with a slash at its end.
        command: The command that made it; empty: it stands elsewhere.
    """
    evaluations = compared.evaluations
    tested = {name: one for name, one in evaluations.items() if one.origin["split"] == TEST}
    bars = load_bars()
    found = checks(tested, study.our_names, bars) if tested else ()
    reached = check_table(found)
    if len(evaluations) > 1:
        yield f"{heading} Objective by setting\n\n{settings_table(evaluations)}"
    for number, (name, evaluation) in enumerate(evaluations.items()):
        where = f" ({name})" if len(evaluations) > 1 else ""
        yield (f"In the setting **{name}**: " if where else "") + headline(evaluation)
        if number == 0 and reached:
            yield f"{heading} Bars\n\n{reached}"
        yield from _tables(evaluation, study, f"{heading} ", where)
        for policy in study.our_names:
            if grid := grid_tables(evaluation, policy, bars.best_or_tied.against):
                yield f"{heading} {policy}: creation, imbalance, completion{where}\n\n{grid}"
    first = next(iter(evaluations.values()))
    if any(run for runs in compared.curves.runs.values() for run in runs):
        yield (
            f"{heading} Convergence\n\n![Validation objective by decisions and by wall time]"
            f"({image_folder}{CURVES_PLOT})\n\nLines are means over training seeds, bands reach "
            "from the lowest seed to the highest; every seed has validation episodes of its own. "
            "Wall time includes the validations, with other jobs beside it.\n"
        )
    yield (
        f"{heading} Speed\n\n{speed_table(compared.speeds, by_objective(first))}\n"
        f"![Objective beside the cost of a decision]({image_folder}{SPEED_PLOT})\n\n"
        "Measured while jobs ran side by side, one thread each; of a training all rounds and "
        "validations count.\n"
    )
    made = origin_lines(first, command) + _study_lines(compared, study)
    yield f"{heading} How it was made\n\n{made}"


def _study_lines(compared: Compared, study: Study) -> str:
    """Say what policies and settings are, beside the configuration."""
    lines = [f"policy {policy.name}: {_code(policy.what)}" for policy in study.policies]
    for setting in study.settings:
        evaluation = compared.evaluations.get(setting.name)
        if evaluation is not None and len(compared.evaluations) > 1:
            origin = evaluation.origin
            lines.append(
                f"setting {setting.name}: {_code(setting.what)}; {origin['experiment']}, hash "
                f"{origin['config_hash']}, {origin['n_episodes']} episodes"
            )
    return "".join(f"- {line}\n" for line in lines)


def _code(what: str) -> str:
    return what if "=" not in what else f"`{what}`"


def _tables(evaluation: Evaluation, study: Study, heading: str, where: str) -> Iterator[str]:
    yield f"{heading}Objective{where}\n\n{objective_table(evaluation)}"
    yield f"{heading}Ratios to the rules{where}\n\n{ratio_table(evaluation)}"
    for policy in study.our_names:
        if policy not in learned_names(evaluation):
            continue
        if rivals := rival_table(evaluation, policy):
            yield f"{heading}{policy} and its rivals{where}\n\n{rivals}"
        if duel := duel_table(evaluation, policy):
            yield f"{heading}{policy}, metric by metric{where}\n\n{duel}"
    yield f"{heading}Metrics{where}\n\n{metric_table(evaluation)}"
    if seeds := seeds_table(evaluation):
        yield f"{heading}Training seeds{where}\n\n{seeds}"
