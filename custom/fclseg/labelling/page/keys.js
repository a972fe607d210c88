// The keyboard: everything on the page works without a pointer.
import { make } from "./panels.js";

const TABLE = [
  ["Enter", "the outlines are right: save as labelled, next slice", (a) => a.finish()],
  ["n", "no ventricle in this slice, next slice", (a) => a.none()],
  ["s", "skip to the next proposed slice", (a) => a.skip()],
  ["x", "exclude this slice from training and numbers, or include it", (a) => a.exclude()],
  ["d", "drag an outline", (a) => a.tool("drag")],
  ["f", "draw an outline, which closes itself", (a) => a.tool("draw")],
  ["b", "brush", (a) => a.tool("brush")],
  ["e", "erase", (a) => a.tool("erase")],
  ["[", "smaller brush or reach", (a) => a.size(-1)],
  ["]", "larger brush or reach", (a) => a.size(1)],
  [".", "grow the chosen structure by a pixel", (a) => a.resize(true)],
  [",", "shrink it", (a) => a.resize(false)],
  ["Ctrl+z", "undo", (a) => a.undo()],
  ["Ctrl+y", "redo", (a) => a.redo()],
  ["ArrowUp", "slice towards the base", (a) => a.slice(-1)],
  ["ArrowDown", "slice towards the apex", (a) => a.slice(1)],
  ["ArrowLeft", "frame before", (a) => a.frame(-1)],
  ["ArrowRight", "frame after", (a) => a.frame(1)],
  ["Shift+ArrowUp", "copy the outlines of the slice towards the base", (a) => a.copyAbove()],
  ["Shift+ArrowDown", "copy the outlines of the slice towards the apex", (a) => a.copyBelow()],
  ["Shift+P", "copy the outlines of the other phase", (a) => a.copyPhase()],
  ["Shift+N", "back to the network's outlines", (a) => a.copyNetwork()],
  ["Alt+ArrowUp", "move the chosen structure up", (a) => a.nudge(0, -1)],
  ["Alt+ArrowDown", "move it down", (a) => a.nudge(0, 1)],
  ["Alt+ArrowLeft", "move it left", (a) => a.nudge(-1, 0)],
  ["Alt+ArrowRight", "move it right", (a) => a.nudge(1, 0)],
  ["p", "play the cycle", (a) => a.play()],
  ["h", "hide or show outlines", (a) => a.outlines()],
  ["o", "outlines before the training", (a) => a.before()],
  ["0", "the heart, or the whole image", (a) => a.fit()],
  ["+", "zoom in", (a) => a.zoom(1.2)],
  ["-", "zoom out", (a) => a.zoom(1 / 1.2)],
  ["?", "this list", (a) => a.help()],
];

const ONCE = new Set(["Enter", "n", "s", "x", "p"]); // a key that is held down labels one slice, not all that follow
const SHOWN = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→" };

export function KEYS() {
  const rows = [["1 … 9", "choose a structure"], ["Space", "hold to move the picture"], ["right mouse button", "contrast and brightness"], ...TABLE];
  return make("table", {}, ...rows.map(([key, what]) => make("tr", {},
    make("td", { textContent: key.replace(/Arrow\w+/, (name) => SHOWN[name]) }), make("td", { textContent: what }))));
}

export function listen(actions) {
  const known = new Map(TABLE.map(([key, , act]) => [key, act]));
  window.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (event.target.tagName === "BUTTON" && ["Enter", " "].includes(event.key)) return;
    if (event.key === " ") { actions.pan(true); event.preventDefault(); return; }
    if (/^[1-9]$/.test(event.key) && !event.ctrlKey && !event.altKey) { actions.structure(Number(event.key)); return; }
    const control = event.ctrlKey || event.metaKey ? "Ctrl+" : event.altKey ? "Alt+" : "";
    const shift = event.shiftKey && (event.key.startsWith("Arrow") || ["P", "N"].includes(event.key)) ? "Shift+" : "";
    const key = event.key.length === 1 && !shift ? event.key.toLowerCase() : event.key;
    const act = known.get(control + shift + key);
    if (!act) return;
    event.preventDefault();
    if (!event.repeat || !ONCE.has(key)) act(actions);
  });
  window.addEventListener("keyup", (event) => { if (event.key === " ") actions.pan(false); });
}
