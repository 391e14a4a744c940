// Elements are made and filled here only: names come from files and are text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return the element of an id that stands in index.html. */
export const byId = (id) => document.getElementById(id);

/** Return a new HTML element: attributes (those that are null are left out), then children. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Return a new SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  set(node, attributes);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Set attributes that differ; null removes one. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Set the text of a node if it differs: an equal one would make the browser work. */
export function say(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Show or hide a node. */
export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/** Keep `parent`'s children one a key, in order: `make(key)` for new ones, `fill(node, key)` for all. */
export function keyed(parent, keys, make, fill) {
  const known = (parent._keyed ??= new Map());
  const wanted = new Set(keys);
  for (const [key, node] of known) {
    if (!wanted.has(key)) {
      node.remove();
      known.delete(key);
    }
  }
  let before = parent.firstChild;
  for (const key of keys) {
    let node = known.get(key);
    if (!node) {
      node = make(key);
      known.set(key, node);
    }
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
    fill(node, key);
  }
}

/** Fill a table's body with rows of texts, reusing its cells. */
export function fillRows(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, r) => {
    const line = body.rows[r] ?? body.insertRow();
    while (line.cells.length > row.length) line.deleteCell(-1);
    row.forEach((text, c) => say(line.cells[c] ?? line.insertCell(), text));
  });
}

/** A table behind a <details>, written only while it is open, at most once a second. */
export class TableAlternative {
  /** @param details The element. @param head Names of columns. @param rows Returns rows of texts. */
  constructor(details, head, rows) {
    this.details = details;
    this.rows = rows;
    this.at = 0;
    this.body = el("tbody");
    this.head = el("tr");
    this.columns(head);
    const table = el("table", {}, el("thead", {}, this.head), this.body);
    details.append(
      el(
        "div",
        {
          class: "scroll",
          tabindex: "0",
          role: "region",
          "aria-label": details.querySelector("summary").textContent,
        },
        table,
      ),
    );
    details.addEventListener("toggle", () => this.update(true));
  }

  /** Name the columns. */
  columns(head) {
    this.head.replaceChildren(...head.map((name) => el("th", { scope: "col" }, name)));
  }

  /** Write the rows if they are looked at. */
  update(isUrgent = false) {
    const now = performance.now();
    if (!this.details.open || (!isUrgent && now - this.at < 1000)) return;
    this.at = now;
    fillRows(this.body, this.rows());
  }
}

let typeSize = 0;
addEventListener("resize", () => {
  typeSize = 0;
});

/** Return how much larger than usual the page's type is: charts grow with it. */
export function unit() {
  // Asking for it makes the browser work out all styles: once a size of the window is enough.
  typeSize ||= parseFloat(getComputedStyle(document.documentElement).fontSize);
  return typeSize / 15;
}

/** Call `draw(width)` whenever the width of a node changes. */
export function onWidth(node, draw) {
  let last = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width > 0 && width !== last) {
      last = width;
      requestAnimationFrame(() => draw(width));
    }
  }).observe(node);
}
