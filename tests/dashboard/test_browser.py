"""The page in a real browser: Chromium, headless, driven."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from run_files import RunFiles, experiment
from served import BOUND_S, chromium_path, port_of, quiet, serving

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect

CHROMIUM = chromium_path()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.network,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this host: apt install chromium"),
]
SIZES = [(360, 800), (1280, 800), (3840, 2160)]
WAIT_MS = 1000 * BOUND_S


@dataclass
class Visit:
    """A page, with everything that it has complained of or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def status(self, text: str) -> None:
        """Wait for the status line to say something."""
        expect(self.page.locator("#status-text")).to_contain_text(text, timeout=WAIT_MS)

    def tile(self, zone: str) -> Any:
        return self.page.locator(f'.tile[data-zone="{zone}"]')

    def settle(self) -> None:
        """Wait until everything that has come is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def colors(self, canvas: str) -> set[str]:
        """Return the colors that a canvas shows."""
        script = """(canvas) => {
            const copy = new OffscreenCanvas(canvas.width, canvas.height);
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(canvas, 0, 0);
            const { data } = context.getImageData(0, 0, copy.width, copy.height);
            const found = new Set();
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] === 255) found.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`);
            }
            return [...found];
        }"""
        self.settle()
        return set(self.page.locator(canvas).first.evaluate(script))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def visiting(browser: Any, address: str, **options: Any) -> Iterator[Visit]:
    """Open a page; at the end it must have had no error and asked nobody but its host."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: _note(visit, message.type, message.text))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    try:
        visit.page.goto(address)
        visit.page.bring_to_front()  # a page that is hidden holds no connection
        expect(visit.page.locator("#status")).not_to_have_attribute(
            "data-state", "connecting", timeout=WAIT_MS
        )
        yield visit
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(f"{address}/")] == []
    finally:
        context.close()


def _note(visit: Visit, kind: str, text: str) -> None:
    # A refused connection is an error to the browser, and what some tests are about.
    if kind in ("error", "warning") and "ERR_CONNECTION_REFUSED" not in text:
        visit.complaints.append(f"{kind}: {text}")


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    """A run in its third round, of which one zone was lost in the second."""
    run = RunFiles(tmp_path / "run").create()
    run.event("start", pid=1, flower_run="7")
    run.round(1)
    run.validation(1, 0.62)
    run.lose(2, "zone_1", "no reply within 60 s of the others (federation.grace_s)")
    run.round(2, ["zone_0", "zone_2"], attempt=2, reward=-1.25)
    run.validation(2, 0.55)
    show_all(run)
    return run


def show_all(run: RunFiles, **changes: Any) -> None:
    """Write a view of every zone as of now."""
    for zone in run.zones:
        run.show(zone, **{"time": time.time(), "round": 3, **changes})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_zones_rounds_curves_and_flows(
    run: RunFiles, browser: Any, scheme: str
) -> None:
    with (
        serving(quiet(run.folder)) as address,
        visiting(browser, address, color_scheme=scheme) as visit,
    ):
        visit.status("Live · training, round 3")
        page = visit.page
        expect(page.locator(".tile")).to_have_count(3)
        expect(visit.tile("zone_1")).to_contain_text("waiting")
        assert len(visit.colors(".tile canvas")) > 3
        first = page.locator("#rounds-body tr").first
        expect(first).to_contain_text("zone_1: no reply within 60 s of the others")
        assert first.locator("td").first.inner_text() == "2"
        expect(page.locator("#curve-objective .curve-line")).to_have_attribute(
            "d", re.compile("^M.*L.*")
        )
        expect(page.locator("#flows-chart .ribbon")).to_have_count(6)
        expect(page.locator("#events-list")).to_contain_text("zone_1 was lost in round 2")
        assert page.title() == "made-up · round 2/4"
        expect(page.locator("#announcer")).to_contain_text("round 2 of 4 finished")


def test_what_the_run_writes_appears_by_itself(run: RunFiles, browser: Any) -> None:
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        visit.status("Live")
        before = visit.colors(".tile canvas")
        show_all(run, n_waiting=4321)
        expect(visit.tile("zone_2")).to_contain_text("4321", timeout=WAIT_MS)
        assert visit.colors(".tile canvas") != before
        run.round(3)
        run.validation(3, 0.4875)
        expect(visit.page.locator("#rounds-body tr")).to_have_count(3, timeout=WAIT_MS)
        expect(visit.page.locator("#figure-objective")).to_have_text("0.4875")
        for number in (4,):
            run.round(number)
            run.validation(number, 0.47)
        visit.status("Finished")


def test_a_click_selects_a_machine_and_keys_move_on(run: RunFiles, browser: Any) -> None:
    view = run.show("zone_2", time=time.time(), round=3)
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        page = visit.page
        canvas = visit.tile("zone_2").locator("canvas").first
        canvas.click(position={"x": 6, "y": 6})
        expect(page.locator("#zone-title")).to_have_text("zone_2")
        expect(page.locator("#machine-name")).to_have_text("Machine 0")
        expect(visit.tile("zone_2")).to_have_attribute("aria-pressed", "true")
        numbers = page.locator("#machine-rows tr").first
        expect(numbers).to_contain_text(f"{100 * view.machines.utilization[0][0]:.1f} %")
        page.locator("#machines").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#machine-name")).to_have_text("Machine 1")
        expect(page.locator("#machine-said")).to_contain_text("Machine 1: cpu")
        page.keyboard.press("End")
        expect(page.locator("#machine-name")).to_have_text("Machine 7")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#machine-name")).to_have_text("Machine 7")
        page.locator("#machines-table summary").click()
        expect(page.locator("#machines-table tbody tr")).to_have_count(8)


def test_zones_are_reached_by_keyboard_alone(run: RunFiles, browser: Any) -> None:
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        page = visit.page
        visit.status("Live")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        for _ in range(3):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('tile')"):
                break
        expect(visit.tile("zone_0")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(visit.tile("zone_1")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#zone-title")).to_have_text("zone_1")


def test_a_decision_shows_why_this_machine(run: RunFiles, browser: Any) -> None:
    view = run.show("zone_0", time=time.time(), round=3)
    assert view.decision is not None
    chosen, *others = view.decision.candidates
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        page = visit.page
        page.locator('.tile[data-zone="zone_0"]').click()
        shown = page.locator(".candidate:visible")
        expect(shown).to_have_count(1 + len(others))
        expect(page.locator(".candidate.chosen")).to_have_count(1)
        expect(page.locator("#decision-why")).to_contain_text(f"Machine {chosen.name}: the highest")
        shown.first.hover()
        expect(page.locator("#decision-detail")).to_contain_text(f"machine {chosen.name}, chosen")
        run.show("zone_0", time=time.time(), round=3, n_waiting=3999)
        expect(visit.tile("zone_0")).to_contain_text("3999", timeout=WAIT_MS)
        # While it is pointed at it stays, so that it can be read.
        expect(page.locator("#decision-why")).to_contain_text(f"Machine {chosen.name}: the highest")
        page.locator("#decision-table summary").click()
        expect(page.locator("#decision-table tbody tr")).to_have_count(1 + len(others))


def test_exploring_and_a_choice_below_another_are_told_as_they_are(
    run: RunFiles, browser: Any
) -> None:
    view = run.view("zone_0", time=time.time(), round=3)
    assert view.decision is not None
    best, second, *rest = view.decision.candidates
    swapped = [
        second.model_copy(update={"is_chosen": True}),
        best.model_copy(update={"is_chosen": False}),
        *rest,
    ]
    decision = view.decision.model_copy(update={"candidates": swapped})
    run.show("zone_0", time=time.time(), round=3, decision=decision)
    run.show("zone_1", time=time.time(), round=3, decision=None)
    exploring = decision.model_copy(update={"is_exploring": True})
    run.show("zone_2", time=time.time(), round=3, decision=exploring)
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        why = visit.page.locator("#decision-why")
        visit.tile("zone_0").click()
        expect(why).to_contain_text(f"chosen though machine {best.name} has a mean that is")
        visit.tile("zone_2").click()
        expect(why).to_contain_text("drawn at random, to explore")
        visit.tile("zone_1").click()
        expect(visit.page.locator("#decision-empty")).to_be_visible()


def test_a_decision_by_one_value_claims_no_distribution_and_a_tie_no_margin(
    run: RunFiles, browser: Any
) -> None:
    view = run.view("zone_0", time=time.time(), round=3)
    assert view.decision is not None
    best, second, *_ = view.decision.candidates
    for zone, mean in (("zone_0", 0.0864), ("zone_1", 0.0871), ("zone_2", 0.0923)):
        candidates = [
            best.model_copy(update={"mean": 0.0871, "quantiles": [0.0871]}),
            second.model_copy(update={"mean": mean, "quantiles": [mean]}),
        ]
        update = {"taus": [0.5], "candidates": candidates}
        decision = view.decision.model_copy(update=update)
        run.show(zone, time=time.time(), round=3, decision=decision)
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        page, why = visit.page, visit.page.locator("#decision-why")
        visit.tile("zone_0").click()
        expect(why).to_contain_text(f"the highest value, 0.0007 above machine {second.name}")
        page.locator(".candidate:visible").first.hover()
        expect(page.locator("#decision-detail")).to_contain_text("chosen: value 0.087.")
        expect(page.locator("#decision-legend")).to_be_hidden()
        visit.tile("zone_1").click()
        expect(why).to_contain_text(f"the highest value, with machine {second.name} as good")
        visit.tile("zone_2").click()
        expect(why).to_contain_text("has a value that is 0.0052 higher")


def test_the_page_comes_back_after_the_server_was_restarted(run: RunFiles, browser: Any) -> None:
    with ExitStack() as server:
        address = server.enter_context(serving(quiet(run.folder)))
        with visiting(browser, address) as visit:
            visit.status("Live")
            server.close()
            visit.status("Connection lost, trying again")
            show_all(run, n_waiting=777)
            with serving(quiet(run.folder), port_of(address)):
                visit.status("Live")
                expect(visit.tile("zone_1")).to_contain_text("777", timeout=WAIT_MS)


def test_before_a_run_begins_the_page_says_what_it_waits_for(tmp_path: Path, browser: Any) -> None:
    run = RunFiles(tmp_path / "later")
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        visit.status("Waiting for the run to begin")
        expect(visit.page.locator("#tiles-empty")).to_be_visible()
        expect(visit.page.locator("#rounds-empty")).to_have_text("Waiting for the first round.")
        run.create()
        visit.status("Live · waiting for the first round")
        expect(visit.page.locator(".tile")).to_have_count(3)


def test_a_run_that_has_fallen_silent_is_not_called_live(run: RunFiles, browser: Any) -> None:
    before = time.time() - 200
    for path in run.folder.rglob("*"):
        os.utime(path, (before, before))
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        visit.status("No news for 3 min")
        expect(visit.tile("zone_0")).to_contain_text("no news")
        run.show("zone_0", time=time.time(), round=3)
        visit.status("Live · training, round 3")
        expect(visit.tile("zone_0")).to_contain_text("training")
        expect(visit.tile("zone_1")).to_contain_text("no news")


def test_a_finished_run_shows_its_measured_ratios(run: RunFiles, browser: Any) -> None:
    run.evaluate(ratio=0.951)
    (run.folder / "report.md").write_text("# report")
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        visit.status("Finished")
        page = visit.page
        expect(page.locator("#comparison-ratio")).to_have_text("0.951")
        expect(page.locator("#comparison-words")).to_contain_text("95 % interval 0.931 to 0.971")
        expect(page.locator("#comparison-chart .interval")).to_have_count(4)
        expect(page.locator("#report-link a")).to_have_attribute("href", "/run/report.md")


def test_texts_of_files_are_never_markup(run: RunFiles, browser: Any) -> None:
    trap = "<img src=x onerror=alert(1)>"
    run.lose(3, trap, f"<script>alert(2)</script>{trap}")
    run.event("refused", node="1", reason=trap)
    (run.folder / "evaluation.json").write_text("{}")
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        expect(visit.page.locator("#rounds-body")).to_contain_text(trap)
        expect(visit.page.locator("#events-list")).to_contain_text(trap)
        assert visit.page.locator("img[src=x]").count() == 0


def test_the_theme_is_kept(run: RunFiles, browser: Any) -> None:
    with (
        serving(quiet(run.folder)) as address,
        visiting(browser, address, color_scheme="light") as visit,
    ):
        page = visit.page
        light = visit.colors(".tile canvas")
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        expect(page.locator("body")).to_have_css("background-color", "rgb(12, 16, 22)")
        assert visit.colors(".tile canvas") != light
        page.reload()
        visit.status("Live")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_large_zones_share_cells_and_many_zones_a_matrix(tmp_path: Path, browser: Any) -> None:
    run = RunFiles(tmp_path / "run", experiment(12, 40)).create()
    for zone in run.zones:
        whole = run.view(zone, time=time.time())
        rows = whole.machines.utilization[:10]
        machines = whole.machines.model_copy(
            update={"per_cell": 4, "utilization": rows, "allocation": rows}
        )
        run.show(zone, time=time.time(), machines=machines)
    with serving(quiet(run.folder)) as address, visiting(browser, address) as visit:
        visit.tile("zone_3").click()
        visit.page.locator("#machines").focus()
        visit.page.keyboard.press("End")
        visit.page.keyboard.press("End")
        expect(visit.page.locator("#machine-name")).to_have_text("Machines 36 to 39")
        expect(visit.page.locator("#flows-chart rect[fill]").first).to_be_visible()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_is_cut_off_at_any_size(
    run: RunFiles, browser: Any, tmp_path: Path, width: int, height: int
) -> None:
    viewport = {"width": width, "height": height}
    with (
        serving(quiet(run.folder)) as address,
        visiting(browser, address, viewport=viewport) as visit,
    ):
        visit.status("Live")
        visit.settle()
        shot = tmp_path / f"{width}x{height}.png"
        visit.page.screenshot(path=str(shot), full_page=True)
        assert shot.stat().st_size > 20_000
        assert visit.page.evaluate("document.documentElement.scrollWidth") == width
        outside = visit.page.evaluate(
            """() => [...document.querySelectorAll("main *")]
                .filter((node) => node.checkVisibility() && !node.closest(".scroll, .unseen, svg"))
                .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
                .map((node) => node.outerHTML.slice(0, 80))"""
        )
        assert outside == []


def test_two_pages_and_two_dashboards_at_once(run: RunFiles, browser: Any) -> None:
    with (
        serving(quiet(run.folder)) as one,
        serving(quiet(run.folder)) as other,
        visiting(browser, one) as first,
        visiting(browser, one) as second,
        visiting(browser, other) as third,
    ):
        show_all(run, n_waiting=808)
        for visit in (first, second, third):
            expect(visit.tile("zone_0")).to_contain_text("808", timeout=WAIT_MS)
