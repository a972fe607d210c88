// Puts the page together: navigation, buttons and keys.
import * as api from "./api.js";
import { Editor } from "./editor.js";
import { KEYS, listen } from "./keys.js";
import { changeList, element, frameTabs, leftOut, make, nextList, numberTable, patientList, sliceStrip, STATES } from "./panels.js";
import { Saver, Stopwatch } from "./saving.js";
import { Tools } from "./tools.js";
import { View } from "./view.js";

const ENDED = "the program has ended";
let world = null, value = 1, playing = null, looked = 0;
const view = new View(element("view"));
const watch = new Stopwatch();
const saver = new Saver(tell, refused);
const editor = new Editor(save);
const tools = new Tools(view, {
  labels: () => editor.labels.slice(),
  size: () => Number(element("size").value),
  spacing: () => editor.volume.spacing,
  value: () => value,
  locked: () => Boolean(playing),
  changed: (labels) => editor.change(labels),
  preview: (labels, loops) => { Object.assign(editor, { preview: labels, loops }); show(); },
  contrast: (dx, dy) => {
    element("contrast").value = Number(element("contrast").value) + dx * 0.01;
    element("brightness").value = Number(element("brightness").value) - dy;
    contrast();
  },
});

function tell(text, kind) {
  element("saved").textContent = text;
  element("saved").className = kind;
}

function banner(text, ...choices) {
  element("banner").hidden = !text;
  const buttons = choices.map(([name, act]) => make("button", { textContent: name, onclick: () => { banner(""); act(); } }));
  element("banner").replaceChildren(text, document.createElement("br"), ...buttons);
}

function refused(error, attempt) {
  tell("not saved", "bad");
  const again = async () => {
    const fresh = await api.volume(attempt.volume.index);
    Object.assign(attempt.volume.records[attempt.slice], { revision: fresh.records[attempt.slice].revision });
    saver.save(attempt.volume, attempt.slice, attempt.state, attempt.seconds, attempt.plane);
  };
  if (error instanceof api.Changed) banner(error.message, ["Show that one", () => go(attempt.volume.index, attempt.slice, true)], ["Keep mine", again]);
  else banner(error.message, ["Close", () => {}]);
  return null;
}

function save(state, plane) {
  const { volume, slice } = editor;
  show();
  return saver.save(volume, slice, state, watch.take(), plane).then((answer) => {
    if (answer && editor.volume === volume) { numberTable(answer.numbers); show(); }
    return answer;
  });
}

function owner(volume) { return world.patients.find((one) => one.frames.some((frame) => frame.volume === volume)); }

export async function go(index, slice = null, fresh = false) {
  stop();
  looked += 1;
  const mine = looked, same = editor.volume?.index === index && !fresh && editor.volume.outlined;
  try {
    const volume = same ? editor.volume : await saver.volume(index);
    if (mine !== looked) return; // somebody has gone on meanwhile
    tools.cancel(); // a stroke belongs to the slice on which it was begun
    const patient = owner(index), stays = editor.volume && owner(editor.volume.index) === patient;
    const number = slice ?? (stays ? editor.slice : Math.floor(volume.slices / 2));
    editor.open(volume, Math.min(number, volume.slices - 1));
    watch.reset();
    if (!same) numberTable(volume.numbers);
    show();
    lists();
    if (!stays) view.fit(false);
    element("waiting").hidden = volume.outlined;
    if (!volume.outlined) setTimeout(() => lookAgain(mine), 1500);
  } catch (error) { banner(error.message, ["Close", () => {}]); }
  document.body.classList.remove("menu");
  history.replaceState(null, "", `#${index}/${editor.slice}`);
}

// For outlines of the network that were not there yet.
function lookAgain(mine) {
  if (mine !== looked) return;
  if (tools.stroke) setTimeout(() => lookAgain(mine), 300);
  else go(editor.volume.index, editor.slice, true).then(() => view.fit(false));
}

function show() {
  if (!editor.volume) return;
  view.show(editor.shown(), world.structures, world.walls);
  const patient = owner(editor.volume.index), frame = patient.frames.find((one) => one.volume === editor.volume.index);
  const { record, slice, volume } = editor;
  element("patient").textContent = patient.name;
  element("place").textContent = `${frame.phase || (frame.frame ? `frame ${frame.frame}` : "")} slice ${slice + 1} of ${volume.slices}${STATES[record.state] ? ` · ${STATES[record.state]}` : ""}`;
  element("done").firstChild.textContent = record.state === "done" ? "Labelled · next " : "Done ";
  element("exclude").textContent = record.state === "excluded" ? "Include" : "Exclude";
  element("excluded").hidden = record.state !== "excluded";
  leftOut(world, patient);
  element("undo").disabled = !editor.history.undo.length;
  element("redo").disabled = !editor.history.redo.length;
  element("before-row").hidden = !volume.former;
  element("phase").disabled = frame.frame === null;
  if (!editor.preview) {
    const proposed = new Set(world.next.filter((one) => one.volume === volume.index).map((one) => one.slice));
    sliceStrip(volume, slice, proposed, world.structures, world.walls, (number) => go(volume.index, number));
    frameTabs(patient, volume.index, (index) => go(index));
  }
}

function lists() {
  const here = { volume: editor.volume?.index, slice: editor.slice };
  nextList(world, here, go);
  patientList(world, here, go);
  changeList(world, go);
}

const ready = () => Boolean(editor.volume && owner(editor.volume.index).ready);

// The other phase of the patient has been outlined meanwhile.
async function numbers() {
  const at = editor.volume, answer = await api.numbers(at.index);
  if (at === editor.volume) numberTable(answer.numbers);
}

async function refresh() {
  const answer = await api.state(world ? world.version : -1);
  if (world && answer.version < world.version) return; // an earlier answer that came late
  const trained = world?.training.running && !answer.training.running, waited = world && !ready();
  world = answer.patients ? answer : { ...world, ...answer };
  training(world.training, world.outlined);
  if (waited && ready()) numbers();
  if (answer.patients && element("structures").childElementCount !== world.structures.length) structures();
  if (answer.patients) lists();
  if (trained && !world.training.error) {
    banner("The network has been trained on your labels. The list on the left shows what changed in patients without labels.", ["Close", () => {}]);
    if (editor.volume) go(editor.volume.index, editor.slice, true);
  }
  if (world.training.error && trained) banner(`The training ended: ${world.training.error}`, ["Close", () => {}]);
}

function training(status, [outlined, all]) {
  const share = status.of ? Math.round((100 * status.step) / status.of) : 0;
  element("train").textContent = status.running ? `Training ${share} %` : outlined < all ? `Outlining ${outlined} of ${all}` : "Train now";
  const labelled = world.labelled.some((one) => one.state === "done");
  element("train").disabled = status.running || !labelled;
  element("train").title = labelled ? "Train the network on all labelled slices" : "Label a slice first";
}

function structures() {
  element("structures").replaceChildren(...world.structures.map((one) => {
    const button = make("button", { textContent: one.name, title: `${one.title} (${one.value})`, onclick: () => choose(one.value) });
    button.style.setProperty("--colour", one.colour);
    button.dataset.value = one.value;
    return button;
  }));
  choose(value);
}

function choose(chosen) {
  if (!world.structures.some((one) => one.value === chosen)) return;
  value = chosen;
  for (const button of element("structures").children) button.classList.toggle("on", Number(button.dataset.value) === value);
}

function use(tool) {
  tools.tool = tool;
  for (const button of document.querySelectorAll("#modes button")) button.classList.toggle("on", button.dataset.tool === tool);
}

function contrast() {
  view.contrast = Number(element("contrast").value);
  view.brightness = Number(element("brightness").value);
  view.draw();
}

async function finish(plane = editor.labels.slice()) {
  const { volume, slice } = editor;
  if (!volume.outlined && plane.every((label) => !label) && editor.record.state === "open") return;
  if (!(await save("done", plane))) return;
  await refresh();
  const following = world.next.find((one) => one.volume !== volume.index || one.slice !== slice);
  if (following) go(following.volume, following.slice);
  else { lists(); show(); }
}

const skip = () => {
  const at = world.next.findIndex((one) => one.volume === editor.volume.index && one.slice === editor.slice);
  const following = world.next[(at + 1) % world.next.length];
  if (following) go(following.volume, following.slice);
};

async function copyPhase() {
  const at = looked, frames = owner(editor.volume.index).frames.filter((one) => one.volume !== editor.volume.index);
  const other = frames.find((one) => one.phase) || frames[0];
  if (!other) return;
  const volume = await saver.volume(other.volume);
  if (at === looked && volume.width * volume.height === editor.area && editor.slice < volume.slices) editor.change(editor.plane(volume.labels));
}

const copySlice = (step) => {
  const from = editor.slice + step;
  if (from >= 0 && from < editor.volume.slices) editor.change(editor.plane(editor.volume.labels, from).slice());
};

function none() {
  const empty = new Uint8Array(editor.area);
  editor.history.undo.push(editor.labels.slice());
  editor.labels.set(empty);
  finish(empty);
}

async function exclude() {
  const state = editor.record.state === "excluded" ? "draft" : "excluded";
  await save(state, editor.labels.slice());
  await refresh();
  show();
}

function phaseDialog() {
  const set = async (phase) => {
    element("dialog").close();
    try {
      numberTable((await api.setPhase(editor.volume.index, phase)).numbers);
      await refresh();
      show();
    } catch (error) { banner(error.message, ["Close", () => {}]); }
  };
  dialog(make("p", { textContent: "This frame is" }), ...["ED", "ES"].map((phase) => make("button", { textContent: phase === "ED" ? "end-diastole (ED)" : "end-systole (ES)", onclick: () => set(phase) })));
}

function dialog(...content) {
  element("dialog").replaceChildren(...content, make("p", {}, make("button", { textContent: "Close", onclick: () => element("dialog").close() })));
  element("dialog").showModal();
  element("dialog").scrollTop = 0; // the button at the end has the focus
}

async function play() {
  if (playing) { stop(); return; }
  const at = looked, cycle = await api.cycle(editor.volume.index, editor.slice);
  if (at !== looked || playing) return;
  const area = cycle.width * cycle.height;
  let frame = 0;
  playing = setInterval(() => {
    frame = (frame + 1) % cycle.frames;
    view.show({ ...editor.shown(), width: cycle.width, height: cycle.height, grey: cycle.grey.subarray(frame * area, (frame + 1) * area), plain: true }, world.structures, world.walls);
  }, cycle.frames > 4 ? Math.max(33, 900 / cycle.frames) : 400);
  element("play").textContent = "■ Stop";
}

function stop() {
  clearInterval(playing);
  playing = null;
  element("play").textContent = "▶ Play";
  show();
}

async function beginTraining() {
  try { world.training = await api.train(); training(world.training, world.outlined); } catch (error) { banner(error.message, ["Close", () => {}]); }
}

const frameStep = (step) => {
  const { frames } = owner(editor.volume.index), at = frames.findIndex((one) => one.volume === editor.volume.index);
  go(frames[(at + step + frames.length) % frames.length].volume);
};
let whole = false;
const actions = {
  tool: use, structure: choose, finish: () => finish(), none, exclude, skip, undo: () => editor.undo(), redo: () => editor.redo(),
  copyAbove: () => copySlice(-1), copyBelow: () => copySlice(1), copyPhase, copyNetwork: () => editor.change(editor.plane(editor.volume.network)),
  play, fit: () => { whole = !whole; view.fit(whole); }, help: () => dialog(make("h3", { textContent: "Keys" }), KEYS()),
  slice: (step) => go(editor.volume.index, Math.min(editor.volume.slices - 1, Math.max(0, editor.slice + step))), frame: frameStep,
  size: (step) => { element("size").value = Number(element("size").value) + step; },
  zoom: (factor) => view.zoomAt(view.canvas.clientWidth / 2, view.canvas.clientHeight / 2, factor),
  outlines: () => { element("show").checked = view.outlines = !view.outlines; view.draw(); },
  before: () => { element("before").checked = view.before = !view.before; view.draw(); },
  nudge: (dx, dy) => editor.nudge(value, world.walls, dx, dy), resize: (grow) => editor.resize(value, world.walls, grow),
  pan: (held) => { tools.panning = held; },
};
listen(actions);
const buttons = { done: actions.finish, none, exclude, undo: actions.undo, redo: actions.redo, "from-above": actions.copyAbove, "from-below": actions.copyBelow, "from-phase": copyPhase, "from-network": actions.copyNetwork, play, fit: actions.fit, phase: phaseDialog, train: beginTraining, help: actions.help, menu: () => document.body.classList.toggle("menu") };
for (const [id, act] of Object.entries(buttons)) element(id).addEventListener("click", () => act());
for (const button of document.querySelectorAll("#modes button")) button.addEventListener("click", () => use(button.dataset.tool));
for (const id of ["contrast", "brightness"]) element(id).addEventListener("input", contrast);
element("show").addEventListener("change", actions.outlines);
element("before").addEventListener("change", actions.before);
use("drag");

async function begin() {
  await refresh();
  const [index, slice] = location.hash.slice(1).split("/").map(Number);
  if (location.hash && owner(index)) await go(index, slice);
  else if (world.next.length) await go(world.next[0].volume, world.next[0].slice);
  else await go((world.patients[0].frames.find((one) => one.phase) || world.patients[0].frames[0]).volume);
  const poll = () => refresh().then(() => { if (element("saved").textContent === ENDED) tell("", ""); }, () => tell(ENDED, "bad")).finally(() => setTimeout(poll, world.training.running ? 700 : 2000));
  setTimeout(poll, 1500);
}
begin();
window.fclseg = { editor, view, go, world: () => world }; // for tests and the browser's console
