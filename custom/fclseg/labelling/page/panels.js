// The lists and numbers around the picture.
import { outlinesOf, regionOf } from "./contours.js";
import { greyPicture } from "./view.js";

export const STATES = { open: "", draft: "begun", done: "labelled", excluded: "excluded" };

export const element = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function row(name, what, state, current, chosen) {
  const dot = make("span", { className: `dot ${state}` });
  const button = make("button", { onclick: chosen }, dot, make("span", { className: "name", textContent: name }),
    make("span", { className: "what", textContent: what }));
  return make("li", { className: current ? "current" : "" }, button);
}

export function nextList(world, here, go) {
  const owner = new Map(world.patients.flatMap((one) => one.frames.map((frame) => [frame.volume, one])));
  const done = world.labelled.filter((one) => one.state === "done" && one.who !== "data set").length;
  const shown = world.next.slice(0, Math.max(6, world.goal - done));
  element("next").replaceChildren(...shown.map((one) => {
    const what = [one.phase, one.part, one.slice + 1].filter(Boolean).join(" · ");
    const current = here.volume === one.volume && here.slice === one.slice;
    return row(owner.get(one.volume).name, what, "", current, () => go(one.volume, one.slice));
  }));
  element("bar").value = Math.min(1, done / world.goal);
  const seconds = world.labelled.reduce((sum, one) => sum + one.seconds, 0);
  const time = seconds ? ` · ${seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`}` : "";
  element("count").textContent = `${done} of ${world.goal} slices${time}`;
}

export function patientList(world, here, go) {
  const count = new Map();
  for (const one of world.labelled) count.set(one.volume, (count.get(one.volume) || 0) + (one.state === "done" ? 1 : 0));
  element("patients").replaceChildren(...world.patients.map((one) => {
    const labelled = one.frames.reduce((sum, frame) => sum + (count.get(frame.volume) || 0), 0);
    const first = one.frames.find((frame) => frame.phase === "ED") || one.frames[0];
    const what = labelled ? `${labelled} labelled` : one.ready ? "" : "…";
    const current = one.frames.some((frame) => frame.volume === here.volume);
    return row(one.name, what, labelled ? "done" : "", current, () => go(first.volume));
  }));
}

export function changeList(world, go) {
  element("changed").hidden = !world.changes.length;
  const first = new Map(world.patients.map((one) => [one.name, one.frames.find((frame) => frame.phase) || one.frames[0]]));
  const sorted = [...world.changes].sort((a, b) => a.agreement - b.agreement);
  element("changes").replaceChildren(...sorted.map((one) => {
    const fraction = (side) => side.find((value) => value.name === "LV ejection fraction")?.text;
    const before = fraction(one.before), after = fraction(one.after);
    const text = before && after ? `EF ${before.replace(" %", "")} → ${after}` : "";
    const change = `${text} · ${Math.round(100 * (1 - one.agreement))} % changed`;
    return row(one.patient, change, "", false, () => go(first.get(one.patient).volume));
  }));
}

export function numberTable(numbers) {
  element("numbers").replaceChildren(...numbers.map((value) => make("tr", {},
    make("td", { textContent: value.name.replace("end-diastolic volume", "EDV").replace("end-systolic volume", "ESV").replace("ejection fraction", "EF") }),
    make("td", { className: value.plausible ? "" : "odd", textContent: value.plausible ? value.text : `${value.text} ?`, title: value.plausible ? "" : "not plausible: check the outlines" }))));
}

// Which slices of a patient the numbers leave out.
export function leftOut(world, patient) {
  const names = patient.frames.flatMap((frame) => world.labelled
    .filter((one) => one.volume === frame.volume && one.state === "excluded")
    .map((one) => `${frame.phase || frame.frame || ""} ${one.slice + 1}`.trim()));
  element("left-out").textContent = names.length ? `without excluded slices: ${names.join(", ")}` : "";
}

export function frameTabs(patient, current, go) {
  element("frames").hidden = patient.frames.length < 2;
  element("frames").replaceChildren(...patient.frames.map((frame) => make("button", {
    className: frame.volume === current ? "on" : "", textContent: frame.phase || `${frame.frame}`, onclick: () => go(frame.volume),
  })));
  element("frames").querySelector(".on")?.scrollIntoView({ inline: "center", block: "nearest" });
}

// One small picture per slice, cut to the heart.
export function sliceStrip(volume, current, proposed, structures, walls, go) {
  const { width, height, slices, labels } = volume, area = width * height;
  const box = heart(labels, width, area);
  element("slices").replaceChildren(...Array.from({ length: slices }, (_, number) => {
    const canvas = make("canvas", { width: 124, height: 124 });
    const plane = labels.subarray(number * area, (number + 1) * area);
    thumbnail(canvas, { width, height, grey: volume.grey.subarray(number * area, (number + 1) * area) }, plane, box, structures, walls);
    const { state } = volume.records[number];
    const what = make("span", { className: "what" }, make("span", { className: `dot ${state}` }), `${number + 1}`);
    const button = make("button", { className: number === current ? "on" : "", onclick: () => go(number) }, canvas, what);
    const next = proposed.has(number) && state !== "done";
    button.classList.toggle("proposed", next);
    button.classList.toggle("excluded", state === "excluded");
    button.title = [state === "open" ? "" : STATES[state], next ? "proposed" : ""].filter(Boolean).join(", ");
    return button;
  }));
  element("slices").querySelector(".on")?.scrollIntoView({ inline: "center", block: "nearest" });
}

function heart(labels, width, area) {
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  labels.forEach((label, i) => {
    if (!label) return;
    const x = (i % area) % width, y = Math.floor((i % area) / width);
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
  });
  if (right < 0) return [0, 0, width, area / width];
  const margin = 0.2 * Math.max(right - left, bottom - top);
  const side = Math.max(right - left, bottom - top) + 2 * margin;
  return [(left + right - side) / 2, (top + bottom - side) / 2, side, side];
}

function thumbnail(canvas, slice, labels, [x, y, wide, high], structures, walls) {
  const picture = document.createElement("canvas");
  greyPicture(picture, slice, 1, 0);
  const context = canvas.getContext("2d");
  context.drawImage(picture, x, y, wide, high, 0, 0, canvas.width, canvas.height);
  context.lineWidth = 2;
  for (const structure of structures) {
    context.strokeStyle = structure.colour;
    for (const loop of outlinesOf(regionOf(labels, structure.value, walls), slice.width, slice.height)) {
      context.beginPath();
      for (const [px, py] of loop) context.lineTo(((px + 0.5 - x) * canvas.width) / wide, ((py + 0.5 - y) * canvas.height) / high);
      context.closePath();
      context.stroke();
    }
  }
}
