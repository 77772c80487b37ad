// What is known of one step, with its tiles.

function showStep(step) {
  const r = report, s = r.steps, at = s.location[step];
  const box = document.getElementById("step-detail");
  const rows = [
    ["Operation", r.locations.operation[at]],
    ["JAX's name", r.locations.name[at]],
    ["Line", originText(r, step)],
    ["Vertices", s.codelet[step] && `${s.codelet[step]} over ${s.shape[step] ||
      "one element"}`],
    ["Cycles", PHASES.filter((p) => s[p][step] > 0)
      .map((p) => `${p} ${whole(s[p][step])}`).join(", ")],
    ["Passes", s.times[step] !== 1 && whole(s.times[step])],
    ["Iterations", s.trips[step] &&
      (s.trips[step] < 0 ? "decided by data" : whole(s.trips[step]))],
    ["Exchanged", s.bytes[step] && size(s.bytes[step])],
    ["Arithmetic", s.flops[step] && short(s.flops[step], "FLOP")],
    ["Tiles", `${whole(s.tiles[step])} of ${whole(r.numTiles)}` +
      (s.slowest[step] >= 0 ? `, slowest: ${s.slowest[step]}` : "")],
    ["Certainty", certaintyText(s, step)],
  ].filter(([, text]) => text);
  box.hidden = false;
  box.innerHTML = `<h3>Step ${step}: ${escapeText(stepLabel(r, step))}</h3>` +
    '<div class="columns"><dl>' + rows.map(([name, text]) =>
    `<dt>${name}</dt><dd>${escapeText(text)}</dd>`).join("") +
    '</dl><div id="step-tiles" style="height:190px"></div></div>';
  drawStepTiles(r, step);
}

function originText(r, step) {
  const {offsets, location, weight} = r.origins, out = [];
  let sum = 0;
  for (let k = offsets[step]; k < offsets[step + 1]; k++) sum += weight[k];
  for (let k = offsets[step]; k < offsets[step + 1]; k++) {
    const place = placeOf(r, location[k]) || "(none)";
    const called = r.locations.package[location[k]];
    const share = offsets[step + 1] - offsets[step] > 1
      ? ` ${percent(weight[k] / sum)}` : "";
    out.push([weight[k], place + share + (called ? ` by ${called}` : "")]);
  }
  return out.sort((a, b) => b[0] - a[0]).slice(0, 12).map((x) => x[1])
    .join("; ");
}

function certaintyText(s, step) {
  const all = PHASES.reduce((sum, phase) => sum + s[phase][step], 0);
  if (!all) return "";
  const out = [];
  const rest = all - s.derived[step] - s.guessed[step];
  if (rest > 0) out.push(`${percent(rest / all)} from sources`);
  if (s.derived[step]) out.push(`${percent(s.derived[step] / all)} derived`);
  if (s.guessed[step]) out.push(`${percent(s.guessed[step] / all)} guessed`);
  return out.join(", ");
}

function drawStepTiles(r, step) {
  const s = r.steps, element = document.getElementById("step-tiles");
  const rows = [["cycles", "busy", "--compute"], ["received", "received",
    "--exchange"], ["sent", "sent", "--host"]]
    .map(([name, key, colour]) => [name, r.rows[key][s[`${key}_row`][step]],
      colour]).filter(([, row]) => row);
  if (!rows.length) {
    element.innerHTML = '<p class="muted">No figures by tile.</p>';
    return;
  }
  const chart = echarts.init(element);
  const bytes = rows.some(([name]) => name !== "cycles");
  chart.setOption(chartBase({
    backgroundColor: "transparent",
    title: {text: "On each tile", left: 0, top: 0, textStyle: {
      color: css("--muted"), fontSize: 13, fontWeight: 600}},
    legend: {top: 0, right: 0},
    grid: {left: 64, right: bytes && rows.length > 1 ? 64 : 12, top: 30,
      bottom: 24},
    xAxis: {type: "value", max: r.numTiles, splitLine: {show: false}},
    yAxis: [{type: "value", axisLabel: {formatter: (v) => short(v)}},
      {type: "value", splitLine: {show: false},
        axisLabel: {formatter: (v) => size(v)}}],
    tooltip: {trigger: "axis", formatter: (found) =>
      `tile ${found[0].value[0]}<br>` + found.map((f) =>
        `${f.marker}${f.seriesName}: ${f.seriesName === "cycles"
          ? whole(f.value[1]) : size(f.value[1])}`).join("<br>")},
    series: rows.map(([name, row, colour]) => ({
      name, type: "line", step: "end", symbol: "none", color: css(colour),
      yAxisIndex: name === "cycles" ? 0 : 1,
      areaStyle: {opacity: 0.15}, lineStyle: {width: 1},
      data: fullestOf(row, 736).map((i) => [i, row[i]]),
    })),
  }));
}
