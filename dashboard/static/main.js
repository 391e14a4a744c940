// Puts the page together: messages come in, what they touch is drawn in the next frame.

import { darkness, gradient, readTheme } from "./color.js";
import { Comparison } from "./comparison.js";
import { Curves } from "./curves.js";
import { Decision } from "./decision.js";
import { byId, say, set, show } from "./dom.js";
import { Flows } from "./flows.js";
import { count, duration, figure, percent } from "./format.js";
import { Events, Files, renderProblems, Rounds } from "./rounds.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { Tiles } from "./tiles.js";
import { ZonePanel } from "./zone.js";

const QUIET_S = 30;
const THEME_KEY = "marl-sched-theme";

/** Which zone and machine are looked at, and which of the two shares. */
const selection = {
  zone: null,
  machine: -1,
  kind: "utilization",
  choose(zone, machine) {
    if (zone !== this.zone) this.machine = -1;
    this.zone = zone;
    if (machine !== null) this.machine = machine;
    redraw("selection");
  },
};

readTheme();
const store = new Store();
const tiles = new Tiles(store, selection);
const zonePanel = new ZonePanel(store, selection);
const decision = new Decision(store, selection);
const flows = new Flows(store);
const curves = new Curves(store);
const comparison = new Comparison(store);
const rounds = new Rounds(store);
const events = new Events(store);
const files = new Files(store);

let connection = "connecting";
let announced = "";
let isDue = false;

function redraw(name) {
  store.dirty.add(name);
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(render);
}

function render() {
  isDue = false;
  const dirty = new Set(store.dirty);
  store.dirty.clear();
  const isAll = dirty.has("all");
  const has = (...names) => isAll || names.some((name) => dirty.has(name));
  keepSelection();
  const isWide = has("zones", "selection", "theme", "run");
  if (isWide || has("views")) tiles.render(isWide ? null : dirty);
  if (isWide || dirty.has(`zone:${selection.zone}`)) zonePanel.render();
  if (isWide || dirty.has(`zone:${selection.zone}`)) decision.render();
  if (has("views", "zones", "theme")) flows.render(isAll || dirty.has("theme"));
  if (has("curves", "comparison", "run", "theme")) curves.render();
  if (has("comparison")) comparison.render();
  if (has("rounds", "zones")) rounds.render();
  if (has("events")) events.render();
  if (has("files")) files.render();
  if (has("run")) renderProblems(store);
  renderHeader();
  renderFigures();
}

function keepSelection() {
  const names = store.zones.map((zone) => zone.name);
  if (names.includes(selection.zone)) return;
  selection.zone = names[0] ?? null;
  selection.machine = -1;
  store.dirty.delete("selection");
  requestAnimationFrame(() => redraw("selection"));
}

function renderHeader() {
  const { run } = store;
  const name = run.name || "marl-sched";
  say(byId("run-name"), name);
  say(byId("run-folder"), run.folder);
  const [state, text] = statusOf(run);
  set(byId("status"), { "data-state": state });
  say(byId("status-text"), text);
  const title =
    state === "live" || state === "finished"
      ? `${name} · round ${run.round}/${run.n_rounds ?? "?"}`
      : name;
  if (document.title !== title) document.title = title;
  const done = run.n_rounds
    ? run.state === "finished"
      ? 1
      : (run.round + (roundShare() ?? 0)) / run.n_rounds
    : 0;
  byId("progress").firstElementChild.style.width = percent(Math.min(1, done), 2);
  document.body.classList.toggle("disconnected", connection === "lost" || connection === "refused");
}

/** Share of the round under way that is over, in the mean of the zones that are at work. */
function roundShare() {
  const shares = [...store.views.values()]
    .filter(
      (view) =>
        store.isFresh(view) && view.phase === "training" && view.round === store.run.round + 1,
    )
    .map((view) => view.share);
  return shares.length ? shares.reduce((sum, share) => sum + share, 0) / shares.length : null;
}

function statusOf(run) {
  if (connection === "connecting") return ["connecting", "Connecting …"];
  if (connection === "refused") return ["lost", "The server has no room; trying again"];
  if (connection === "lost") return ["lost", "Connection lost, trying again"];
  if (run.state === "waiting") return ["waiting", "Waiting for the run to begin"];
  if (run.state === "failed") return ["failed", `Failed${run.detail ? `: ${run.detail}` : ""}`];
  if (run.state === "finished") return ["finished", "Finished"];
  const age = store.age;
  if (age !== null && age > QUIET_S)
    return ["quiet", `No news for ${duration(age)}; the run may have stopped`];
  const views = [...store.views.values()].filter((view) => store.isFresh(view));
  const at = views.reduce((best, view) => (!best || view.round > best.round ? view : best), null);
  if (!at)
    return [
      "live",
      run.round ? `Live · round ${run.round} done` : "Live · waiting for the first round",
    ];
  return [
    "live",
    `Live · ${at.phase === "training" ? "training" : "validating"}, round ${at.round}${at.attempt > 1 ? `, attempt ${at.attempt}` : ""}`,
  ];
}

function renderFigures() {
  const { run } = store;
  const views = [...store.views.values()];
  const fresh = views.filter((view) => store.isFresh(view));
  const lastRound = store.section("rounds", []).find((round) => round.n_decisions);
  say(byId("figure-round"), run.n_rounds ? `${run.round}` : "–");
  say(byId("figure-rounds"), run.n_rounds ? `of ${run.n_rounds}` : "");
  const nAtWork = fresh.length || lastRound?.members.length || 0;
  say(byId("figure-zones"), store.zones.length ? String(nAtWork) : "–");
  say(
    byId("figure-zones-of"),
    store.zones.length
      ? `of ${store.zones.length} ${fresh.length ? "at work" : "in the last round"}`
      : "",
  );
  const rate =
    store.rate ?? (lastRound?.seconds ? lastRound.n_decisions / lastRound.seconds : null);
  say(byId("figure-rate"), count(rate));
  say(
    byId("figure-rate-of"),
    rate === null ? "" : store.rate === null ? "in the last round" : "now, all zones",
  );
  const shown = fresh.length ? fresh : views;
  const sum = (key) => (shown.length ? shown.reduce((total, view) => total + view[key], 0) : null);
  say(byId("figure-waiting"), count(sum("n_waiting")));
  say(
    byId("figure-running"),
    shown.length
      ? `${count(sum("n_running"))} running${fresh.length ? "" : ", when last seen"}`
      : "",
  );
  const best = store
    .section("curves", {})
    .objective?.filter((point) => point[2])
    .at(-1);
  say(byId("figure-objective"), best ? figure(best[1], 4) : "–");
  say(
    byId("figure-objective-of"),
    best ? `round ${best[0]}, lower is better` : "no validation yet",
  );
  const found = store.section("comparison", { rows: [] });
  const ratio = found.rows.find((row) => row.metric === "objective")?.ratio ?? null;
  say(byId("figure-ratio"), figure(ratio, 3));
  say(
    byId("figure-ratio-of"),
    found.basis === "evaluation"
      ? "held-out episodes"
      : ratio === null
        ? found.state === "computing"
          ? "being played"
          : ""
        : "validation episodes",
  );
  announce();
}

/** Say in a sentence what is new, for those who do not see the page: rounds and states only. */
function announce() {
  const { run } = store;
  const state = byId("status").dataset.state;
  const key = `${state} ${run.round}`;
  if (key === announced || connection === "connecting") return;
  announced = key;
  const best = store.section("curves", {}).objective?.at(-1);
  const parts = [state === "live" ? "Live" : byId("status-text").textContent];
  if (run.round) parts.push(`round ${run.round} of ${run.n_rounds ?? "?"} finished`);
  if (best) parts.push(`validation objective ${figure(best[1])} in round ${best[0]}`);
  say(byId("announcer"), `${parts.join(", ")}.`);
}

function setUpControls() {
  for (const input of document.querySelectorAll("input[name=kind]")) {
    input.addEventListener("change", () => {
      selection.kind = input.value;
      redraw("selection");
    });
  }
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = darkness() ? "light" : "dark";
    try {
      localStorage.setItem(THEME_KEY, document.documentElement.dataset.theme);
    } catch {
      // Storage may be forbidden: the choice then holds for this page only.
    }
    onTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onTheme);
}

function onTheme() {
  readTheme();
  byId("legend-bar").style.background = gradient();
  redraw("theme");
}

setUpControls();
onTheme();
new Stream(
  "/events",
  (message) => {
    store.apply(message);
    redraw("message");
  },
  (status) => {
    connection = status;
    redraw("run");
  },
);
// Time passes without messages too: a run that says nothing has to be seen to.
setInterval(() => redraw("tick"), 5000);
show(byId("page"), true);
