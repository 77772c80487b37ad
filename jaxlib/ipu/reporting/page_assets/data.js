// Decodes a report: the columns as typed arrays, and what follows from them.

const TYPES = {
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  int32: Int32Array, float32: Float32Array, float64: Float64Array,
};

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function parseReport(bytes) {
  let text;
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    const stream = new Blob([bytes]).stream()
      .pipeThrough(new DecompressionStream("gzip"));
    text = await new Response(stream).text();
  } else {
    text = new TextDecoder().decode(bytes);
  }
  const tree = JSON.parse(text);
  if (tree.format !== "jax-ipu-report") throw new Error("not a report");
  if (tree.version[0] > 1) {
    throw new Error(`a report of version ${tree.version.join(".")}`);
  }
  return derive(decodeTree(tree, tree.strings));
}

function decodeTree(tree, strings) {
  if (Array.isArray(tree)) return tree.map((x) => decodeTree(x, strings));
  if (tree === null || typeof tree !== "object") return tree;
  if (tree.dtype && tree.shape && typeof tree.data === "string") {
    const bytes = bytesOf(tree.data);
    const text = tree.dtype === "text";
    const column = new (TYPES[text ? "uint32" : tree.dtype])(bytes.buffer);
    if (text) return Array.from(column, (i) => strings[i]);
    if (tree.shape.length < 2) return column;
    const width = tree.shape[1];
    return Array.from({length: tree.shape[0]}, (_, i) =>
      column.subarray(i * width, (i + 1) * width));
  }
  const out = {};
  for (const [name, value] of Object.entries(tree)) {
    if (name !== "strings") out[name] = decodeTree(value, strings);
  }
  return out;
}

// Adds to a report: cycles of each step over a run, where it begins, its
// label, and the lines of code with their costs.
function derive(r) {
  const s = r.steps, n = s.times.length;
  r.count = n;
  r.cycles = new Float64Array(n);
  r.begin = new Float64Array(n + 1);
  for (let i = 0; i < n; i++) {
    r.cycles[i] = s.times[i] *
      PHASES.reduce((sum, phase) => sum + s[phase][i], 0);
    r.begin[i + 1] = r.begin[i] + r.cycles[i];
  }
  r.total = r.begin[n];
  r.numTiles = r.target.num_tiles;
  r.lines = linesOf(r);
  return r;
}

function linesOf(r) {
  const {file, line} = r.locations, lines = new Map(), s = r.steps;
  const {offsets, location, weight} = r.origins;
  r.lineOf = new Array(r.count);
  for (let i = 0; i < r.count; i++) {
    let sum = 0, best = -1;
    for (let k = offsets[i]; k < offsets[i + 1]; k++) sum += weight[k];
    for (let k = offsets[i]; k < offsets[i + 1]; k++) {
      const at = location[k], key = `${file[at]}:${line[at]}`;
      let found = lines.get(key);
      if (!found) {
        found = {key, file: file[at], line: line[at], cycles: 0, compute: 0,
          exchange: 0, link: 0, sync: 0, host: 0, bytes: 0, steps: []};
        lines.set(key, found);
      }
      const part = weight[k] / sum * s.times[i];
      for (const name of PHASES) {
        found[name] += part * s[name][i];
        found.cycles += part * s[name][i];
      }
      found.bytes += part * s.bytes[i];
      if (found.steps[found.steps.length - 1] !== i) found.steps.push(i);
      if (weight[k] > best) { best = weight[k]; r.lineOf[i] = found; }
    }
  }
  const sorted = [...lines.values()].sort((a, b) => b.cycles - a.cycles);
  let rank = 0;
  for (const each of sorted) each.rank = each.file ? rank++ : Infinity;
  return sorted;
}

function fileName(path) {
  return path.replace(/\\/g, "/").split("/").pop();
}

function placeOf(r, location) {
  const file = r.locations.file[location];
  return file ? `${fileName(file)}:${r.locations.line[location]}` : "";
}

function leafOf(r, location) {
  return r.locations.name[location].split("/").pop();
}

// "Map · add · models.py:122"
function stepLabel(r, i) {
  const at = r.steps.location[i];
  return [r.steps.codelet[i] || r.steps.kind[i], leafOf(r, at), placeOf(r, at)]
    .filter(Boolean).join(" · ");
}

function sourceText(r, file, line) {
  const found = r.sources[file];
  if (!found) return "";
  const at = found.line.indexOf(line);
  return at < 0 ? "" : found.text[at];
}

// What is on a tile at a time: [bytes, entry of tensors], largest first.
function liveOn(r, tile, time) {
  const out = [], {offsets, begin, end} = r.lives;
  for (let e = 0; e + 1 < offsets.length; e++) {
    for (let k = offsets[e]; k < offsets[e + 1]; k++) {
      if (begin[k] <= time && time <= end[k]) {
        const held = r.shares[r.tensors.share[e]][tile];
        if (held) out.push([held, e]);
        break;
      }
    }
  }
  return out.sort((a, b) => b[0] - a[0]);
}

function tensorCategory(r, entry) {
  const code = r.categories.length - r.liveness.tile.length;
  return r.categories[code + r.tensors.category[entry]];
}

// The step whose time is the last one not after `time`.
function stepAt(r, time) {
  let found = 0;
  for (let i = 0; i < r.count && r.steps.time[i] <= time; i++) found = i;
  return found;
}
