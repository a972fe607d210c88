// Outlines of label maps and back. An outline runs midway between the centres of inner and outer pixels, so that a
// label map whose outlines nobody moved is the same label map again.

const SEGMENTS = [
  [], ["TL"], ["RT"], ["RL"], ["BR"], ["TL", "BR"], ["BT"], ["BL"],
  ["LB"], ["TB"], ["RT", "LB"], ["RB"], ["LR"], ["TR"], ["LT"], [],
]; // by the corners that are inside: 1 top left, 2 top right, 4 bottom right, 8 bottom left

// A wall's outline also surrounds its cavity. `walls` is a list of [wall, cavity].
export function regionOf(labels, value, walls) {
  const inner = walls.filter(([wall]) => wall === value).map(([, cavity]) => cavity);
  return Uint8Array.from(labels, (label) => (label === value || inner.includes(label) ? 1 : 0));
}

export function outlinesOf(mask, width, height) {
  const at = (x, y) => (x >= 0 && y >= 0 && x < width && y < height ? mask[y * width + x] : 0);
  const wide = width + 2;
  const key = (x, y, edge) => { // every edge belongs to two cells and has one key
    if (edge === "B") [y, edge] = [y + 1, "T"];
    if (edge === "R") [x, edge] = [x + 1, "L"];
    return 2 * ((y + 1) * wide + x + 1) + (edge === "L" ? 1 : 0);
  };
  const point = (id) => {
    const cell = id >> 1, x = (cell % wide) - 1, y = Math.floor(cell / wide) - 1;
    return id & 1 ? [x, y + 0.5] : [x + 0.5, y];
  };
  const following = new Map();
  for (let y = -1; y < height; y++) {
    for (let x = -1; x < width; x++) {
      const corners = at(x, y) + 2 * at(x + 1, y) + 4 * at(x + 1, y + 1) + 8 * at(x, y + 1);
      for (const [from, to] of SEGMENTS[corners]) following.set(key(x, y, from), key(x, y, to));
    }
  }
  const loops = [];
  while (following.size) {
    const loop = [];
    let id = following.keys().next().value;
    while (following.has(id)) {
      const next = following.get(id);
      following.delete(id);
      loop.push(point(id));
      id = next;
    }
    loops.push(loop);
  }
  return loops;
}

// The pixels whose centres are inside an odd number of loops.
export function fill(loops, width, height) {
  const mask = new Uint8Array(width * height);
  const crossings = Array.from({ length: height }, () => []);
  for (const loop of loops) {
    loop.forEach(([x1, y1], i) => {
      const [x2, y2] = loop[(i + 1) % loop.length];
      const [low, high] = y1 < y2 ? [y1, y2] : [y2, y1];
      for (let y = Math.max(0, Math.ceil(low)); y < Math.min(height, high); y++) {
        crossings[y].push(x1 + ((y - y1) * (x2 - x1)) / (y2 - y1));
      }
    });
  }
  crossings.forEach((places, y) => {
    places.sort((a, b) => a - b);
    for (let i = 0; i + 1 < places.length; i += 2) {
      const first = Math.max(0, Math.ceil(places[i])), last = Math.min(width, places[i + 1]);
      for (let x = first; x < last; x++) mask[y * width + x] = 1;
    }
  });
  return mask;
}

// Pull the loops at one place; points farther away follow less. `reach` and positions are in pixels, `aspect` is the
// height of a pixel relative to its width.
export function pulled(loops, from, by, reach, aspect) {
  return loops.map((loop) => loop.map(([x, y]) => {
    const distance = Math.hypot(x - from[0], (y - from[1]) * aspect);
    const weight = Math.exp(-(distance * distance) / (2 * reach * reach));
    return [x + weight * by[0], y + weight * by[1]];
  }));
}

// The label map after a region has become `mask`. A cavity that shrinks leaves its wall behind, a wall never enters its
// cavity, and other structures take only background.
export function withRegion(labels, value, mask, walls) {
  const cavity = walls.find(([wall]) => wall === value)?.[1];
  const wall = walls.find(([, inside]) => inside === value)?.[0];
  return Uint8Array.from(labels, (label, i) => {
    if (cavity !== undefined) return mask[i] ? (label === cavity ? cavity : value) : label === value || label === cavity ? 0 : label;
    if (wall !== undefined) return mask[i] ? value : label === value ? wall : label;
    return mask[i] ? (label === 0 ? value : label) : label === value ? 0 : label;
  });
}

// Rounder corners, for drawing only.
export function smooth(loop) {
  if (loop.length < 8) return loop;
  const n = loop.length;
  return loop.map((_, i) => {
    const sum = [0, 0];
    [[-2, 1], [-1, 2], [0, 3], [1, 2], [2, 1]].forEach(([step, weight]) => {
      const [x, y] = loop[(i + step + n) % n];
      sum[0] += weight * x / 9;
      sum[1] += weight * y / 9;
    });
    return sum;
  });
}
