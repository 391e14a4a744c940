from pathlib import Path

import numpy as np
import pytest

from marl_sched.cluster.metrics import DEFINITIONS, ZoneSums, episode_metrics, short_name
from marl_sched.cluster.model import HISTOGRAMS, N_BINS, N_PLAIN_SUMS
from marl_sched.config import load_config
from marl_sched.observation import COLUMNS, Layout
from marl_sched.reference_pages import PAGES, metrics_page, observation_page

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PAGES)
def test_page_is_fresh(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert page == PAGES[name](), "run `make docs`"


def test_every_reported_metric_is_defined_and_every_definition_reported() -> None:
    experiment = load_config(ROOT / "configs" / "base.yaml")
    n = experiment.n_resources
    sums = ZoneSums(
        sums=np.zeros((1, N_PLAIN_SUMS + 3 * n)),
        histogram=np.zeros((1, len(HISTOGRAMS), N_BINS), np.int64),
        cluster_imbalance=np.zeros((1, n)),
    )
    short_names = [short_name(resource) for resource in experiment.resources]
    defined = {name.replace("RESOURCE", short) for name in DEFINITIONS for short in short_names}
    # The policies' own time is measured where they are played.
    assert set(episode_metrics(experiment, [sums])) == defined - {"decision_latency_us"}


def test_metrics_page_has_a_row_for_every_definition() -> None:
    rows = [line for line in metrics_page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(DEFINITIONS)


def test_observation_page_lists_the_columns_in_the_order_of_the_layout() -> None:
    rows = [line for line in observation_page().splitlines() if line.startswith("| `")]
    listed = [row.split("`")[1] for row in rows]
    layout = Layout(("cpu_milli", "memory_mib"))
    in_order = []
    for columns in (layout.instance, layout.candidate, layout.zone):
        in_order += list(dict.fromkeys(column.split(":")[0] for column in columns))
    assert listed == in_order


def test_every_column_says_what_it_means() -> None:
    meanings = [text for parts in COLUMNS.values() for part in parts for text in part.values()]
    assert len(meanings) > 30
    assert all(meanings)
