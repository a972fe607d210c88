// The picture: grey values with contrast, zoom and position, and outlines on top. Positions are in pixels of the image;
// the centre of the first pixel is (0, 0).
import { outlinesOf, regionOf, smooth } from "./contours.js";

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.zoom = 3;
    this.centre = [0, 0];
    this.contrast = 1;
    this.brightness = 0;
    this.outlines = true;
    this.picture = document.createElement("canvas");
    this.cursor = null;
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // `slice`: {width, height, aspect, grey, labels, former, loops}; loops replace outlines while one is being pulled.
  show(slice, structures, walls) {
    Object.assign(this, { slice, structures, walls });
    this.draw();
  }

  fit(whole) {
    const { slice, canvas } = this;
    let box = [0, 0, slice.width - 1, slice.height - 1];
    const found = [];
    slice.stack.forEach((label, i) => { if (label) found.push(i % (slice.width * slice.height)); });
    if (!whole && found.length) {
      const xs = found.map((i) => i % slice.width), ys = found.map((i) => Math.floor(i / slice.width));
      const low = (v) => v.reduce((a, b) => Math.min(a, b)), high = (v) => v.reduce((a, b) => Math.max(a, b));
      box = [low(xs), low(ys), high(xs), high(ys)];
      const margin = 0.35 * Math.max(box[2] - box[0], box[3] - box[1]);
      box = [box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin];
    }
    const { clientWidth, clientHeight } = canvas;
    this.centre = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    this.zoom = Math.min(clientWidth / (box[2] - box[0] + 1), clientHeight / ((box[3] - box[1] + 1) * slice.aspect));
    this.draw();
  }

  // Between pixels of the image and pixels of the window.
  toScreen([x, y]) {
    const { canvas, zoom, centre, slice } = this;
    return [(x - centre[0]) * zoom + canvas.clientWidth / 2, (y - centre[1]) * zoom * slice.aspect + canvas.clientHeight / 2];
  }

  toImage(x, y) {
    const { canvas, zoom, centre, slice } = this;
    return [(x - canvas.clientWidth / 2) / zoom + centre[0], (y - canvas.clientHeight / 2) / (zoom * slice.aspect) + centre[1]];
  }

  zoomAt(x, y, factor) {
    const before = this.toImage(x, y);
    this.zoom = Math.min(60, Math.max(0.4, this.zoom * factor));
    const after = this.toImage(x, y);
    this.centre = [this.centre[0] + before[0] - after[0], this.centre[1] + before[1] - after[1]];
    this.draw();
  }

  pan(dx, dy) {
    this.centre = [this.centre[0] - dx / this.zoom, this.centre[1] - dy / (this.zoom * this.slice.aspect)];
    this.draw();
  }

  draw() {
    if (this.waiting || !this.slice) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const { canvas, slice } = this;
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    greyPicture(this.picture, slice, this.contrast, this.brightness);
    const [left, top] = this.toScreen([-0.5, -0.5]), [right, bottom] = this.toScreen([slice.width - 0.5, slice.height - 0.5]);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "high";
    context.drawImage(this.picture, left, top, right - left, bottom - top);
    if (this.outlines && !slice.plain) {
      if (slice.former && this.before) this.strokeAll(context, slice.former, [5, 5], {});
      this.strokeAll(context, slice.labels, [], slice.loops || {});
    }
    if (slice.excluded) this.cross(context, left, top, right, bottom);
    if (this.cursor) this.circle(context);
  }

  strokeAll(context, labels, dash, replaced) {
    context.lineJoin = "round";
    for (const structure of this.structures) {
      const loops = replaced[structure.value]
        || outlinesOf(regionOf(labels, structure.value, this.walls), this.slice.width, this.slice.height).map(smooth);
      for (const [width, colour] of [[4, "#0009"], [dash.length ? 1.4 : 2.2, structure.colour]]) {
        context.beginPath();
        for (const loop of loops) {
          loop.forEach((point, i) => context[i ? "lineTo" : "moveTo"](...this.toScreen(point)));
          context.closePath();
        }
        context.setLineDash(dash);
        context.lineWidth = width;
        context.strokeStyle = colour;
        context.stroke();
      }
    }
    context.setLineDash([]);
  }

  cross(context, left, top, right, bottom) {
    context.strokeStyle = "#e06c75aa";
    context.lineWidth = 3;
    context.beginPath();
    context.moveTo(left, top); context.lineTo(right, bottom);
    context.moveTo(right, top); context.lineTo(left, bottom);
    context.stroke();
  }

  // What the next stroke would reach.
  circle(context) {
    const { place, radius, colour, path } = this.cursor;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    if (path) path.forEach((point, i) => context[i ? "lineTo" : "moveTo"](...this.toScreen(point)));
    else context.arc(...this.toScreen(place), radius * this.zoom, 0, 7);
    context.stroke();
  }
}

export function greyPicture(canvas, slice, contrast, brightness) {
  const { width, height, grey } = slice;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const table = Uint8ClampedArray.from({ length: 256 }, (_, value) => (value - 128) * contrast + 128 + brightness);
  for (let i = 0; i < grey.length; i++) {
    image.data[4 * i] = image.data[4 * i + 1] = image.data[4 * i + 2] = table[grey[i]];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
