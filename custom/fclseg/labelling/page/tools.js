// Pointers on the picture: mouse, pen and fingers. One pointer uses the tool, two fingers move and zoom.
import { fill, outlinesOf, pulled, regionOf, withRegion } from "./contours.js";

const GRAB = { mouse: 14, pen: 16, touch: 30 }; // how near an outline must be, in pixels of the window

export class Tools {
  // `edit`: {labels(), size() in mm, spacing(), value(), changed(labels), preview(labels, loops), locked()}
  constructor(view, edit) {
    Object.assign(this, { view, edit, tool: "drag", pointers: new Map(), stroke: null });
    const { canvas } = view;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { view.cursor = null; view.draw(); });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      view.zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * 0.0015));
    }, { passive: false });
  }

  get radius() { return this.edit.size() / this.edit.spacing()[0]; } // in pixels of the image

  down(event) {
    const { view } = this;
    view.canvas.focus();
    view.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (this.pointers.size === 2) { this.cancel(); return; } // a second finger: no stroke but a pinch
    if (this.pointers.size > 1 || !view.slice) return;
    const place = view.toImage(event.offsetX, event.offsetY);
    if (event.button === 2) this.stroke = { kind: "contrast" };
    else if (event.button === 1 || this.panning || this.edit.locked()) this.stroke = { kind: "pan" };
    else this.stroke = this.begin(place, GRAB[event.pointerType] || 14);
    this.apply(place);
  }

  begin(place, near) {
    const labels = this.edit.labels();
    if (this.tool === "drag") return this.grab(place, near, labels) || { kind: "pan" };
    if (this.tool === "draw") return { kind: "draw", path: [place] };
    return { kind: this.tool, labels: labels.slice(), last: place };
  }

  // The outline nearest to the pointer, if it is near enough.
  grab(place, near, labels) {
    const { view } = this, { width, height } = view.slice;
    let best = null, least = near;
    for (const { value } of view.structures) {
      const loops = outlinesOf(regionOf(labels, value, view.walls), width, height);
      for (const loop of loops) {
        for (const point of loop) {
          const [sx, sy] = view.toScreen(point), [px, py] = view.toScreen(place);
          const distance = Math.hypot(sx - px, sy - py);
          if (distance < least) { least = distance; best = { kind: "drag", value, loops, from: place, labels }; }
        }
      }
    }
    return best;
  }

  move(event) {
    const { view } = this;
    if (!view.slice) return;
    const known = this.pointers.get(event.pointerId), place = view.toImage(event.offsetX, event.offsetY);
    if (event.pointerType !== "touch") this.hover(place);
    if (!known) return;
    const now = [event.offsetX, event.offsetY];
    if (this.pointers.size === 2) this.pinch(event.pointerId, known, now);
    else if (this.stroke?.kind === "pan") view.pan(now[0] - known[0], now[1] - known[1]);
    else if (this.stroke?.kind === "contrast") this.edit.contrast(now[0] - known[0], now[1] - known[1]);
    else this.apply(place);
    this.pointers.set(event.pointerId, now);
  }

  pinch(id, known, now) {
    const [other] = [...this.pointers].filter(([one]) => one !== id).map(([, at]) => at);
    const before = Math.hypot(known[0] - other[0], known[1] - other[1]), after = Math.hypot(now[0] - other[0], now[1] - other[1]);
    this.view.pan((now[0] - known[0]) / 2, (now[1] - known[1]) / 2);
    if (before > 10) this.view.zoomAt((now[0] + other[0]) / 2, (now[1] + other[1]) / 2, after / before);
  }

  hover(place) {
    const sized = ["brush", "erase"].includes(this.tool);
    this.view.cursor = sized ? { place, radius: this.radius, colour: "#fff9" } : null;
    this.view.draw();
  }

  apply(place) {
    const { stroke, view, edit } = this;
    if (!stroke || ["pan", "contrast"].includes(stroke.kind)) return;
    const { width, height, aspect } = view.slice;
    if (stroke.kind === "drag") {
      const by = [place[0] - stroke.from[0], place[1] - stroke.from[1]];
      stroke.moved = pulled(stroke.loops, stroke.from, by, Math.max(1.5, 1.5 * this.radius), aspect);
      stroke.result = withRegion(stroke.labels, stroke.value, fill(stroke.moved, width, height), view.walls);
      edit.preview(stroke.result, { [stroke.value]: stroke.moved });
    } else if (stroke.kind === "draw") {
      stroke.path.push(place);
      view.cursor = { path: stroke.path, colour: "#fff" };
      view.draw();
    } else {
      paint(stroke.labels, width, height, stroke.last, place, this.radius, aspect, stroke.kind === "erase" ? 0 : edit.value());
      stroke.last = place;
      stroke.result = stroke.labels;
      edit.preview(stroke.labels, {});
    }
  }

  up(event) {
    this.pointers.delete(event.pointerId);
    const { stroke, view, edit } = this;
    this.stroke = null;
    if (!stroke) return;
    if (event.type === "pointercancel") { edit.preview(null, {}); return; }
    if (stroke.kind === "draw") {
      const { width, height } = view.slice, value = edit.value(), labels = edit.labels();
      const mask = regionOf(labels, value, view.walls);
      fill([stroke.path], width, height).forEach((inside, i) => { if (inside) mask[i] = 1; });
      stroke.result = stroke.path.length > 3 ? withRegion(labels, value, mask, view.walls) : null;
      view.cursor = null;
    }
    if (stroke.result) edit.changed(stroke.result);
    view.draw();
  }

  cancel() {
    this.stroke = null;
    this.edit.preview(null, {});
  }
}

// A round brush along a line; `radius` in widths of a pixel.
function paint(labels, width, height, from, to, radius, aspect, value) {
  const steps = Math.max(1, Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) / Math.max(0.5, radius / 2)));
  for (let step = 0; step <= steps; step++) {
    const cx = from[0] + ((to[0] - from[0]) * step) / steps, cy = from[1] + ((to[1] - from[1]) * step) / steps;
    for (let y = Math.max(0, Math.floor(cy - radius / aspect)); y <= Math.min(height - 1, Math.ceil(cy + radius / aspect)); y++) {
      for (let x = Math.max(0, Math.floor(cx - radius)); x <= Math.min(width - 1, Math.ceil(cx + radius)); x++) {
        if (Math.hypot(x - cx, (y - cy) * aspect) <= radius) labels[y * width + x] = value;
      }
    }
  }
}
