// A heat map of machines on a canvas: a cell a machine, near squares, as many columns as fit.

import { frameColors, heat } from "./color.js";

/** Draws values in thousandths; knows which cell is where. */
export class HeatMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.values = [];
    this.marked = -1;
    this.isDue = false;
    this.isSeen = true;
    this.width = 0;
    this.height = 0;
    this.observer = new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.height = entry.contentRect.height;
      this.ask();
    });
    this.observer.observe(canvas);
  }

  /** Show values; nothing is drawn while it is out of sight. */
  show(values, marked = -1) {
    this.values = values;
    this.marked = marked;
    this.ask();
  }

  ask() {
    if (this.isSeen) this.draw();
    else this.isDue = true;
  }

  /** Tell whether it is in sight. */
  seen(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && this.isDue) this.draw();
  }

  /** Columns, rows and the size of a cell in CSS pixels. */
  grid() {
    const n = Math.max(1, this.values.length);
    let columns = Math.min(
      n,
      Math.max(1, Math.ceil(Math.sqrt((n * this.width) / Math.max(1, this.height)))),
    );
    // Rows that are all full look calm: 8 machines stand as 4 x 2, not as 5 + 3.
    const rows = Math.ceil(n / columns);
    columns = Math.ceil(n / rows);
    return { columns, rows, cellWidth: this.width / columns, cellHeight: this.height / rows };
  }

  draw() {
    this.isDue = false;
    const { canvas, width, height } = this;
    if (!width || !height) return;
    const scale = devicePixelRatio || 1;
    const [pixelWidth, pixelHeight] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
      canvas.width = pixelWidth;
      canvas.height = pixelHeight;
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const { columns, cellWidth, cellHeight } = this.grid();
    const small = Math.min(cellWidth, cellHeight);
    const gap = small >= 16 ? 3 : small >= 8 ? 2 : small >= 4 ? 1 : 0;
    const radius = small >= 16 ? 3 : small >= 8 ? 1.5 : 0;
    this.values.forEach((value, i) => {
      const x = (i % columns) * cellWidth;
      const y = Math.floor(i / columns) * cellHeight;
      context.fillStyle = heat(value);
      if (radius) {
        context.beginPath();
        context.roundRect(x + gap / 2, y + gap / 2, cellWidth - gap, cellHeight - gap, radius);
        context.fill();
      } else context.fillRect(x, y, cellWidth - gap, cellHeight - gap);
    });
    if (this.marked >= 0 && this.marked < this.values.length)
      this.mark(context, cellWidth, cellHeight, columns);
  }

  mark(context, cellWidth, cellHeight, columns) {
    const x = (this.marked % columns) * cellWidth;
    const y = Math.floor(this.marked / columns) * cellHeight;
    const [outer, inner] = frameColors();
    for (const [color, width] of [
      [outer, 5],
      [inner, 2.5],
    ]) {
      context.strokeStyle = color;
      context.lineWidth = width;
      context.beginPath();
      context.roundRect(x + 1.5, y + 1.5, cellWidth - 3, cellHeight - 3, 3);
      context.stroke();
    }
  }

  /** Return the cell at a mouse event, -1 beside all. */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { columns, cellWidth, cellHeight } = this.grid();
    const column = Math.floor((event.clientX - box.left) / cellWidth);
    const row = Math.floor((event.clientY - box.top) / cellHeight);
    const cell = row * columns + column;
    return column >= 0 && column < columns && cell >= 0 && cell < this.values.length ? cell : -1;
  }

  /** Return the cell that an arrow key leads to. */
  step(cell, key) {
    const { columns } = this.grid();
    const last = this.values.length - 1;
    const moves = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -columns,
      ArrowDown: columns,
      Home: -cell,
      End: last - cell,
    };
    if (!(key in moves)) return null;
    const next = cell + moves[key];
    return next < 0 || next > last ? cell : next;
  }

  close() {
    this.observer.disconnect();
  }
}
