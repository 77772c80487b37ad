// Starts the page.

let report = null;
window.reportErrors = [];
window.addEventListener("error", (e) => window.reportErrors.push(e.message));
window.addEventListener("unhandledrejection", (e) =>
  window.reportErrors.push(String(e.reason)));

const SECTIONS = [["summary", "Summary"], ["insights", "Insights"],
  ["runs", "Runs"], ["compare", "Comparison"], ["timeline", "Timeline"], ["memory", "SRAM"],
  ["tiles", "Tiles"], ["liveness", "Liveness"], ["balance", "Balance"],
  ["source", "Code"], ["operations", "Operations"], ["steps", "Steps"],
  ["tensors", "Tensors"], ["choices", "Planner"]];

function setTheme(theme) {
  colours.clear();
  document.documentElement.dataset.theme = theme;
  document.documentElement.style.colorScheme = theme;
}

function toggleTheme() {
  setTheme(isDark() ? "light" : "dark");
  redrawCharts();
  if (chosenStep >= 0) showStep(chosenStep);
}

function showNavigation() {
  const nav = document.getElementById("nav");
  nav.innerHTML = SECTIONS.filter(([id]) =>
    !document.getElementById(id).hidden).map(([id, title]) =>
    `<a href="#${id}">${title}</a>`).join("");
  const links = new Map([...nav.children].map((a) =>
    [a.getAttribute("href").slice(1), a]));
  const visible = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) {
      if (isIntersecting) visible.add(target.id);
      else visible.delete(target.id);
    }
    const first = [...links.keys()].find((id) => visible.has(id));
    for (const [id, link] of links) link.classList.toggle("here", id === first);
  }, {rootMargin: "-64px 0px -70% 0px"});
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}

const KEYS = {
  "/": () => document.getElementById("step-search").focus(),
  "[": () => moveStep(-1),
  "]": () => moveStep(1),
  "0": () => zoomTo(0, report.total),
  "t": toggleTheme,
};

document.addEventListener("keydown", (event) => {
  const typing = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
  if (typing && event.key === "Escape") event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

document.getElementById("theme").onclick = toggleTheme;
document.getElementById("other").onchange = async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    showComparison(await parseReport(bytes), report);
    showNavigation();
    showSection("compare");
  } catch (error) {
    alert(`${file.name} cannot be compared: ${error.message}`);
  }
};

function showAbout(r) {
  const machine = `${r.target.version}, ${whole(r.numTiles)} tiles of ` +
    `${size(r.target.bytes_per_tile)}, ${short(r.target.clock_hz, "Hz")}`;
  const options = Object.entries(r.program.options)
    .map(([name, value]) => `${name}=${value}`).join(", ");
  document.getElementById("about").innerHTML =
    `<p>Cycles, seconds and SRAM are those of a modelled IPU (` +
    `${escapeText(machine)}), as planned when the program was compiled ` +
    `by jaxlib ${escapeText(r.producer.jaxlib)} on ` +
    `${escapeText(r.producer.time)}${options ? ` with ${
      escapeText(options)}` : ""}.</p><p>Keys: <kbd>/</kbd> search, ` +
    "<kbd>[</kbd> <kbd>]</kbd> previous and next step, <kbd>0</kbd> whole " +
    "run, <kbd>t</kbd> light or dark. Charts by Apache ECharts (Apache-2.0), " +
    "tables by Tabulator (MIT).</p>";
}

async function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches
    ? "dark" : "light");
  const embedded = (id) =>
    document.getElementById(id).textContent.trim();
  report = await parseReport(bytesOf(embedded("report-data")));
  document.getElementById("name").textContent = report.program.name;
  document.title = `${report.program.name} – IPU report`;
  showSummary(report);
  showInsights(report);
  showRuns(report);
  showTimeline(report);
  showMemory(report);
  showTiles(report);
  showLiveness(report);
  showSource(report);
  showTables(report);
  showAbout(report);
  const other = embedded("other-data");
  if (other) showComparison(await parseReport(bytesOf(other)), report);
  showNavigation();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    window.reportReady = true;
  }));
}

start();
