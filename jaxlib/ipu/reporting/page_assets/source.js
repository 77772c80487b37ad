// The user's code, with what each line costs.

const MOST_FILES = 8;

function showSource(r) {
  const files = new Map();
  for (const line of r.lines) {
    if (!line.file) continue;
    const found = files.get(line.file) || {cycles: 0, lines: new Map()};
    found.cycles += line.cycles;
    found.lines.set(line.line, line);
    files.set(line.file, found);
  }
  const box = document.getElementById("source-files");
  const sorted = [...files].sort((a, b) => b[1].cycles - a[1].cycles);
  for (const [file, found] of sorted.slice(0, MOST_FILES)) {
    box.append(fileBox(r, file, found));
  }
  const rest = sorted.slice(MOST_FILES);
  if (rest.length) {
    const cycles = rest.reduce((sum, [, f]) => sum + f.cycles, 0);
    box.insertAdjacentHTML("beforeend", `<p class="muted">` +
      `${rest.length} more files take ${percent(cycles / r.total)} of the ` +
      "cycles.</p>");
  }
  if (!sorted.length) {
    box.innerHTML = '<p class="muted">No step has a line of your code.</p>';
  }
}

function fileBox(r, file, {cycles, lines}) {
  const box = document.createElement("div");
  box.className = "file";
  const title = document.createElement("div");
  const shown = file.replace(/\\/g, "/").split("/").slice(-2).join("/");
  title.title = file;
  title.textContent =
    `${shown} — ${whole(cycles)} cycles, ${percent(cycles / (r.total || 1))}`;
  box.append(title);
  const source = r.sources[file];
  const numbers = source ? Array.from(source.line)
    : [...lines.keys()].sort((a, b) => a - b);
  const most = r.lines[0].cycles || 1;
  let before = numbers[0];
  numbers.forEach((number, i) => {
    if (number > before + 1) {
      const gap = document.createElement("div");
      gap.className = "gap";
      box.append(gap);
    }
    before = number;
    const text = source ? source.text[i] : "";
    box.append(lineRow(r, lines.get(number), number, text, most));
  });
  return box;
}

function lineRow(r, line, number, text, most) {
  const row = document.createElement(line && line.cycles ? "button" : "div");
  row.className = `source-line${line && line.cycles ? "" : " none"}`;
  const cells = line && line.cycles
    ? [whole(line.cycles), percent(line.cycles / (r.total || 1)),
      splitBar(PHASES.map((p) => [phaseColour(p), line[p],
        `${p} ${whole(line[p])}`]), most)]
    : ["", "", ""];
  row.innerHTML = `<span class="number">${cells[0]}</span>` +
    `<span class="number part">${cells[1]}</span><span>${cells[2]}</span>` +
    `<span class="number">${number}</span>` +
    `<span class="code">${escapeText(text)}</span>`;
  if (line && line.cycles) {
    row.dataset.line = line.key;
    row.title = `${whole(line.steps.length)} steps, ` +
      `${size(line.bytes)} exchanged`;
    row.onclick = () => selectLine(line.file, line.line, true);
  }
  return row;
}

// Marks a line; with `steps` shows its steps in the timeline.
function selectLine(file, number, steps = false) {
  const key = `${file}:${number}`;
  for (const row of document.querySelectorAll(".source-line")) {
    row.classList.toggle("chosen", row.dataset.line === key);
    if (row.dataset.line === key && !steps) row.scrollIntoView({block: "center"});
  }
  if (!steps) return;
  const input = document.getElementById("step-search");
  input.value = `${fileName(file)}:${number}`;
  searchSteps(input.value);
  showSection("timeline");
}
