// Offloads between zones: ribbons for a few zones, a matrix for many.

import { CATEGORIES } from "./color.js";
import { byId, onWidth, say, set, show, svg, TableAlternative, unit } from "./dom.js";
import { count, plural, shortened } from "./format.js";
import { Matrix } from "./matrix.js";

const MOST_RIBBONS = 8;
/** Sizes at the usual size of type. */
const SIZES = { row: 36, node: 10, gap: 8, label: 92 };

/** Who sends to whom, as counted since the start of each zone's episode. */
export class Flows {
  constructor(store) {
    Object.assign(this, { store, width: 0, at: 0 });
    this.box = byId("flows-chart");
    this.chart = svg("svg", { class: "flows", role: "img" });
    this.box.append(this.chart);
    this.matrix = new Matrix(this.chart);
    this.table = new TableAlternative(byId("flows-table"), ["From", "To", "Instances"], () =>
      this.flows().map(([from, to, n]) => [from, to, count(n)]),
    );
    onWidth(this.box, (width) => {
      this.width = width;
      this.render(true);
    });
  }

  flows() {
    const flows = [];
    for (const [from, view] of this.store.views) {
      for (const [to, n] of Object.entries(view.offloads)) if (n > 0) flows.push([from, to, n]);
    }
    return flows.sort((a, b) => b[2] - a[2]);
  }

  render(isUrgent = false) {
    const now = performance.now();
    if (!isUrgent && now - this.at < 900) return;
    this.at = now;
    const flows = this.flows();
    const names = this.store.zones.map((zone) => zone.name);
    const total = flows.reduce((sum, flow) => sum + flow[2], 0);
    show(byId("flows-empty"), total === 0);
    show(this.box, total > 0);
    show(this.table.details, total > 0);
    say(
      byId("flows-empty"),
      this.store.views.size === 0
        ? "No views yet: they tell what zones send each other."
        : names.length < 2
          ? "One zone has nobody to send to."
          : "No instance was sent to another zone in these episodes so far.",
    );
    say(
      byId("flows-line"),
      total > 0
        ? `${plural(total, "instance")} sent in the episodes ${[...this.store.views.values()].some((view) => this.store.isFresh(view)) ? "under way" : "shown last"}`
        : "",
    );
    if (total > 0 && this.width) {
      const top = flows.slice(0, 3).map(([from, to, n]) => `${from} to ${to}: ${count(n)}`);
      set(this.chart, {
        "aria-label": `${plural(total, "instance")} sent between zones. Most: ${top.join("; ")}`,
      });
      if (names.length <= MOST_RIBBONS) this.drawRibbons(names, flows, total);
      else this.matrix.draw(names, flows, this.width);
    }
    this.table.update(isUrgent);
  }

  drawRibbons(names, flows, total) {
    const { row, node: NODE, gap: GAP, label: LABEL } = sizes();
    const inner = names.length * row;
    const scale = (inner - (names.length - 1) * GAP - names.length * 3) / total;
    const sums = (side) =>
      new Map(
        names.map((name) => [
          name,
          flows.filter((flow) => flow[side] === name).reduce((sum, flow) => sum + flow[2], 0),
        ]),
      );
    const place = (byName) => {
      let y = 4;
      return new Map(
        names.map((name) => {
          const height = 3 + byName.get(name) * scale;
          const at = { y, height, used: 1.5 };
          y += height + GAP;
          return [name, at];
        }),
      );
    };
    const [sent, taken] = [sums(0), sums(1)];
    const [left, right] = [place(sent), place(taken)];
    const [x1, x2] = [LABEL + NODE, this.width - LABEL - NODE];
    const height = inner + 12;
    const ribbons = names
      .flatMap((from, i) => names.map((to) => [from, to, i]))
      .flatMap(([from, to, i]) => {
        const n = flows.find((flow) => flow[0] === from && flow[1] === to)?.[2] ?? 0;
        if (!n || !right.has(to)) return [];
        const [a, b, thick] = [left.get(from), right.get(to), Math.max(1, n * scale)];
        const [ya, yb] = [a.y + a.used + thick / 2, b.y + b.used + thick / 2];
        a.used += n * scale;
        b.used += n * scale;
        const bend = (x2 - x1) * 0.45;
        const path = svg("path", {
          d: `M${x1} ${ya}C${x1 + bend} ${ya} ${x2 - bend} ${yb} ${x2} ${yb}`,
          stroke: CATEGORIES[i % CATEGORIES.length],
          "stroke-width": thick.toFixed(2),
          class: "ribbon",
        });
        path.append(svg("title", {}, `${from} to ${to}: ${count(n)}`));
        return [path];
      });
    const nodes = names.flatMap((name, i) => [
      ...node(
        left.get(name),
        LABEL,
        "end",
        LABEL - 8,
        `${shortened(name)}`,
        count(sent.get(name)),
        CATEGORIES[i % CATEGORIES.length],
      ),
      ...node(
        right.get(name),
        this.width - LABEL - NODE,
        "start",
        this.width - LABEL + 8,
        `${shortened(name)}`,
        count(taken.get(name)),
        CATEGORIES[i % CATEGORIES.length],
      ),
    ]);
    set(this.chart, { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` });
    this.chart.replaceChildren(...ribbons, ...nodes);
  }
}

const sizes = () =>
  Object.fromEntries(Object.entries(SIZES).map(([name, pixels]) => [name, pixels * unit()]));

function node(place, x, anchor, textX, name, amount, color) {
  const middle = place.y + place.height / 2;
  return [
    svg("rect", { x, y: place.y, width: sizes().node, height: place.height, rx: 3, fill: color }),
    svg("text", { x: textX, y: middle - 1, "text-anchor": anchor, class: "flow-name" }, name),
    svg(
      "text",
      { x: textX, y: middle + 12 * unit(), "text-anchor": anchor, class: "axis-text" },
      amount,
    ),
  ];
}
