"""Rules and the account: every row is kept, or dropped under one rule."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE, Account, account_path
from marl_sched.workload.raw.registry import FORMATS
from marl_sched.workload.raw.rules import (
    DROP_JOB,
    DROP_ROW,
    JOB_INCOMPLETE,
    KEEP,
    Rule,
    Rules,
)

FOUR = (
    Rule("zero", "is 0", (DROP_ROW, KEEP)),
    Rule("even", "is even", (DROP_JOB, KEEP, DROP_ROW)),
    Rule("large", "is above 5", (KEEP, DROP_ROW)),
    JOB_INCOMPLETE,
)
TESTS = {
    "zero": pl.col("x") == 0,
    "even": pl.col("x") % 2 == 0,
    "large": pl.col("x") > 5,
}


def account(*turned: str) -> Account:
    return Account("numbers", Rules.of("numbers", FOUR, turned))


def test_first_action_is_the_default_and_can_be_turned() -> None:
    rules = account("even=drop-row").rules
    assert [rules.action(name) for name, _ in rules] == [DROP_ROW, DROP_ROW, KEEP, DROP_ROW]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("even", "--rule even, expected RULE=ACTION"),
        ("evn=keep", r"numbers has no rule 'evn', expected one of .*; did you mean even\?"),
        ("even=burn", "--rule even=burn: even allows drop-job, keep, drop-row"),
    ],
)
def test_wrong_wish_is_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        account(text)
    assert "\n" not in str(caught.value)


def test_row_is_dropped_under_the_first_rule_and_found_under_all() -> None:
    table = account().table("numbers")
    marked = table.sort_out(pl.DataFrame({"x": [0, 1, 4, 7, 8, None]}), TESTS)
    assert marked["x"].to_list() == [1, 4, 7, 8, None]  # 0 is gone
    even = table.rules.number("even")
    assert marked[RULE].to_list() == [0, even, 0, even, 0]
    assert dict(table.found) == {"zero": 1, "even": 3, "large": 2}
    assert dict(table.dropped) == {"zero": 1}


@given(
    values=st.lists(st.one_of(st.none(), st.integers(0, 9))),
    actions=st.tuples(*(st.sampled_from(rule.actions) for rule in FOUR[:3])),
)
def test_account_adds_up_whatever_is_turned(
    values: list[int | None], actions: tuple[str, ...]
) -> None:
    names = [rule.name for rule in FOUR[:3]]
    whole = account(*(f"{name}={action}" for name, action in zip(names, actions, strict=True)))
    table = whole.table("numbers")
    table.rows_read = len(values)
    marked = table.sort_out(pl.DataFrame({"x": values}, schema={"x": pl.Int64}), TESTS)
    table.settle(marked[RULE].to_numpy())
    whole.check()
    expected = dict.fromkeys(names, 0)
    for value in values:
        broken = [
            name
            for name, holds in (
                ("zero", value == 0),
                ("even", value is not None and value % 2 == 0),
                ("large", value is not None and value > 5),
            )
            if holds and table.rules.drops(name)
        ]
        for name in broken[:1]:
            expected[name] += 1
    assert {name: table.dropped[name] for name in names} == expected


def test_lost_row_is_noticed() -> None:
    whole = account()
    table = whole.table("numbers")
    table.rows_read = 3
    table.settle(np.zeros(2, np.uint8))
    with pytest.raises(AssertionError, match="numbers: 3 rows read, 2 kept, 0 dropped"):
        whole.check()


def test_account_is_written_beside_the_output(tmp_path: Path) -> None:
    whole = account("large=drop-row")
    table = whole.table("numbers")
    table.files.append("numbers.csv")
    table.rows_read = 4
    table.drop("large", 3)
    table.find("even", 1, examined=7)
    table.rows_kept = 1
    path = account_path(tmp_path / "out.parquet")
    whole.write(path)
    assert path.name == "out.account.json"
    written = json.loads(path.read_text())
    assert written["tables"] == [
        {
            "table": "numbers",
            "files": ["numbers.csv"],
            "rows_read": 4,
            "rows_kept": 1,
            "rows_dropped": 3,
            "rules": {
                "even": {
                    "action": "drop-job",
                    "of": "rows",
                    "found": 1,
                    "dropped": 0,
                    "examined": 7,
                },
                "large": {"action": "drop-row", "of": "rows", "found": 3, "dropped": 3},
            },
        }
    ]
    assert written["rules"]["large"] == {"what": "is above 5", "action": "drop-row"}


@pytest.mark.parametrize("name", FORMATS)
def test_rules_of_every_format_are_well_formed(name: str) -> None:
    rules = FORMATS[name].rules
    names = [rule.name for rule in rules]
    assert len(set(names)) == len(names)
    assert len(names) < 256  # RULE is a byte
    for rule in rules:
        assert rule.name == rule.name.lower().replace("_", "-").replace(" ", "-")
        assert rule.what
        assert rule.actions
        assert "\n" not in rule.what
