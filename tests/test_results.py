from pathlib import Path

from marl_sched.results import results_page

ROOT = Path(__file__).parents[1]


def test_page_of_results_is_fresh() -> None:
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert page == results_page(ROOT / "docs/results"), "make docs"
