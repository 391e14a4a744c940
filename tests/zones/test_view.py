"""Views that other processes have made: taken as they are, or refused and named."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from views import view_of

from zones.view import MAX_VIEW_BYTES, ViewError, ZoneView, parse_view

View = dict[str, Any]


def parsed(view: View) -> ZoneView:
    return parse_view(json.dumps(view).encode(), "a", ("a", "b"))


def test_view_is_read_as_it_was_written() -> None:
    view = parsed(view_of())
    assert json.loads(view.encoded()) == view_of()
    assert parse_view(view.encoded(), "a") == view


def test_view_without_a_decision_is_one() -> None:
    assert parsed(view_of(decision=None)).decision is None


def first(view: View) -> View:
    candidate: View = view["decision"]["candidates"][0]
    return candidate


HOSTILE: dict[str, tuple[Callable[[View], object], str]] = {
    "of another zone": (lambda v: v.update(zone="b"), "zone = 'b', expected 'a'"),
    "another key": (lambda v: v.update(html="<b>"), "html: Extra inputs"),
    "another key within": (lambda v: first(v).update(x=1), r"candidates\.0\.x: Extra inputs"),
    "a key missing": (lambda v: v.pop("share"), "share: Field required"),
    "another format": (lambda v: v.update(format=2), "format: Input should be 1"),
    "text for a number": (lambda v: v.update(n_waiting="4"), "n_waiting: .*integer"),
    "truth for a number": (lambda v: v.update(n_waiting=True), "n_waiting: .*integer"),
    "a number no browser can count to": (lambda v: v.update(n_running=2**60), "n_running"),
    "less than none": (lambda v: v.update(n_running=-1), "n_running"),
    "a share above 1": (lambda v: v.update(share=1.5), "share"),
    "no time": (lambda v: v.update(time=float("nan")), "time"),
    "a time without end": (lambda v: v.update(time=float("inf")), "time"),
    "a quantile that is none": (lambda v: first(v).update(mean=float("nan")), "mean"),
    "endless quantiles": (
        lambda v: first(v).update(quantiles=[0.0, float("inf")]),
        r"quantiles\.1",
    ),
    "quantiles without taus": (lambda v: first(v).update(quantiles=[0.0]), "as many as taus: 2"),
    "two that are chosen": (
        lambda v: v["decision"]["candidates"].append(first(v)),
        "the chosen one first and no other",
    ),
    "none that is chosen": (lambda v: first(v).update(is_chosen=False), "the chosen one first"),
    "too many candidates": (
        lambda v: v["decision"].update(candidates=[first(v)] * 9),
        "candidates: .*at most 8",
    ),
    "markup for a name": (lambda v: first(v).update(name="<img src=x>"), "name: .*pattern"),
    "a peer that is none": (lambda v: v.update(offloads={"z": 1}), "offloads to 'z'"),
    "offloads to itself": (lambda v: v.update(offloads={"a": 1}), "offloads to 'a'"),
    "markup for a peer": (lambda v: v.update(offloads={"<b>": 1}), "offloads"),
    "a row too few": (lambda v: v["machines"]["allocation"].pop(), "expected 3 each"),
    "more machines than rows": (lambda v: v["machines"].update(n=4), "expected 4 each"),
    "a share too few": (lambda v: v["machines"]["utilization"][1].pop(), "expected 2 a row"),
    "a share of the policy's too few": (
        lambda v: first(v).update(utilization=[0.5]),
        "expected 2 a row",
    ),
    "other resources": (
        lambda v: v["decision"].update(request={"gpu": 1}),
        "an amount of every resource",
    ),
    "a key that a terminal obeys": (lambda v: v.update({"\x1b[2J": 1}), r"^\\x1b\[2J: Extra"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_view_that_makes_no_sense_is_refused_and_named(case: str) -> None:
    change, message = HOSTILE[case]
    view = view_of()
    change(view)
    with pytest.raises(ViewError, match=message) as caught:
        parsed(view)
    assert "\n" not in str(caught.value)


NO_JSON = {
    "nothing": b"",
    "half": json.dumps(view_of()).encode()[:-10],
    "two": 2 * json.dumps(view_of()).encode(),
    "not of text": b"\xff\xfe",
    "deep": b'{"zone": ' + 100_000 * b"[" + 100_000 * b"]" + b"}",
    "deep in place": json.dumps(view_of(decision=0))
    .replace('"decision": 0', f'"decision": {"[" * 50_000}{"]" * 50_000}')
    .encode(),
    "a list": b"[]",
    "a very large number": b'{"n_running": ' + 100_000 * b"9" + b"}",
}


@pytest.mark.parametrize("case", NO_JSON)
def test_text_that_is_no_view_is_refused(case: str) -> None:
    with pytest.raises(ViewError) as caught:
        parse_view(NO_JSON[case], "a")
    assert len(str(caught.value)) < 300


def test_view_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(ViewError, match=f"a view of {MAX_VIEW_BYTES + 1} bytes"):
        parse_view(b"[" * (MAX_VIEW_BYTES + 1), "a")


def test_peers_need_not_be_known_but_none_is_the_zone_itself() -> None:
    assert parse_view(json.dumps(view_of(offloads={"z": 1})).encode(), "a").offloads == {"z": 1}
    with pytest.raises(ViewError, match="offloads to 'a'"):
        parse_view(json.dumps(view_of(offloads={"a": 1})).encode(), "a")


def test_name_of_a_key_is_cut_in_the_message() -> None:
    with pytest.raises(ViewError) as caught:
        parsed(view_of(**{"k" * 10_000: 1}))
    assert len(str(caught.value)) < 300


def test_decision_that_makes_a_view_too_large_is_left_out() -> None:
    view = view_of()
    view["decision"]["taus"] = [0.5] * 4096
    for candidate in view["decision"]["candidates"]:
        candidate["quantiles"] = [-0.1234567890123] * 4096
    view["decision"]["candidates"] += [view["decision"]["candidates"][1]] * 6
    large = ZoneView.model_validate(view)
    assert len(large.model_dump_json()) > MAX_VIEW_BYTES
    assert json.loads(large.encoded()) == view_of(decision=None)


def test_view_too_large_without_a_decision_is_none() -> None:
    peers = {f"p{number:062d}": 1 for number in range(4096)}
    large = ZoneView.model_validate(view_of(offloads=peers))
    with pytest.raises(ViewError, match=r"a view of \d+ bytes, expected at most 262144"):
        large.encoded()
