// learned over kube-default: a dot a metric, its interval where one was measured.

import { byId, onWidth, say, set, show, svg, TableAlternative, unit } from "./dom.js";
import { figure, plural, niceTicks } from "./format.js";

/** Sizes at the usual size of type. */
const SIZES = { row: 30, bottom: 26, left: 146, right: 56, tick: 60 };
const NAMES = {
  objective: "objective",
  late_start_rate: "late starts",
  finish_violation_rate: "finish violations",
  mean_slowdown: "slowdown",
  mean_completion_s: "task completion",
  imbalance_cpu: "imbalance, cpu",
  imbalance_memory: "imbalance, memory",
  cost_per_hour: "cost an hour",
};

/** The comparison card. */
export class Comparison {
  constructor(store) {
    Object.assign(this, { store, width: 0, rows: [] });
    this.box = byId("comparison-chart");
    this.chart = svg("svg", { class: "forest", role: "img" });
    this.box.append(this.chart);
    this.table = new TableAlternative(
      byId("comparison-table"),
      ["Metric", "learned / kube-default", "95 % interval", "learned", "kube-default"],
      () => this.texts(),
    );
    onWidth(this.box, (width) => {
      this.width = width;
      this.draw();
    });
  }

  render() {
    const found = this.store.section("comparison", {
      basis: "validation",
      state: "waiting",
      rows: [],
    });
    this.rows = found.rows.filter(
      (row) => row.ratio !== null && row.ratio !== undefined && row.metric in NAMES,
    );
    this.all = found.rows;
    const main = this.rows.find((row) => row.metric === "objective");
    show(byId("comparison-live"), this.rows.length > 0);
    show(byId("comparison-empty"), this.rows.length === 0);
    say(byId("comparison-empty"), emptyState(found));
    say(byId("comparison-line"), basis(found));
    say(byId("comparison-ratio"), main ? figure(main.ratio, 3) : "");
    say(byId("comparison-words"), main ? inWords(main) : "");
    const others = (found.others ?? []).map((row) => `${figure(row.ratio, 3)} of ${row.baseline}`);
    say(byId("comparison-others"), others.length ? `Its objective is ${others.join(", ")}.` : "");
    this.draw();
    this.table.update();
  }

  draw() {
    if (!this.width || !this.rows.length) return;
    const {
      row: rowHeight,
      bottom,
      left,
      right: values,
      tick: apart,
    } = Object.fromEntries(Object.entries(SIZES).map(([name, pixels]) => [name, pixels * unit()]));
    const right = this.width - values;
    const ends = this.rows.flatMap((row) => [
      row.ratio,
      row.low ?? row.ratio,
      row.high ?? row.ratio,
      1,
    ]);
    const room = 0.06 * (Math.max(...ends) - Math.min(...ends)) || 0.05;
    const [low, high] = [Math.max(0, Math.min(...ends) - room), Math.max(...ends) + room];
    const x = (value) => left + ((value - low) / (high - low)) * (right - left);
    const height = this.rows.length * rowHeight + bottom;
    const nodes = [];
    for (const tick of niceTicks(low, high, Math.max(2, Math.floor((right - left) / apart)))) {
      nodes.push(
        svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height - bottom }),
      );
      nodes.push(
        svg(
          "text",
          { class: "axis-text", x: x(tick), y: height - bottom * 0.3, "text-anchor": "middle" },
          figure(tick, 3),
        ),
      );
    }
    nodes.push(svg("line", { class: "one", x1: x(1), x2: x(1), y1: 0, y2: height - bottom + 4 }));
    this.rows.forEach((row, i) => nodes.push(...this.row(row, (i + 0.5) * rowHeight, x, left)));
    set(this.chart, {
      width: this.width,
      height,
      viewBox: `0 0 ${this.width} ${height}`,
      "aria-label": `Ratios of learned over kube-default: ${this.rows.map((row) => `${NAMES[row.metric]} ${figure(row.ratio, 3)}`).join(", ")}`,
    });
    this.chart.replaceChildren(...nodes);
  }

  row(row, y, x, left) {
    const hasInterval = Number.isFinite(row.low) && Number.isFinite(row.high);
    const verdict = verdictOf(row);
    const parts = [
      svg(
        "text",
        {
          class: row.metric === "objective" ? "row-name strong" : "row-name",
          x: left - 12,
          y: y + 4,
          "text-anchor": "end",
        },
        NAMES[row.metric],
      ),
      svg("circle", {
        class: `ratio ${verdict}`,
        cx: x(row.ratio),
        cy: y,
        r: row.metric === "objective" ? 6 : 4.5,
      }),
      svg(
        "text",
        { class: "row-value", x: this.width - 4, y: y + 4, "text-anchor": "end" },
        figure(row.ratio, 3),
      ),
    ];
    if (hasInterval)
      parts.splice(
        1,
        0,
        svg("line", {
          class: `interval ${verdict}`,
          x1: x(row.low),
          x2: x(row.high),
          y1: y,
          y2: y,
        }),
      );
    return parts;
  }

  texts() {
    return this.all.map((row) => [
      NAMES[row.metric] ?? row.metric,
      figure(row.ratio, 4),
      Number.isFinite(row.low) && Number.isFinite(row.high)
        ? `${figure(row.low, 4)} to ${figure(row.high, 4)}`
        : "–",
      figure(row.learned, 4),
      figure(row.baseline, 4),
    ]);
  }
}

/** "better", "worse" or "even": with an interval, only what lies wholly on one side of 1 counts. */
function verdictOf(row) {
  const [low, high] = [row.low ?? row.ratio, row.high ?? row.ratio];
  if (high < 1) return "better";
  return low > 1 ? "worse" : "even";
}

function inWords(row) {
  const change = `${figure(100 * Math.abs(1 - row.ratio), 2)} %`;
  const interval =
    Number.isFinite(row.low) && Number.isFinite(row.high)
      ? ` (95 % interval ${figure(row.low, 3)} to ${figure(row.high, 3)})`
      : "";
  const verdict = {
    better: `${change} lower than kube-default`,
    worse: `${change} higher than kube-default`,
    even: "no difference that stands out",
  }[verdictOf(row)];
  return `of kube-default's objective: ${verdict}${interval}`;
}

function basis(found) {
  if (found.basis === "evaluation")
    return `Measured on ${plural(found.n_episodes ?? 0, "held-out episode")}, ${plural(found.n_seeds ?? 1, "training seed")}; paired, 95 % intervals.`;
  if (!found.rows.length || found.round === null) return "";
  return `Best validation, round ${found.round}, and kube-default on the same ${plural(found.n_episodes, "episode")}. No interval: evaluate makes one.`;
}

function emptyState(found) {
  if (found.state === "unavailable") return `kube-default could not be played: ${found.reason}`;
  if (found.state === "off") return "The comparison is switched off (--no-baseline).";
  if (found.state === "computing")
    return "Playing kube-default on the same episodes, at low priority …";
  if (found.round === null && found.n_episodes) return "Waiting for the first validation.";
  return "Nothing to compare yet.";
}
