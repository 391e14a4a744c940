// The selected zone: its machines, large, and the numbers of one.

import { byId, el, keyed, say, set, show, TableAlternative } from "./dom.js";
import { count, duration, figure, percent, plural, resourceName } from "./format.js";
import { HeatMap } from "./heat.js";
import { phaseOf } from "./tiles.js";

/** The panel of the selected zone. */
export class ZonePanel {
  constructor(store, selection) {
    Object.assign(this, { store, selection, maps: new Map() });
    this.box = byId("machines");
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.table = new TableAlternative(byId("machines-table"), [], () => this.rows());
  }

  render() {
    const zone = this.store.zones.find((one) => one.name === this.selection.zone);
    const view = zone && this.store.views.get(zone.name);
    say(byId("zone-title"), zone ? zone.name : "Zone");
    say(byId("zone-line"), zone ? line(this.store, zone, view) : "");
    show(byId("zone-live"), view !== undefined && zone !== undefined);
    show(byId("zone-empty"), !view);
    say(
      byId("zone-empty"),
      this.store.run.state === "finished"
        ? "This run has kept no view of its machines."
        : "No view of this zone's machines yet.",
    );
    if (view && zone) this.fill(zone, view);
  }

  fill(zone, view) {
    const { kind } = this.selection;
    const nCells = view.utilization[0].length;
    if (this.selection.machine >= nCells) this.selection.machine = nCells - 1;
    keyed(
      this.box,
      view.resources,
      (name) => this.makeMap(name),
      () => {},
    );
    view.resources.forEach((name, r) => {
      const { map, share } = this.maps.get(name);
      map.show(view[kind][r], this.selection.machine);
      say(share, percent(view[kind][r].reduce((sum, value) => sum + value, 0) / (1000 * nCells)));
    });
    for (const name of this.maps.keys()) {
      if (!view.resources.includes(name)) {
        this.maps.get(name).map.close();
        this.maps.delete(name);
      }
    }
    set(this.box, {
      "aria-label": `${plural(view.n, "machine")} of ${zone.name}, ${kind}. Arrow keys move between machines.`,
    });
    this.fillMachine(view);
    this.table.columns([
      view.per_cell > 1 ? "Machines" : "Machine",
      ...view.resources.flatMap((name) => [
        `${resourceName(name)} used`,
        `${resourceName(name)} allocated`,
      ]),
    ]);
    this.table.update();
  }

  makeMap(name) {
    const canvas = el("canvas", { "aria-hidden": "true", class: "large-map" });
    const share = el("span", { class: "muted" });
    const map = new HeatMap(canvas);
    this.maps.set(name, { map, share });
    canvas.addEventListener("click", (event) => {
      const cell = map.cellAt(event);
      if (cell >= 0) this.selection.choose(this.selection.zone, cell);
      this.box.focus({ preventScroll: true });
    });
    return el(
      "div",
      { class: "map" },
      el("div", { class: "map-head" }, el("span", {}, resourceName(name)), share),
      canvas,
    );
  }

  fillMachine(view) {
    const cell = this.selection.machine;
    const name = machineName(view, cell);
    say(byId("machine-name"), cell < 0 ? "No machine chosen" : name);
    show(byId("machine-hint"), cell < 0);
    show(byId("machine-numbers"), cell >= 0);
    if (cell < 0) return;
    const body = byId("machine-rows");
    keyed(
      body,
      view.resources,
      (resource) => makeRow(resource),
      (row, resource) => {
        const r = view.resources.indexOf(resource);
        const [used, allocated] = [view.utilization[r][cell], view.allocation[r][cell]];
        fillBar(row.cells[1], used);
        fillBar(row.cells[2], allocated);
      },
    );
  }

  rows() {
    const view = this.store.views.get(this.selection.zone);
    if (!view) return [];
    return view.utilization[0].map((_, cell) => [
      machineName(view, cell),
      ...view.resources.flatMap((_name, r) => [
        percent(view.utilization[r][cell] / 1000, 1),
        percent(view.allocation[r][cell] / 1000, 1),
      ]),
    ]);
  }

  onKey(event) {
    const first = this.maps.values().next().value;
    if (!first) return;
    const cell = this.selection.machine;
    // From no machine at all, every arrow leads to the first one.
    const next =
      cell < 0 && event.key.startsWith("Arrow") ? 0 : first.map.step(Math.max(0, cell), event.key);
    if (next === null) return;
    event.preventDefault();
    this.selection.choose(this.selection.zone, next);
    const view = this.store.views.get(this.selection.zone);
    if (view) say(byId("machine-said"), spoken(view, next));
  }
}

/** Name of a cell: a machine, or several in a row where there are too many. */
export function machineName(view, cell) {
  if (view.per_cell === 1) return `Machine ${cell}`;
  const first = cell * view.per_cell;
  return `Machines ${first} to ${Math.min(view.n, first + view.per_cell) - 1}`;
}

function spoken(view, cell) {
  const parts = view.resources.map(
    (name, r) =>
      `${resourceName(name)} ${percent(view.utilization[r][cell] / 1000)} used, ${percent(view.allocation[r][cell] / 1000)} allocated`,
  );
  return `${machineName(view, cell)}: ${parts.join("; ")}`;
}

function makeRow(resource) {
  const bar = () =>
    el("td", {}, el("span", { class: "bar" }, el("i")), el("span", { class: "number" }));
  return el("tr", {}, el("th", { scope: "row" }, resourceName(resource)), bar(), bar());
}

function fillBar(cell, thousandths) {
  cell.firstChild.firstChild.style.width = `${thousandths / 10}%`;
  say(cell.lastChild, percent(thousandths / 1000, 1));
}

function line(store, zone, view) {
  const parts = [phaseOf(store, view, zone)];
  if (zone.n_machines) parts.push(plural(zone.n_machines, "machine"));
  if (view) {
    if (store.run.state === "running")
      parts.push(`round ${view.round}${view.attempt > 1 ? `, attempt ${view.attempt}` : ""}`);
    parts.push(`episode ${view.episode}, ${percent(view.share)} over`);
    parts.push(`${count(view.n_waiting)} waiting, ${count(view.n_running)} running`);
    parts.push(`${count(view.n_decisions)} decisions`);
    parts.push(`${duration(view.simulated_s)} simulated`);
  } else if (zone.figures?.objective !== undefined)
    parts.push(`objective ${figure(zone.figures.objective)}`);
  return parts.join(" · ");
}
