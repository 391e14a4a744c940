// Learning curves: a line a figure, a value a round.

import { byId, onWidth, say, set, show, svg, TableAlternative, unit } from "./dom.js";
import { count, figure, niceTicks } from "./format.js";

/** Sizes at the usual size of type. */
const SIZES = { height: 210, top: 14, right: 14, bottom: 26, left: 52 };

/** One chart; `points` are [round, value, is marked]. */
class LineChart {
  constructor(id, format) {
    Object.assign(this, { format, width: 0, points: [], line: null, last: 1, at: -1 });
    const root = byId(id);
    this.box = root.querySelector(".chart");
    this.empty = root.querySelector(".empty");
    this.note = root.querySelector(".note");
    this.details = root.querySelector("details");
    this.chart = svg("svg", { class: "curve", role: "img", tabindex: "0" });
    this.box.append(this.chart);
    this.table = new TableAlternative(this.details, ["Round", "Value"], () =>
      this.points.map(([round, value]) => [String(round), format(value)]),
    );
    this.chart.addEventListener("pointermove", (event) => this.point(this.nearest(event)));
    this.chart.addEventListener("pointerleave", () => this.point(-1));
    this.chart.addEventListener("blur", () => this.point(-1));
    this.chart.addEventListener("keydown", (event) => this.onKey(event));
    onWidth(this.box, (width) => {
      this.width = width;
      this.draw();
    });
  }

  show(points, { last, line = null, label, note, marks = "" }) {
    Object.assign(this, {
      points,
      last: Math.max(1, last, points.at(-1)?.[0] ?? 0),
      line,
      label,
      restNote: note,
      marks,
    });
    show(this.empty, points.length === 0);
    show(this.box, points.length > 0);
    show(this.details, points.length > 0);
    if (this.at < 0) say(this.note, note);
    this.draw();
    this.table.update();
  }

  draw() {
    if (!this.width || !this.points.length) return;
    const pad = (this.pad = Object.fromEntries(
      Object.entries(SIZES).map(([name, pixels]) => [name, pixels * unit()]),
    ));
    const values = this.points.map((point) => point[1]);
    if (this.line) values.push(this.line.value);
    let [low, high] = [Math.min(...values), Math.max(...values)];
    const room = (high - low) * 0.12 || Math.abs(high) * 0.1 || 1;
    [low, high] = [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
    const x = (round) =>
      pad.left + ((round - 1) / Math.max(1, this.last - 1)) * (this.width - pad.left - pad.right);
    const y = (value) =>
      pad.height -
      pad.bottom -
      ((value - low) / (high - low)) * (this.pad.height - pad.top - pad.bottom);
    this.scale = { x, y };
    const nodes = [...this.axes(low, high, x, y)];
    if (this.line) nodes.push(...this.reference(y));
    nodes.push(
      svg("path", {
        class: "curve-line",
        d: this.points
          .map(
            ([round, value], i) => `${i ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`,
          )
          .join(""),
      }),
    );
    if (this.points.length <= 60) {
      for (const [round, value, isMarked] of this.points)
        nodes.push(
          svg("circle", {
            cx: x(round),
            cy: y(value),
            r: isMarked ? 4.5 : 2.5,
            class: isMarked ? "curve-dot marked" : "curve-dot",
          }),
        );
    }
    this.cursor = svg(
      "g",
      { class: "cursor", visibility: "hidden" },
      svg("line", { y1: pad.top, y2: pad.height - pad.bottom }),
      svg("circle", { r: 5 }),
    );
    nodes.push(this.cursor);
    set(this.chart, {
      width: this.width,
      height: pad.height,
      viewBox: `0 0 ${this.width} ${pad.height}`,
      "aria-label": `${this.label}: ${this.restNote} Arrow keys read the rounds.`,
    });
    this.chart.replaceChildren(...nodes);
    if (this.at >= 0) this.point(Math.min(this.at, this.points.length - 1));
  }

  *axes(low, high, x, y) {
    const { pad } = this;
    for (const tick of niceTicks(low, high, 4)) {
      yield svg("line", {
        class: "grid",
        x1: pad.left,
        x2: this.width - pad.right,
        y1: y(tick),
        y2: y(tick),
      });
      yield svg(
        "text",
        { class: "axis-text", x: pad.left - 8, y: y(tick) + 4, "text-anchor": "end" },
        this.format(tick, 3),
      );
    }
    const step = Math.max(1, Math.ceil(this.last / 8));
    for (let round = 1; round <= this.last; round += step) {
      yield svg(
        "text",
        {
          class: "axis-text",
          x: x(round),
          y: pad.height - pad.bottom * 0.3,
          "text-anchor": "middle",
        },
        String(round),
      );
    }
  }

  reference(y) {
    const { pad } = this;
    const at = y(this.line.value);
    return [
      svg("line", { class: "reference", x1: pad.left, x2: this.width - pad.right, y1: at, y2: at }),
      svg(
        "text",
        { class: "reference-text", x: this.width - pad.right, y: at - 6, "text-anchor": "end" },
        this.line.name,
      ),
    ];
  }

  nearest(event) {
    const left = event.clientX - this.chart.getBoundingClientRect().left;
    let best = -1;
    let distance = Infinity;
    this.points.forEach(([round], i) => {
      const away = Math.abs(this.scale.x(round) - left);
      if (away < distance) [best, distance] = [i, away];
    });
    return best;
  }

  onKey(event) {
    const moves = {
      ArrowLeft: this.at - 1,
      ArrowRight: this.at + 1,
      Home: 0,
      End: this.points.length - 1,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.point(Math.min(this.points.length - 1, Math.max(0, moves[event.key])));
  }

  point(i) {
    this.at = i;
    const point = this.points[i];
    set(this.cursor, { visibility: point ? "visible" : "hidden" });
    say(
      this.note,
      point
        ? `Round ${point[0]}: ${this.format(point[1], 4)}${point[2] ? ` (${this.marks})` : ""}`
        : this.restNote,
    );
    if (!point) return;
    const [x, y] = [this.scale.x(point[0]), this.scale.y(point[1])];
    set(this.cursor.firstChild, { x1: x, x2: x });
    set(this.cursor.lastChild, { cx: x, cy: y });
  }
}

/** The three curves of a run. */
export class Curves {
  constructor(store) {
    this.store = store;
    this.objective = new LineChart("curve-objective", figure);
    this.reward = new LineChart("curve-reward", figure);
    this.rate = new LineChart("curve-rate", count);
  }

  render() {
    const { objective = [], reward = [], rate = [] } = this.store.section("curves", {});
    const rule = this.store.section("comparison", {}).validation_objective;
    const last = this.store.run.n_rounds ?? 1;
    const best = objective.filter((point) => point[2]).at(-1);
    this.objective.show(objective, {
      last,
      line: rule ? { value: rule, name: "kube-default" } : null,
      label: "Validation objective by round",
      note: best
        ? `Best so far ${figure(best[1])}, round ${best[0]}. Lower is better.`
        : "Lower is better.",
      marks: "best so far",
    });
    this.reward.show(reward, {
      last,
      label: "Mean reward by round",
      note: reward.length ? `Last ${figure(reward.at(-1)[1])}. Higher is better.` : "",
    });
    this.rate.show(rate, {
      last,
      label: "Decisions a second by round",
      note: rate.length ? `Last ${count(rate.at(-1)[1])}/s, all zones together.` : "",
    });
  }
}
