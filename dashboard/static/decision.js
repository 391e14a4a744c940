// The last decision of the selected zone: what the policy expected of every candidate.
//
// A candidate is a row: its quantile values as a fan (all of them, 10 to 90 %, the middle half), the
// mean as a line. Of a policy with one value a candidate there is that line and no fan: it may be no
// return at all, but what an actor prefers or a node scores. Reading takes longer than half a second: pointing at it, or focus, holds it.

import { byId, onWidth, say, set, show, svg, TableAlternative, unit } from "./dom.js";
import {
  duration,
  figure,
  percent,
  request,
  resourceName,
  niceTicks,
  shortened,
} from "./format.js";

/** Sizes at the usual size of type. */
const SIZES = { row: 34, top: 8, bottom: 26, left: 104, right: 64, tick: 62 };
const MOST = 8;
/** Means come with four places: a smaller difference is none. */
const LEAST = 0.00005;

/** The fan chart of a decision. */
export class Decision {
  constructor(store, selection) {
    Object.assign(this, {
      store,
      selection,
      shown: null,
      nRows: 0,
      width: 0,
      isHeld: false,
      isTouched: false,
    });
    this.box = byId("decision-chart");
    this.chart = svg("svg", {
      class: "fan",
      role: "group",
      "aria-label": "Candidates of the decision",
    });
    this.axis = svg("g", { class: "axis", "aria-hidden": "true" });
    this.rows = Array.from({ length: MOST }, (_, i) => this.makeRow(i));
    this.chart.append(this.axis, ...this.rows.map((row) => row.group));
    this.box.append(this.chart);
    this.hold = byId("decision-hold");
    this.hold.addEventListener("click", () => {
      this.isHeld = !this.isHeld;
      this.render();
    });
    for (const [type, isTouched] of [
      ["pointerenter", true],
      ["pointerleave", false],
      ["focusin", true],
      ["focusout", false],
    ]) {
      this.box.addEventListener(type, () => {
        this.isTouched = isTouched;
        if (!isTouched) say(byId("decision-detail"), hint);
        this.render();
      });
    }
    this.table = new TableAlternative(
      byId("decision-table"),
      ["Candidate", "Mean", "10 %", "50 %", "90 %", "Chosen"],
      () => this.texts(),
    );
    this.legend = byId("decision-legend");
    onWidth(this.box, (width) => {
      this.width = width;
      this.draw();
    });
  }

  makeRow(i) {
    const group = svg("g", { class: "candidate", tabindex: "0", role: "img" });
    const parts = {
      group,
      back: svg("rect", { class: "candidate-back", rx: 5 }),
      name: svg("text", { class: "candidate-name", "text-anchor": "end" }),
      bands: [0, 1, 2].map((b) => svg("rect", { class: `band band-${b}`, rx: 3 })),
      mean: svg("line", { class: "candidate-mean" }),
      value: svg("text", { class: "candidate-value" }),
    };
    group.append(parts.back, ...parts.bands, parts.mean, parts.name, parts.value);
    for (const type of ["pointerenter", "focus"])
      group.addEventListener(type, () => this.detail(i));
    return parts;
  }

  render() {
    const view = this.store.views.get(this.selection.zone);
    const isOther = this.shown?.zone !== this.selection.zone;
    if (isOther) {
      this.isHeld = false;
      this.nRows = 0;
    }
    const decision = view?.decision ?? null;
    if ((!this.isHeld && !this.isTouched) || isOther || this.shown === null) {
      this.shown = decision ? { zone: this.selection.zone, decision } : null;
    }
    const isThere = this.shown !== null;
    show(byId("decision-live"), isThere);
    show(byId("decision-empty"), !isThere);
    show(this.hold, isThere);
    set(this.hold, { "aria-pressed": this.isHeld });
    say(this.hold, this.isHeld ? "Held" : "Hold");
    if (isThere) this.draw();
  }

  draw() {
    if (!this.shown || !this.width) return;
    const { decision } = this.shown;
    const { candidates } = decision;
    say(byId("decision-why"), why(decision));
    say(
      byId("decision-line"),
      `An instance asking for ${request(decision.request)}, ${duration(decision.simulated_s)} into the episode.`,
    );
    show(this.legend, hasFans(decision));
    const fans = candidates.map((one) => fanOf(one, decision.taus));
    const [low, high] = domain(fans);
    const size = (this.size = Object.fromEntries(
      Object.entries(SIZES).map(([name, pixels]) => [name, pixels * unit()]),
    ));
    const [from, to] = [size.left, this.width - size.right];
    const x = (value) => from + ((value - low) / (high - low)) * (to - from);
    // The page below must not jump with the number of candidates.
    this.nRows = Math.max(this.nRows, candidates.length);
    const height = size.top + this.nRows * size.row + size.bottom;
    set(this.chart, { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` });
    this.rows.forEach((row, i) => {
      row.group.style.display = i < candidates.length ? "" : "none";
      set(row.group, { tabindex: i < candidates.length ? 0 : null });
      if (i < candidates.length) this.fillRow(row, i, candidates[i], fans[i], x);
    });
    this.drawAxis(low, high, x, height);
    this.table.update();
  }

  fillRow(row, i, candidate, fan, x) {
    const { row: rowHeight, top, left: labels } = this.size;
    const y = top + i * rowHeight;
    const middle = y + rowHeight / 2;
    const part = rowHeight / 34;
    set(row.group, {
      class: candidate.is_chosen ? "candidate chosen" : "candidate",
      "aria-label": spoken(candidate, fan, this.shown.decision),
    });
    set(row.back, { x: 2, y: y + 1, width: this.width - 4, height: rowHeight - 2 });
    say(row.name, nameOf(candidate));
    set(row.name, { x: labels - 12, y: middle + 4 * part });
    const bands = [
      [fan.low, fan.high, 6],
      [fan.tenth, fan.ninetieth, 12],
      [fan.quarter, fan.threeQuarters, 18],
    ];
    bands.forEach(([left, right, size], b) =>
      set(row.bands[b], {
        x: x(left),
        y: middle - (size * part) / 2,
        width: Math.max(1.5, x(right) - x(left)),
        height: size * part,
      }),
    );
    set(row.mean, {
      x1: x(candidate.mean),
      x2: x(candidate.mean),
      y1: middle - 12 * part,
      y2: middle + 12 * part,
    });
    say(row.value, figure(candidate.mean, 3));
    set(row.value, { x: this.width - 10, y: middle + 4 * part, "text-anchor": "end" });
  }

  drawAxis(low, high, x, height) {
    const { left, right, tick, top, bottom } = this.size;
    const ticks = niceTicks(low, high, Math.max(3, Math.floor((this.width - left - right) / tick)));
    const nodes = ticks.flatMap((value) => [
      svg("line", { x1: x(value), x2: x(value), y1: top, y2: height - bottom + 2 }),
      svg(
        "text",
        { x: x(value), y: height - bottom * 0.3, "text-anchor": "middle" },
        figure(value, 3),
      ),
    ]);
    this.axis.replaceChildren(...nodes);
  }

  detail(i) {
    const candidate = this.shown?.decision.candidates[i];
    if (candidate)
      say(
        byId("decision-detail"),
        spoken(candidate, fanOf(candidate, this.shown.decision.taus), this.shown.decision),
      );
  }

  texts() {
    if (!this.shown) return [];
    const { candidates, taus } = this.shown.decision;
    const isFan = hasFans(this.shown.decision);
    return candidates.map((one) => {
      const fan = fanOf(one, taus);
      const places = isFan ? [fan.tenth, fan.median, fan.ninetieth] : [null, null, null];
      return [
        nameOf(one),
        figure(one.mean, 4),
        ...places.map((place) => figure(place, 4)),
        one.is_chosen ? "chosen" : "",
      ];
    });
  }
}

const hint = "Point at a candidate, or move to it with Tab, for its numbers.";

const nameOf = (candidate) =>
  candidate.kind === "peer" ? `to ${shortened(candidate.name, 11)}` : `machine ${candidate.name}`;
const fullName = (candidate) =>
  candidate.kind === "peer" ? `offload to ${candidate.name}` : `machine ${candidate.name}`;

const hasFans = (decision) => decision.taus.length > 1;
/** A difference of two means, which come with four places. */
const gap = (difference) => figure(difference, difference < 0.01 ? 4 : 2);

/** One sentence on the choice, and nothing that the numbers do not say. */
function why(decision) {
  const [chosen, ...others] = decision.candidates;
  const name = chosen.kind === "peer" ? `Offloaded to ${chosen.name}` : `Machine ${chosen.name}`;
  if (decision.is_exploring) return `${name}: drawn at random, to explore.`;
  if (!others.length) return `${name}: the only one it could go to.`;
  const next = others.reduce((best, one) => (one.mean > best.mean ? one : best));
  const [best, its] = hasFans(decision) ? ["expected return", "mean"] : ["value", "value"];
  const margin = chosen.mean - next.mean;
  if (margin < -LEAST)
    return `${name}: chosen though ${fullName(next)} has a ${its} that is ${gap(-margin)} higher.`;
  if (margin <= LEAST) return `${name}: the highest ${best}, with ${fullName(next)} as good.`;
  return `${name}: the highest ${best}, ${gap(margin)} above ${fullName(next)}.`;
}

function spoken(candidate, fan, decision) {
  const names = Object.keys(decision.request);
  const used = candidate.utilization
    ? ` In use: ${candidate.utilization.map((share, r) => `${resourceName(names[r])} ${percent(share)}`).join(", ")}.`
    : "";
  const said = `${fullName(candidate)}${candidate.is_chosen ? ", chosen" : ""}`;
  if (!hasFans(decision)) return `${said}: value ${figure(candidate.mean, 3)}.${used}`;
  return `${said}: mean ${figure(candidate.mean, 3)}, half of the returns between ${figure(fan.quarter, 3)} and ${figure(fan.threeQuarters, 3)}, 10 to 90 %: ${figure(fan.tenth, 3)} to ${figure(fan.ninetieth, 3)}.${used}`;
}

function fanOf(candidate, taus) {
  // Quantiles of a network may cross: sorted, they are those of the same distribution.
  const values = [...candidate.quantiles].sort((a, b) => a - b);
  const at = (tau) => {
    const right = taus.findIndex((one) => one >= tau);
    if (right <= 0) return right === 0 ? values[0] : values.at(-1);
    const share = (tau - taus[right - 1]) / (taus[right] - taus[right - 1] || 1);
    return values[right - 1] + share * (values[right] - values[right - 1]);
  };
  return {
    low: values[0],
    high: values.at(-1),
    tenth: at(0.1),
    ninetieth: at(0.9),
    quarter: at(0.25),
    threeQuarters: at(0.75),
    median: at(0.5),
  };
}

function domain(fans) {
  const low = Math.min(...fans.map((fan) => fan.low));
  const high = Math.max(...fans.map((fan) => fan.high));
  const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}
