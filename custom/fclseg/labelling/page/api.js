// Requests to the local server. A volume or a cycle is one line of JSON, then pictures row by row.

export class Changed extends Error {}

async function ask(path, options = {}) {
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  let sentence = `the program answered ${answer.status}`;
  try { sentence = (await answer.json()).error; } catch { /* not JSON */ }
  throw answer.status === 409 ? new Changed(sentence) : new Error(sentence);
}

export const state = async (version) => (await ask(`/api/state?version=${version}`)).json();
export const train = async () => (await ask("/api/train", { method: "POST" })).json();
export const setPhase = async (volume, phase) => (await ask(`/api/phase/${volume}?phase=${phase}`, { method: "POST" })).json();
export const numbers = async (volume) => (await ask(`/api/numbers/${volume}`)).json();

export async function volume(index) {
  const { header, bytes } = await message(`/api/volume/${index}`);
  const size = header.width * header.height * header.slices;
  const part = (n) => bytes.slice(n * size, (n + 1) * size);
  return { ...header, index, grey: part(0), labels: part(1), network: part(2), former: header.before ? part(3) : null };
}

export async function cycle(index, slice) {
  const { header, bytes } = await message(`/api/cycle/${index}/${slice}`);
  return { ...header, grey: bytes };
}

export async function save(index, slice, record, state, seconds, plane) {
  const query = `revision=${record.revision}&state=${state}&seconds=${seconds.toFixed(1)}`;
  const answer = await ask(`/api/slice/${index}/${slice}?${query}`, { method: "POST", body: plane });
  return answer.json();
}

async function message(path) {
  const bytes = new Uint8Array(await (await ask(path)).arrayBuffer());
  const end = bytes.indexOf(10);
  return { header: JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))), bytes: bytes.subarray(end + 1) };
}
