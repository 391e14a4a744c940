// Rounds as a table, and what happened to zones.

import { byId, el, keyed, say, show } from "./dom.js";
import { bytes, clock, count, duration, figure, plural } from "./format.js";

/** The table of rounds. */
export class Rounds {
  constructor(store) {
    this.store = store;
    this.body = byId("rounds-body");
  }

  render() {
    const rounds = this.store.section("rounds", []);
    const nZones = this.store.zones.length;
    show(byId("rounds-empty"), rounds.length === 0);
    show(byId("rounds-scroll"), rounds.length > 0);
    const byNumber = new Map(rounds.map((round) => [round.round, round]));
    keyed(
      this.body,
      [...byNumber.keys()],
      () => el("tr", {}, el("th", { scope: "row" }), ...Array.from({ length: 8 }, () => el("td"))),
      (row, number) => fillRow(row, byNumber.get(number), nZones),
    );
  }
}

function fillRow(row, round, nZones) {
  const texts = [
    String(round.round),
    round.members.length ? String(round.attempt) : "void",
    members(round, nZones),
    count(round.n_decisions || null),
    round.seconds && round.n_decisions ? count(round.n_decisions / round.seconds) : "–",
    figure(round.mean_reward, 3),
    duration(round.seconds),
    bytes(round.bytes),
    round.lost.map(({ zone, reason }) => `${zone}: ${reason}`).join("; "),
  ];
  texts.forEach((text, c) => say(row.cells[c], text));
  row.classList.toggle("had-loss", round.lost.length > 0);
  row.cells[2].title = round.members.join(", ");
}

function members(round, nZones) {
  const n = round.members.length;
  if (!n) return "–";
  return n <= 3 ? round.members.join(", ") : `${n} of ${Math.max(n, nZones)}`;
}

/** The list of events. */
export class Events {
  constructor(store) {
    this.store = store;
    this.list = byId("events-list");
  }

  render() {
    const events = this.store.section("events", []).slice(0, 60);
    show(byId("events-card"), events.length > 0);
    // Events have no number: their place from the oldest one on is their name.
    const keys = events.map(
      (event, i) => `${event.time} ${event.kind} ${event.zone ?? ""} ${events.length - i}`,
    );
    const byKey = new Map(keys.map((key, i) => [key, events[i]]));
    keyed(
      this.list,
      keys,
      () => el("li", {}, el("time"), el("span")),
      (item, key) => {
        const event = byKey.get(key);
        say(item.firstChild, clock(event.time));
        say(item.lastChild, sentence(event));
        item.className =
          ["lost", "problem", "refused", "died"].includes(event.kind) ||
          (event.kind === "end" && event.outcome !== "finished")
            ? "bad"
            : "";
      },
    );
  }
}

function sentence(event) {
  switch (event.kind) {
    case "start":
      return "The run has begun.";
    case "waiting":
      return `Waiting for ${(event.zones ?? []).join(", ")}.`;
    case "missing":
      return `Going on without ${event.reason ?? (event.zones ?? []).join(", ")}.`;
    case "zones":
      return `Other zones from round ${event.round} on: ${[...(event.added ?? []).map((zone) => `${zone} is added`), ...(event.removed ?? []).map((zone) => `${zone} leaves`)].join(", ")}.`;
    case "config":
      return `${event.problem}. The run goes on as it was.`;
    case "joined":
      return `${event.zone} is there${event.epoch > 1 ? ` (epoch ${event.epoch})` : ""}.`;
    case "left":
      return `${event.zone} has left.`;
    case "lost":
      return `${event.zone} was lost in round ${event.round}: ${event.reason}. The round is run again without it.`;
    case "refused":
      return `A node was refused: ${event.reason}.`;
    case "problem":
      return `${event.zone}: ${event.problem}.`;
    case "end":
      return event.outcome === "finished"
        ? "The run has finished."
        : `The run ended (${event.outcome}): ${event.error}`;
    default:
      return [event.kind, event.zone, event.reason ?? event.error ?? event.how]
        .filter(Boolean)
        .join(" · ");
  }
}

/** The report and its plots, once they are there. */
export class Files {
  constructor(store) {
    this.store = store;
  }

  render() {
    const { report, plots } = this.store.section("files", { report: false, plots: [] });
    show(byId("files-card"), report || plots.length > 0);
    show(byId("report-link"), report);
    keyed(
      byId("plots"),
      plots,
      (name) => {
        const path = `/run/${encodeURIComponent(name)}`;
        const title = name.replace(/\.png$/, "").replaceAll("_", " ");
        return el(
          "a",
          { href: path, target: "_blank", rel: "noopener" },
          el("img", { src: path, alt: `Plot: ${title}`, loading: "lazy" }),
          el("span", {}, title),
        );
      },
      () => {},
    );
  }
}

/** What is wrong with the run's files. */
export function renderProblems(store) {
  const { problems } = store.run;
  show(byId("problems"), problems.length > 0);
  say(
    byId("problems-title"),
    `${plural(problems.length, "file")} of this run cannot be read whole`,
  );
  keyed(
    byId("problems-list"),
    problems.map((one) => one.file),
    () => el("li"),
    (item, file) => say(item, `${file}: ${problems.find((one) => one.file === file).problem}`),
  );
}
