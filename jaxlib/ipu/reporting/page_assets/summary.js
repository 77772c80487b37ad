// The cards at the top, and the sentences.

function splitBar(parts, of) {
  const pieces = parts.filter(([, x]) => x > 0).map(([colour, x, title]) =>
    `<i style="width:${100 * x / of}%;background:${colour}"` +
    ` title="${escapeText(title)}"></i>`);
  return `<div class="bar">${pieces.join("")}</div>`;
}

function card(what, figure, more, bar = "") {
  return `<div class="card"><div class="what">${what}</div>` +
    `<div class="figure">${figure}</div>${bar}` +
    `<div class="more">${more}</div></div>`;
}

function showSummary(r) {
  const c = r.cost, m = r.memory, t = r.target;
  const cycles = c["ipu cycles"], limit = t.bytes_per_tile;
  const parts = PHASES.map((p) => [phaseColour(p), c[`ipu ${p} cycles`],
    `${p}: ${whole(c[`ipu ${p} cycles`])} cycles`]);
  const shown = PHASES.filter((p) => c[`ipu ${p} cycles`] > 0)
    .map((p) => `${p} ${percent(c[`ipu ${p} cycles`] / cycles)}`);
  let busy = 0;
  for (const x of r.tiles.busy) busy += x;
  busy /= r.numTiles;
  const computing = c["ipu compute cycles"] || 1;
  const over = m.peak_tile_bytes_with_gaps > limit;
  const needed = over ? m.peak_tile_bytes_with_gaps : m.peak_tile_bytes;
  const tile = m.peak_tile;
  const sure = [["--good", "from sources"], ["--accent", "derived"],
    ["--bad", "guessed"]].map(([colour, kind]) =>
    [css(colour), c[`ipu cycles ${kind}`], kind]);
  const flops = c["flops"], time = c["ipu seconds"] || 1;
  document.getElementById("cards").innerHTML = [
    card("Modelled cycles", whole(cycles),
      `${seconds(c["ipu seconds"])} at ${short(t.clock_hz, "Hz")}` +
      (r.program.devices > 1 ? `, on each of ${whole(r.program.devices)} IPUs` : "") +
      "<br>" +
      shown.join(" · "), splitBar(parts, cycles || 1)),
    card("Fullest tile",
      `<span class="${r.program.fits ? "" : "bad"}">${size(needed)}</span>`,
      r.program.fits
        ? `tile ${tile}, ${percent(needed / limit)} of ${size(limit)}`
        : `tile ${tile}, <span class="bad">does not fit</span> ${size(limit)}`,
      splitBar([[css(r.program.fits ? "--good" : "--bad"),
        Math.min(needed, limit), size(needed)]], limit)),
    card("Tiles busy", percent(busy / computing),
      "of the compute cycles, on average",
      splitBar([[css("--compute"), busy, "busy"]], computing)),
    card("Supersteps", whole(c["ipu supersteps"]),
      `${whole(r.count)} steps, ` +
      `${whole(cycles / Math.max(c["ipu supersteps"], 1))} cycles each`),
    card("Arithmetic", short(flops, "FLOP"),
      `${short(flops / time, "FLOP/s")}; ` +
      `${size(c["ipu exchange bytes"])} exchanged`),
    card("Certainty", percent(c["ipu cycles from sources"] / (cycles || 1)),
      "of the cycles from published figures; " +
      `${percent(c["ipu cycles derived"] / (cycles || 1))} derived, ` +
      `${percent(c["ipu cycles guessed"] / (cycles || 1))} guessed`,
      splitBar(sure, cycles || 1)),
  ].join("");
}

function showInsights(r) {
  const list = document.getElementById("insight-list");
  document.getElementById("insights").hidden = !r.insights.length;
  for (const insight of r.insights) {
    const item = document.createElement("li");
    item.className = insight.kind === "fit" ? "fit" : "";
    const button = document.createElement("button");
    const figure = document.createElement("b");
    figure.textContent = insight.figure ? percent(insight.figure) : "";
    const text = document.createElement("span");
    text.textContent = insight.text;
    button.append(figure, text);
    button.onclick = () => goTo(insight.target);
    item.append(button);
    list.append(item);
  }
}

function showSection(id) {
  document.getElementById(id).scrollIntoView({block: "start"});
}

// Goes to the place that an insight is about.
function goTo(target) {
  showSection(target.section);
  if (target.step !== undefined) {
    drawChart("timeline-chart");
    selectStep(target.step);
  }
  if (target.tile !== undefined) selectTile(target.tile);
  if (target.line !== undefined) selectLine(target.file, target.line);
}
