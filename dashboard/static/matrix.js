// Offloads between many zones: a cell a pair. Cells are kept and filled anew: there may be thousands.

import { darkness, heat } from "./color.js";
import { keyed, say, set, svg, unit } from "./dom.js";
import { count, shortened } from "./format.js";

/** Sizes at the usual size of type. */
const SIDE = 340;
const LABEL = 92;
const TOP = 20;
const NAME = 14;

/** Draws into a chart that others may draw into as well. */
export class Matrix {
  constructor(chart) {
    this.chart = chart;
    this.frame = svg("rect", { class: "matrix-back", rx: 4 });
    this.cells = svg("g");
    this.names = svg("g");
    this.note = svg("text", { class: "axis-text" });
  }

  /** Draw flows, [from, to, n] with the largest first, in a width. */
  draw(names, flows, width) {
    const [left, top] = [LABEL * unit(), TOP * unit()];
    const side = Math.min(width - left, SIDE * unit());
    const cell = side / names.length;
    const most = flows[0][2];
    this.place = { left, top, cell, most };
    const byPair = new Map(flows.map((flow) => [`${flow[0]} ${flow[1]}`, flow[2]]));
    const pairs = new Map();
    names.forEach((from, row) =>
      names.forEach((to, column) => {
        const n = byPair.get(`${from} ${to}`);
        if (n)
          pairs.set(`${from} ${to}`, { row, column, n, text: `${from} to ${to}: ${count(n)}` });
      }),
    );
    keyed(this.cells, [...pairs.keys()], makeCell, (rect, key) => this.fill(rect, pairs.get(key)));
    this.drawNames(names);
    set(this.frame, { x: left, y: top, width: side, height: side });
    set(this.note, { x: left, y: top - 6 * unit() });
    const strongest = darkness() ? "brightest" : "darkest";
    say(this.note, `from a row to a column, in the same order; ${strongest}: ${count(most)}`);
    const height = side + top + 4;
    set(this.chart, { width, height, viewBox: `0 0 ${width} ${height}` });
    if (this.cells.parentNode !== this.chart) {
      this.chart.replaceChildren(this.frame, this.cells, this.names, this.note);
    }
  }

  fill(rect, { row, column, n, text }) {
    const { left, top, cell, most } = this.place;
    const inside = Math.max(1, cell - (cell > 6 ? 1.5 : 0.5)).toFixed(2);
    set(rect, {
      x: (left + column * cell).toFixed(2),
      y: (top + row * cell).toFixed(2),
      width: inside,
      height: inside,
      rx: cell > 12 ? 2 : 0,
      fill: heat(120 + (880 * n) / most),
    });
    say(rect.firstChild, text);
  }

  /** Write every name where there is room, else every second, third, ... one. */
  drawNames(names) {
    const { left, top, cell } = this.place;
    const every = Math.ceil((NAME * unit()) / cell);
    const shown = names.filter((_, i) => i % every === 0);
    keyed(
      this.names,
      shown,
      () => svg("text", { "text-anchor": "end", class: "axis-text" }),
      (text, name) => {
        const y = top + (names.indexOf(name) + 0.5) * cell + 4 * unit();
        set(text, { x: left - 8 * unit(), y });
        say(text, shortened(name));
      },
    );
  }
}

const makeCell = () => svg("rect", {}, svg("title"));
