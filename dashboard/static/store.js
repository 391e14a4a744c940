// What the page knows: the newest sections, and short histories made of them.

const HISTORY = 90;
const FRESH_S = 30;

/** Sections by name, views by zone; `dirty` collects what is other than when it was last drawn. */
export class Store {
  constructor() {
    this.dirty = new Set();
    this.clear();
  }

  clear() {
    this.sections = new Map();
    this.views = new Map();
    this.histories = new Map();
    this.lastChange = null;
    this.offset = 0;
  }

  /** Take a message of the stream over. */
  apply(message) {
    if (message.full) {
      const histories = this.histories;
      this.clear();
      this.histories = histories;
      this.dirty.add("all");
    }
    this.offset = Date.now() / 1000 - message.now;
    this.lastChange = message.last_change;
    for (const [name, content] of Object.entries(message.sections)) this.take(name, content);
  }

  take(name, content) {
    this.dirty.add(name);
    if (!name.startsWith("zone:")) {
      this.sections.set(name, content);
      return;
    }
    const zone = name.slice(5);
    this.dirty.add("views");
    if (content === null) {
      this.views.delete(zone);
      this.histories.delete(zone);
    } else {
      this.views.set(zone, content);
      this.remember(zone, content);
    }
  }

  /** Keep a bounded history of a zone's queue and pace. */
  remember(zone, view) {
    let history = this.histories.get(zone);
    if (!history)
      this.histories.set(zone, (history = { waiting: [], rate: null, time: 0, n: 0, key: "" }));
    if (view.time <= history.time) return;
    history.waiting.push(view.n_waiting);
    if (history.waiting.length > HISTORY) history.waiting.shift();
    const key = `${view.phase} ${view.round} ${view.attempt} ${view.episode}`;
    const seconds = view.time - history.time;
    if (key === history.key && view.n_decisions >= history.n && seconds < 60) {
      const rate = (view.n_decisions - history.n) / seconds;
      history.rate = history.rate === null ? rate : 0.7 * history.rate + 0.3 * rate;
    }
    Object.assign(history, { time: view.time, n: view.n_decisions, key });
  }

  get run() {
    return this.sections.get("run") ?? { state: "waiting", problems: [], name: "", folder: "" };
  }

  get zones() {
    return this.sections.get("zones") ?? [];
  }

  section(name, otherwise) {
    return this.sections.get(name) ?? otherwise;
  }

  /** Seconds since the run's files last changed, by the server's clock; null: never. */
  get age() {
    return this.lastChange === null
      ? null
      : Math.max(0, Date.now() / 1000 - this.offset - this.lastChange);
  }

  /** Whether a view is of now, not one that was left behind. */
  isFresh(view) {
    return this.run.state === "running" && Date.now() / 1000 - this.offset - view.came < FRESH_S;
  }

  /** Decisions a second of all zones that are at work; null if none is. */
  get rate() {
    let sum = null;
    for (const [zone, view] of this.views) {
      const rate = this.histories.get(zone)?.rate;
      if (rate !== null && rate !== undefined && this.isFresh(view)) sum = (sum ?? 0) + rate;
    }
    return sum;
  }
}
