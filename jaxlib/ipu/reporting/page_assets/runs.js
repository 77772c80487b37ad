// What finished runs of the program took.

function showRuns(r) {
  document.getElementById("runs").hidden = !r.runs.length;
  const devices = [...new Set(r.runs.map((run) => run.device))];
  const choice = document.getElementById("run-device");
  document.getElementById("run-devices").hidden = devices.length < 2;
  choice.innerHTML = ["all", ...devices].map((d) =>
    `<option>${d}</option>`).join("");
  choice.onchange = () => listRuns(r, r.runs.filter((run) =>
    choice.value === "all" || String(run.device) === choice.value));
  listRuns(r, r.runs);
}

function listRuns(r, runs) {
  const planned = r.cost["ipu cycles"] || 1;
  const known = (value, show) => value === null ? "" : show(value);
  const columns = [
    ["device", (run) => run.device],
    ["cycles", (run) => whole(run.cycles)],
    ["of planned", (run) => percent(run.cycles / planned)],
    ["modelled", (run) => seconds(run.seconds)],
    ["simulated in", (run) => known(run.wall_seconds, seconds)],
    ["exchanged", (run) => known(run.exchange_bytes, size)],
    ["iterations", (run) => run.trips.map((loop) =>
      `${fileName(loop.line)} × ${whole(loop.iterations)}`).join(", ")],
  ].filter(([, show]) => runs.some((run) => show(run) !== ""));
  const row = (kind, cells) => `<tr>${cells.map((cell, i) => `<${kind}` +
    `${columns[i][0] === "iterations" ? "" : ' class="number"'}>` +
    `${escapeText(cell)}</${kind}>`).join("")}</tr>`;
  document.getElementById("run-table").innerHTML =
    row("th", columns.map(([name]) => name)) + runs.map((run) =>
    row("td", columns.map(([, show]) => show(run)))).join("");
}
