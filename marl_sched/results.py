"""docs/results.md from the evaluations recorded under docs/results: `make docs` writes it.

A record is a folder NAME with evaluation.json and its companions (`Evaluation.save`), config.yaml,
and about.md, which says what it is and holds the commands that made it. With a study.yaml it is one
that `marl-sched compare --record` wrote, with a capacity.json one of `marl-sched capacity`.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from marl_sched.comparing import capacity_report
from marl_sched.comparing.capacity import CAPACITY_FILE, load_capacity
from marl_sched.comparing.folder import is_comparison
from marl_sched.comparing.record import ABOUT_FILE, load
from marl_sched.comparing.report import sections
from marl_sched.config import load_config
from marl_sched.evaluation import Evaluation, load_evaluation
from marl_sched.report import learned_policies, objective_parts
from marl_sched.report_tables import (
    headline,
    main_table,
    markdown_table,
    origin_lines,
    ratio_cells,
    ratio_table,
    seed_table,
)
from marl_sched.statistics import BEST_FIXED, KUBE_DEFAULT, TUNED

RECORDS = Path("docs/results")
_HEAD = """# Results

Every table is made from an evaluation recorded in [results/](results), with the command that made
it; `make docs` writes this page from them. Lower is better for the objective
([metrics.md](metrics.md) has all definitions). Rows in which we lose are left in.

The objective of what each record is about, over that of the rules on the same episodes:
"""


def results_page(records: Path) -> str:
    """Return the page of all records, in the order of the numbers their folders begin with."""
    folders = sorted(records.iterdir(), key=lambda folder: int(folder.name.split("-")[0]))
    return "\n".join([_HEAD, _overview(folders), *(_section(folder) for folder in folders)])


def _overview(folders: Iterable[Path]) -> str:
    """Return the objective of the records' policies against every baseline, a line a policy."""
    baselines = (KUBE_DEFAULT, BEST_FIXED, TUNED)
    lines = []
    for folder in folders:
        title = (folder / ABOUT_FILE).read_text(encoding="utf-8").split("\n")[0].lstrip("# ")
        link = f"[{title}](#{_anchor(title)})"
        for setting, evaluation, policies in _evaluations(folder):
            ratios = {
                (ratio.policy, ratio.baseline): ratio
                for ratio in evaluation.ratios
                if ratio.metric == "objective"
            }
            for policy in policies:
                found = [ratios.get((policy, baseline)) for baseline in baselines]
                cells = ["" if ratio is None else ratio_cells(ratio)[0] for ratio in found]
                lines.append([link, setting, policy, *cells])
                link = ""
    return markdown_table(["record", "setting", "policy", *(f"/ {b}" for b in baselines)], lines)


def _evaluations(folder: Path) -> Iterator[tuple[str, Evaluation, list[str]]]:
    """Yield setting, evaluation and the policies that a record is about."""
    if is_comparison(folder):
        compared, study = load(folder)
        for setting, evaluation in compared.evaluations.items():
            yield setting, evaluation, study.our_names
    elif not (folder / CAPACITY_FILE).exists():
        evaluation = load_evaluation(folder)
        yield "own", evaluation, learned_policies(evaluation)


def _anchor(title: str) -> str:
    """Return the name by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _section(folder: Path) -> str:
    about, images = (folder / ABOUT_FILE).read_text(encoding="utf-8"), f"results/{folder.name}/"
    if is_comparison(folder):
        return "\n".join([about, *sections(*load(folder), "###", images, "")])
    if (folder / CAPACITY_FILE).exists():
        capacity = load_capacity(folder)
        return "\n".join([about, *capacity_report.sections(capacity, "###", images, "")])
    experiment = load_config(folder / "config.yaml")
    evaluation = load_evaluation(folder)
    seeds = [seed_table(evaluation, name, experiment) for name in learned_policies(evaluation)]
    parts = [
        about,
        headline(evaluation),
        main_table(evaluation, objective_parts(experiment)),
        ratio_table(evaluation),
        *(table.replace("## ", "### ", 1) for table in seeds),
        origin_lines(evaluation, ""),
    ]
    return "\n".join(part for part in parts if part)


if __name__ == "__main__":
    sys.stdout.write(results_page(RECORDS))
