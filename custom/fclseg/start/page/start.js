// Choose what to do and with which folder; then show what the command prints.
const element = (id) => document.getElementById(id);
let what = "segment", folder = null, source = "", job = null;

async function ask(path, method = "GET", content = null) {
  const answer = await fetch(path, { method, body: content && JSON.stringify(content) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

function problem(error) {
  element("problem").hidden = !error;
  element("problem").textContent = error ? error.message : "";
}

const tried = (act) => async (...given) => { problem(null); try { await act(...given); } catch (error) { problem(error); } };

function item(text, kind, chosen) {
  const button = document.createElement("button"), row = document.createElement("li");
  button.textContent = text;
  button.className = kind;
  button.addEventListener("click", chosen);
  row.append(button);
  return row;
}

const visit = tried(async (path) => {
  folder = await ask(`/api/folder?path=${encodeURIComponent(path)}`);
  element("parents").replaceChildren(...folder.parents.map((one) => item(one.name, "parent", () => visit(one.path)).firstChild));
  const below = (name) => `${folder.path.replace(/\/$/, "")}/${name}`;
  const folders = folder.folders.map((name) => item(name, "folder", () => visit(below(name))));
  const exams = folder.exams.map((name) => item(name, "exam", () => choose(below(name))));
  const others = folder.files - folder.exams.length;
  const rows = [...folders, ...exams];
  if (others) rows.push(Object.assign(document.createElement("li"), { className: "hint", textContent: `${others} other file${others > 1 ? "s" : ""}` }));
  element("entries").replaceChildren(...rows);
  choose(folder.path);
});

function choose(path) {
  source = path;
  for (const button of document.querySelectorAll("#entries .exam")) button.classList.toggle("on", path.endsWith(`/${button.textContent}`));
  show();
}

function show() {
  for (const name of ["segment", "label"]) {
    element(name).setAttribute("aria-checked", String(name === what));
    element(name).classList.toggle("on", name === what);
  }
  element("verb").textContent = what === "segment" ? "Segment everything in" : "Label patients of";
  element("source").textContent = source;
  const bare = source.replace(/(\.nii\.gz|\.nii|\.zip|\.dcm)$/i, "");
  element("out").value = `${bare}_${what === "segment" ? "results" : "labels"}`;
}

function working(state) {
  job = state;
  const shown = Boolean(state.what);
  element("working").hidden = !shown;
  element("choosing").hidden = shown;
  if (!shown) return;
  const done = state.what === "label" ? "Labelling has ended" : state.code ? "Not everything could be segmented" : "Ready";
  const doing = state.what === "label" ? (state.link ? "The label page is open for you" : "Preparing the label page …") : "Segmenting …";
  element("doing").textContent = state.running ? doing : done;
  const lines = element("lines"), follow = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
  lines.textContent = state.lines.join("\n");
  if (follow) lines.scrollTop = lines.scrollHeight;
  element("link").hidden = !(state.link && state.running);
  if (state.link) element("link").href = state.link;
  element("results").hidden = !state.index || state.what !== "segment";
  element("stop").hidden = !state.running;
  element("back").hidden = state.running;
}

const refresh = async () => working(await ask("/api/job"));
for (const name of ["segment", "label"]) element(name).addEventListener("click", () => { what = name; show(); });
element("begin").addEventListener("click", tried(async () => working(await ask("/api/begin", "POST", { what, source, out: element("out").value }))));
element("results").addEventListener("click", tried(() => ask("/api/open", "POST")));
element("stop").addEventListener("click", tried(async () => { await ask("/api/stop", "POST"); await refresh(); }));
element("back").addEventListener("click", () => { working({ ...job, what: "" }); visit(folder ? folder.path : ""); });
element("end").addEventListener("click", tried(async () => {
  await ask("/api/end", "POST");
  clearInterval(polling);
  document.body.replaceChildren(Object.assign(document.createElement("p"), { textContent: "FCLSeg has ended. You can close this window." }));
}));
const polling = setInterval(() => { if (job?.what) refresh().catch(() => problem(new Error("The program has ended: start it again."))); else fetch("/api/job").catch(() => {}); }, 2000);
visit("").then(refresh);
