// The zones as tiles: machines, queue, phase. One tab stop; arrow keys move between tiles.

import { byId, el, keyed, say, set, show, svg } from "./dom.js";
import { count, figure, percent, plural, resourceName } from "./format.js";
import { HeatMap } from "./heat.js";

const SHOWN_RESOURCES = 2;
const NARROW = "(max-width: 34rem)";
const ONE_COLUMN = "(max-width: 63.99rem)";
const SPARK_WIDTH = 90;
const SPARK_HEIGHT = 20;

/** What a view, or its absence, says of a zone in a word. */
export function phaseOf(store, view, zone) {
  if (!view) return zone?.figures ? `round ${zone.figures.round}` : "not begun";
  if (store.isFresh(view)) return view.phase;
  return store.run.state === "running" ? "no news" : `round ${view.round}`;
}

/** Mean of thousandths, as a share. */
export const meanShare = (values) =>
  values.reduce((sum, value) => sum + value, 0) / (1000 * Math.max(1, values.length));

/** The grid of tiles. */
export class Tiles {
  constructor(store, selection) {
    Object.assign(this, { store, selection, tiles: new Map() });
    this.grid = byId("tiles");
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    this.sight = new IntersectionObserver(
      (entries) => {
        for (const entry of entries)
          this.tiles
            .get(entry.target.dataset.zone)
            ?.maps.forEach((map) => map.seen(entry.isIntersecting));
      },
      { rootMargin: "200px" },
    );
  }

  /** Draw what is new; `zones` is null for all. */
  render(zones) {
    const names = this.store.zones.map((zone) => zone.name);
    const byName = new Map(this.store.zones.map((zone) => [zone.name, zone]));
    const isCrowded = names.length > (matchMedia(NARROW).matches ? 4 : 12);
    this.grid.classList.toggle("crowded", isCrowded);
    for (const name of this.tiles.keys()) {
      if (!byName.has(name)) this.drop(name);
    }
    keyed(
      this.grid,
      names,
      (name) => this.make(name),
      (_, name) => {
        if (zones === null || zones.has(`zone:${name}`)) this.fill(byName.get(name));
      },
    );
    show(byId("tiles-empty"), names.length === 0);
    say(byId("zones-count"), names.length ? plural(names.length, "zone") : "");
  }

  make(name) {
    const tile = el("button", { class: "tile", type: "button", "data-zone": name });
    const parts = {
      name: el("span", { class: "tile-name" }, name),
      phase: el("span", { class: "tile-phase" }),
      maps: el("span", { class: "tile-maps" }),
      waiting: el("b"),
      running: el("b"),
      figures: el("span", { class: "tile-figures" }),
      spark: svg("path", { class: "spark", fill: "none" }),
      progress: el("span", { class: "tile-progress" }, el("i")),
    };
    parts.sparkBox = svg(
      "svg",
      {
        class: "tile-spark",
        viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      },
      parts.spark,
    );
    parts.queue = el(
      "span",
      { class: "tile-queue" },
      el("span", {}, parts.waiting, " waiting"),
      el("span", {}, parts.running, " running"),
      parts.sparkBox,
    );
    tile.append(
      el("span", { class: "tile-head" }, parts.name, parts.phase),
      parts.maps,
      parts.queue,
      parts.figures,
      parts.progress,
    );
    tile.addEventListener("click", (event) => this.onClick(name, event));
    this.tiles.set(name, { tile, parts, maps: [] });
    this.sight.observe(tile);
    return tile;
  }

  drop(name) {
    const { tile, maps } = this.tiles.get(name);
    maps.forEach((map) => map.close());
    this.sight.unobserve(tile);
    this.tiles.delete(name);
  }

  fill(zone) {
    const { tile, parts, maps } = this.tiles.get(zone.name);
    const view = this.store.views.get(zone.name);
    const isSelected = this.selection.zone === zone.name;
    const isFresh = view !== undefined && this.store.isFresh(view);
    set(tile, { "aria-pressed": isSelected, tabindex: isSelected ? 0 : -1 });
    tile.classList.toggle(
      "stale",
      view !== undefined && !isFresh && this.store.run.state === "running",
    );
    const phase = phaseOf(this.store, view, zone);
    say(parts.phase, phase);
    set(parts.phase, { "data-phase": isFresh ? view.phase : "none" });
    show(parts.maps, view !== undefined);
    show(parts.queue, view !== undefined);
    show(parts.figures, view === undefined);
    parts.progress.firstChild.style.width = percent(isFresh ? view.share : 0, 1);
    if (view) this.fillView(zone, view, parts, maps);
    else say(parts.figures, roundFigures(zone));
  }

  fillView(zone, view, parts, maps) {
    const kind = this.selection.kind;
    const shown = view.resources.slice(0, SHOWN_RESOURCES);
    while (maps.length < shown.length) {
      const canvas = el("canvas", { "aria-hidden": "true" });
      const [label, share] = [el("span"), el("span")];
      const line = el("span", { class: "tile-resource" }, label, " ", share);
      parts.maps.append(el("span", { class: "tile-map" }, line, canvas));
      maps.push(Object.assign(new HeatMap(canvas), { label, share }));
    }
    const marked = this.selection.zone === zone.name ? this.selection.machine : -1;
    maps.forEach((map, r) => {
      if (r >= shown.length) return;
      say(map.label, resourceName(shown[r]));
      say(map.share, percent(meanShare(view[kind][r])));
      map.show(view[kind][r], marked);
    });
    say(parts.waiting, count(view.n_waiting));
    say(parts.running, count(view.n_running));
    this.drawSpark(zone.name, parts);
  }

  drawSpark(name, parts) {
    const values = this.store.histories.get(name)?.waiting ?? [];
    const top = Math.max(1, ...values);
    const step = SPARK_WIDTH / Math.max(1, values.length - 1);
    const path = values.map(
      (value, i) =>
        `${i ? "L" : "M"}${(i * step).toFixed(1)} ${(SPARK_HEIGHT - 1 - ((SPARK_HEIGHT - 2) * value) / top).toFixed(1)}`,
    );
    set(parts.spark, { d: values.length > 1 ? path.join("") : "" });
  }

  onClick(name, event) {
    const map = this.tiles.get(name).maps.find((one) => one.canvas === event.target);
    const cell = map ? map.cellAt(event) : -1;
    this.selection.choose(name, cell >= 0 ? cell : null);
    // In one column what was chosen stands below all tiles; keys move on among them.
    if (event.detail > 0 && matchMedia(ONE_COLUMN).matches)
      byId("zone-card").scrollIntoView({ block: "start" });
  }

  onKey(event) {
    const names = this.store.zones.map((zone) => zone.name);
    const at = names.indexOf(event.target.dataset?.zone);
    if (at < 0) return;
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const moves = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -columns,
      ArrowDown: columns,
      Home: -at,
      End: names.length - 1 - at,
    };
    const next = at + (moves[event.key] ?? 0);
    if (!(event.key in moves) || next < 0 || next >= names.length) return;
    event.preventDefault();
    this.tiles.get(names[next]).tile.focus();
  }
}

function roundFigures(zone) {
  const figures = zone.figures;
  const size = zone.n_machines ? plural(zone.n_machines, "machine") : "";
  if (!figures) return size;
  const parts = [size];
  if (figures.utilization_cpu !== undefined) parts.push(`cpu ${percent(figures.utilization_cpu)}`);
  if (figures.utilization_memory !== undefined)
    parts.push(`memory ${percent(figures.utilization_memory)}`);
  if (figures.n_decisions !== undefined) parts.push(`${count(figures.n_decisions)} decisions`);
  if (figures.objective !== undefined) parts.push(`objective ${figure(figures.objective, 3)}`);
  return parts.filter(Boolean).join(" · ");
}
