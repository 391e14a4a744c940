"""Which number of quantiles is enough, by objectives that can be followed by hand."""

import json
from pathlib import Path

import pytest
from tiny import tiny, zone

from marl_sched.config import Experiment, load_config
from marl_sched.errors import ConfigError, RunError
from marl_sched.quantile_choice import (
    TRIED,
    Pilot,
    Search,
    pilot_experiment,
    with_known_number,
    with_number,
)
from marl_sched.run_folder import QUANTILES_FILE, RunFolder, require_new

BASE = Path(__file__).parents[1] / "configs" / "base.yaml"
REFERENCE = (0.5, 0.7)
"""Of 32 quantiles, two validation episodes: mean 0.6."""


def auto(**agent: object) -> Experiment:
    return tiny(
        zone("a"),
        agent={"n_quantiles": "auto", "quantiles_tolerance": 0.05, "pilot_seeds": 1, **agent},
        training={"rounds": 3, "validation_episodes": 2},
        evaluation={"bootstrap_samples": 50},
        seed=7,
    )


def searched(by_number: dict[int, float], experiment: Experiment | None = None) -> Search:
    """Carry out a search whose pilots reach the reference times a factor."""
    search = Search(experiment or auto())
    while (due := search.due()) is not None:
        factor = by_number[due[0]]
        search.pilots.append(Pilot(*due, [factor * value for value in REFERENCE]))
    return search


def test_smallest_number_within_the_tolerance_is_chosen_and_nothing_beyond_it_tried() -> None:
    search = searched({32: 1.0, 1: 1.2, 2: 1.06, 4: 1.04})
    assert [pilot.n_quantiles for pilot in search.pilots] == [32, 1, 2, 4]
    assert search.choice == 4


def test_better_than_the_largest_is_enough() -> None:
    assert searched({32: 1.0, 1: 0.9}).choice == 1


def test_largest_is_chosen_where_no_other_is_enough() -> None:
    search = searched(dict.fromkeys(TRIED[:-1], 1.5) | {32: 1.0})
    assert (search.choice, len(search.pilots)) == (32, len(TRIED))


def test_every_number_has_all_its_seeds_before_it_is_judged() -> None:
    search = searched({32: 1.0, 1: 1.0}, auto(pilot_seeds=2))
    assert [(p.n_quantiles, p.seed) for p in search.pilots] == [(32, 7), (32, 8), (1, 7), (1, 8)]
    assert search.figures(1).n_seeds == 2


def test_no_choice_while_pilots_are_due() -> None:
    search = Search(auto(), [Pilot(32, 7, REFERENCE)])
    assert (search.choice, search.due()) == (None, (1, 7))


def test_figures_are_paired_over_episodes() -> None:
    figures = searched({32: 1.0, 1: 1.04}).figures(1)
    assert figures.objective == pytest.approx(0.624)
    # The same factor in every episode: no resample says otherwise.
    assert (figures.ratio, figures.ci95_low, figures.ci95_high) == pytest.approx((1.04,) * 3)


def test_search_goes_on_from_its_file(tmp_path: Path) -> None:
    search = Search(auto(), [Pilot(32, 7, list(REFERENCE))])
    search.save(tmp_path)
    again = Search.open(auto(), tmp_path)
    assert again == search
    searched({32: 1.0, 1: 1.0}).save(tmp_path)
    written = json.loads((tmp_path / QUANTILES_FILE).read_text())
    assert written["n_quantiles"] == 1
    assert [line["n_quantiles"] for line in written["tried"]] == [1, 32]
    assert with_known_number(auto(), tmp_path).agent.n_quantiles == 1


def test_pilot_is_the_run_in_fewer_rounds() -> None:
    pilot = pilot_experiment(auto(pilot_rounds=2), 4, 9)
    assert (pilot.training.rounds, pilot.training.validate_every, pilot.seed) == (2, 2, 9)
    assert pilot.agent.n_quantiles == 4
    assert pilot_experiment(auto(pilot_rounds=20), 4, 9).training.rounds == 3


def test_pilots_of_another_configuration_are_refused(tmp_path: Path) -> None:
    searched({32: 1.0, 1: 1.0}).save(tmp_path)
    with pytest.raises(RunError, match="belongs to another configuration"):
        with_known_number(auto(pilot_rounds=2), tmp_path)
    with pytest.raises(RunError, match=r"agent.n_quantiles = auto, but it is 8"):
        with_known_number(with_number(auto(), 8), tmp_path)


@pytest.mark.parametrize("text", ["[1]", "{", "null"])
def test_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / QUANTILES_FILE).write_text(text)
    with pytest.raises(RunError, match=r"quantiles\.json: not a file of pilots"):
        with_known_number(auto(), tmp_path)


def test_run_that_has_begun_keeps_its_number_with_other_zones(tmp_path: Path) -> None:
    searched({32: 1.0, 1: 1.5, 2: 1.0}).save(tmp_path)
    require_new(tmp_path, auto())  # pilots are no run
    RunFolder.create(tmp_path, with_known_number(auto(), tmp_path))
    more = auto().model_copy(update={"zones": [*auto().zones, tiny(zone("b")).zones[0]]})
    assert with_known_number(more, tmp_path).agent.n_quantiles == 2


@pytest.mark.parametrize("value", ["0", "2.5", "Auto", "true", "null"])
def test_number_that_is_none_is_one_error(value: str) -> None:
    with pytest.raises(ConfigError, match=r"n_quantiles = .*, expected an integer > 0 or auto$"):
        load_config(BASE, [f"agent.n_quantiles={value}"])


def test_number_to_be_found_needs_validation() -> None:
    with pytest.raises(
        ConfigError, match=r"training\.validation_episodes = 0, expected an integer"
    ):
        load_config(BASE, ["agent.n_quantiles=auto", "training.validation_episodes=0"])
