"""docs/results.md from the evaluations recorded under docs/results: `make docs` writes it.

A record is a folder NAME with evaluation.json and its companions (`Evaluation.save`), config.yaml,
and about.md, which says what it is and holds the commands that made it. With a study.yaml it is one
that `marl-sched compare --record` wrote, with a capacity.json one of `marl-sched capacity`.
"""

import sys
from pathlib import Path

from marl_sched.comparing import capacity_report
from marl_sched.comparing.capacity import CAPACITY_FILE, load_capacity
from marl_sched.comparing.folder import is_comparison
from marl_sched.comparing.record import ABOUT_FILE, load
from marl_sched.comparing.report import sections
from marl_sched.config import load_config
from marl_sched.evaluation import load_evaluation
from marl_sched.report import learned_policies, objective_parts
from marl_sched.report_tables import headline, main_table, origin_lines, ratio_table, seed_table

RECORDS = Path("docs/results")
_HEAD = """# Results

Every table is made from an evaluation recorded in [results/](results), with the command that made
it; `make docs` writes this page from them. Lower is better for the objective
([metrics.md](metrics.md) has all definitions). Rows in which we lose are left in.
"""


def results_page(records: Path) -> str:
    """Return the page of all records, in the order of their folders' names."""
    return "\n".join([_HEAD, *(_section(folder) for folder in sorted(records.iterdir()))])


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
