// The slice that is being labelled: its outlines, undo and redo, and what can be done to it without a pointer.
import { regionOf, withRegion } from "./contours.js";

export class Editor {
  // saved(state, plane) is called after every change.
  constructor(saved) {
    Object.assign(this, { saved, volume: null, slice: 0, past: new Map() });
  }

  open(volume, slice) {
    Object.assign(this, { volume, slice, preview: null, loops: {} });
  }

  get area() { return this.volume.width * this.volume.height; }

  get record() { return this.volume.records[this.slice]; }

  plane(stack, slice = this.slice) {
    return stack && stack.subarray(slice * this.area, (slice + 1) * this.area);
  }

  get labels() { return this.plane(this.volume.labels); }

  get history() {
    const key = `${this.volume.index}:${this.slice}`;
    if (!this.past.has(key)) this.past.set(key, { undo: [], redo: [] });
    return this.past.get(key);
  }

  // What the view shows; `preview` while a stroke is under way.
  shown() {
    const { volume } = this, [dx, dy] = volume.spacing;
    return {
      width: volume.width, height: volume.height, aspect: dy / dx, stack: volume.labels, loops: this.loops,
      grey: this.plane(volume.grey), labels: this.preview || this.labels, former: this.plane(volume.former),
      excluded: this.record.state === "excluded",
    };
  }

  change(labels) {
    this.history.undo.push(this.labels.slice());
    this.history.redo = [];
    this.set(labels);
  }

  set(labels) {
    Object.assign(this, { preview: null, loops: {} });
    this.labels.set(labels);
    const { state } = this.record;
    this.saved(state === "open" ? "draft" : state, this.labels.slice());
  }

  step(from, to) {
    const last = this.history[from].pop();
    if (!last) return;
    this.history[to].push(this.labels.slice());
    this.set(last);
  }

  undo() { this.step("undo", "redo"); }

  redo() { this.step("redo", "undo"); }

  // Move, grow or shrink the outline of a structure by one pixel.
  nudge(value, walls, dx, dy) {
    const mask = this.shifted(regionOf(this.labels, value, walls), dx, dy);
    this.change(withRegion(this.labels, value, mask, walls));
  }

  resize(value, walls, grow) {
    const mask = regionOf(this.labels, value, walls);
    const beside = [[1, 0], [-1, 0], [0, 1], [0, -1]].map(([dx, dy]) => this.shifted(mask, dx, dy));
    const result = mask.map((inside, i) => (grow ? inside || beside.some((one) => one[i]) : inside && beside.every((one) => one[i])) ? 1 : 0);
    this.change(withRegion(this.labels, value, result, walls));
  }

  shifted(mask, dx, dy) {
    const { width, height } = this.volume;
    return mask.map((_, i) => {
      const x = (i % width) - dx, y = Math.floor(i / width) - dy;
      return x >= 0 && y >= 0 && x < width && y < height ? mask[y * width + x] : 0;
    });
  }
}
