// What differs between this report and another one.

function change(before, after, show) {
  const by = after - before;
  const part = before ? ` (${by > 0 ? "+" : ""}${percent(by / before)})` : "";
  const colour = by > 0 ? "bad" : by < 0 ? "good" : "";
  return `${show(before)} → ${show(after)}` +
    `<span class="${colour}">${by ? part : " (same)"}</span>`;
}

function showComparison(before, after) {
  document.getElementById("compare").hidden = false;
  document.getElementById("compare-about").textContent =
    `${before.program.name} of ${before.producer.time} → ` +
    `${after.program.name} of ${after.producer.time}, this report.`;
  const figures = [["Cycles", "ipu cycles", whole],
    ["Compute cycles", "ipu compute cycles", whole],
    ["Exchange cycles", "ipu exchange cycles", whole],
    ["Link cycles", "ipu link cycles", whole],
    ["Supersteps", "ipu supersteps", whole],
    ["Fullest tile", "ipu peak tile bytes", size],
    ["Exchanged", "ipu exchange bytes", size]];
  document.getElementById("compare-cards").innerHTML = figures.map(
    ([what, key, show]) => card(what, show(after.cost[key]),
      change(before.cost[key], after.cost[key], show))).join("");
  compareTable("compare-lines", compareLines(before, after), "Line", whole);
  const held = (r) => new Map(r.categories.map((name, k) =>
    [name, r.tiles.memory[k][r.memory.peak_tile]]));
  compareTable("compare-memory", difference(held(before), held(after)),
    "Kind", size);
}

// Lines are the same if their file's name and their text are: numbers shift.
function compareLines(before, after) {
  const costs = (r) => {
    const out = new Map();
    for (const line of r.lines) {
      const text = sourceText(r, line.file, line.line).trim();
      const key = line.file
        ? `${fileName(line.file)}: ${text || line.line}` : "no line";
      out.set(key, (out.get(key) || 0) + line.cycles);
    }
    return out;
  };
  return difference(costs(before), costs(after));
}

function difference(before, after) {
  const keys = new Set([...before.keys(), ...after.keys()]);
  return [...keys].map((key) =>
    [key, before.get(key) || 0, after.get(key) || 0])
    .filter(([, a, b]) => a !== b)
    .sort((x, y) => Math.abs(y[2] - y[1]) - Math.abs(x[2] - x[1]));
}

function compareTable(id, rows, title, show) {
  const shown = rows.slice(0, 12).map(([key, a, b]) =>
    `<tr><td><code>${escapeText(key.slice(0, 80))}</code></td>` +
    `<td class="number">${show(a)}</td><td class="number">${show(b)}</td>` +
    `<td class="number ${b > a ? "bad" : "good"}">${b > a ? "+" : "−"}` +
    `${show(Math.abs(b - a))}</td></tr>`);
  document.getElementById(id).innerHTML = rows.length
    ? `<table class="plain"><tr><th>${title}</th><th class="number">before` +
      '</th><th class="number">after</th><th class="number">change</th></tr>' +
      `${shown.join("")}</table>`
    : '<p class="muted">No difference.</p>';
}
