// SRAM: of each tile, of one tile, over a run; the tile map; the balance.

let memoryOrder = "size", memoryLimit = false, chosenTile = -1;

function tileTotals(r) {
  const total = new Float64Array(r.numTiles);
  for (const row of r.tiles.memory) {
    for (let t = 0; t < r.numTiles; t++) total[t] += row[t];
  }
  return total;
}

function showMemory(r) {
  r.tileTotal = tileTotals(r);
  const sorted = [...r.tileTotal].sort((a, b) => a - b);
  const median = sorted[sorted.length >> 1];
  const limit = r.target.bytes_per_tile;
  const refused = Math.max(...r.tiles.refused);
  document.getElementById("memory-about").textContent =
    `Each tile at its own fullest moment. The fullest holds ` +
    `${size(sorted[sorted.length - 1])}, the median tile ${size(median)}, of ` +
    `${size(limit)}.` + (refused > 0 ? ` Hatched: up to ${size(refused)} of ` +
    "code that the region for code cannot hold." : "") +
    " Click a tile for what is on it.";
  memoryLimit = sorted[sorted.length - 1] > 0.4 * limit;
  const limitButton = document.getElementById("memory-limit");
  limitButton.setAttribute("aria-pressed", memoryLimit);
  limitButton.onclick = () => {
    memoryLimit = !memoryLimit;
    limitButton.setAttribute("aria-pressed", memoryLimit);
    drawChart("memory-chart", true);
  };
  for (const button of document.querySelectorAll("#memory-order button")) {
    button.onclick = () => {
      memoryOrder = button.dataset.order;
      for (const one of document.querySelectorAll("#memory-order button")) {
        one.setAttribute("aria-pressed", one === button);
      }
      drawChart("memory-chart", true);
    };
  }
  addChart("memory-chart", drawMemory);
}

// Points of a curve that is level over each column. ECharts leaves out points
// that are less than a pixel apart; thin lines close the gaps between areas.
const stairs = (values) =>
  values.flatMap((y, i) => [[i, y], [i + 0.999, y]]);

// Diagonal lines, as a pattern to fill with.
function hatching(colour) {
  const image = document.createElement("canvas"), side = 8;
  image.width = image.height = side;
  const pen = image.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  for (const x of [-side, 0, side]) {
    pen.moveTo(x, side);
    pen.lineTo(x + side, 0);
  }
  pen.stroke();
  return {image, repeat: "repeat"};
}

// Series of stacked areas of categories; `at` gives a category's bytes.
function categoryAreas(names, columns, at) {
  return names.map((name, k) => ({
    name, type: "line", stack: "bytes", symbol: "none",
    color: categoryColour(name), areaStyle: {opacity: 1, color:
      categoryColour(name)}, lineStyle: {width: 0.75},
    emphasis: {disabled: true}, data: stairs(columns.map((c) => at(k, c))),
  })).filter((one) => one.data.some(([, y]) => y > 0));
}

function drawMemory(chart) {
  const r = report, total = r.tileTotal, narrow = innerWidth < 700;
  let order = Array.from(total.keys());
  if (memoryOrder === "size") order.sort((a, b) => total[b] - total[a] || a - b);
  const columns = fullestOf(order.map((t) => total[t]), 500)
    .map((i) => order[i]);
  const limit = r.target.bytes_per_tile;
  const most = Math.max(...total, memoryLimit ? limit : 0);
  const refused = r.tiles.refused;
  // What is refused is the top of the exchange code.
  const series = categoryAreas(r.categories, columns, (k, t) =>
    r.tiles.memory[k][t] - (r.categories[k] === "exchange code"
      ? Math.min(refused[t], r.tiles.memory[k][t]) : 0));
  if (columns.some((t) => refused[t] > 0)) {
    series.push({
      name: "code without a place", type: "line", stack: "bytes",
      symbol: "none", color: categoryColour("exchange code"),
      lineStyle: {width: 0}, emphasis: {disabled: true},
      areaStyle: {opacity: 1, color: hatching(categoryColour("exchange code"))},
      data: stairs(columns.map((t) => Math.min(refused[t],
        r.tiles.memory[r.categories.indexOf("exchange code")][t]))),
    });
  }
  if (memoryLimit) {
    series.push({name: "limit", type: "line", data: [], markLine: {
      symbol: "none", silent: true, data: [{yAxis: limit}],
      lineStyle: {color: css("--bad"), width: 2, type: "solid"},
      label: {formatter: `limit ${size(limit)}`, color: css("--bad"),
        position: "insideEndTop"}}});
  }
  chart.setOption(chartBase({
    legend: {type: narrow ? "scroll" : "plain", top: 6, left: 10, right: 10,
      data: series.map((s) => s.name).filter((n) => n !== "limit")},
    grid: {left: 72, right: 18, top: innerWidth < 1440 && !narrow ? 62 : 40,
      bottom: 34},
    xAxis: {type: "value", min: 0, max: columns.length,
      splitLine: {show: false}, axisLabel: {formatter: (i) =>
        whole(i * r.numTiles / columns.length)}},
    yAxis: {type: "value", ...byteAxis(most)},
    tooltip: {trigger: "axis", order: "seriesDesc", formatter: (found) => {
      const tile = columns[Math.floor(found[0].value[0])];
      return `<b>tile ${tile}: ${size(total[tile])}</b><br>` + found
        .filter((f) => f.value && f.value[1]).map((f) =>
          `${f.marker}${f.seriesName} ${size(f.value[1])}`).join("<br>");
    }},
    series,
  }), {notMerge: true});
  onPlotClick(chart, (i) => selectTile(columns[Math.min(i,
    columns.length - 1)]));
}

// Calls `use` with the nearest index when the plot is clicked.
function onPlotClick(chart, use) {
  const layer = chart.getZr();
  layer.off("click");
  layer.on("click", (event) => {
    const at = [event.offsetX, event.offsetY];
    if (!chart.containPixel("grid", at)) return;
    use(Math.max(Math.floor(chart.convertFromPixel({gridIndex: 0}, at)[0]), 0));
  });
}

function selectTile(tile) {
  if (tile < 0 || tile >= report.numTiles) return;
  chosenTile = tile;
  const r = report, moment = r.tiles.moment[tile];
  const step = stepAt(r, moment);
  const box = document.getElementById("tile-detail");
  const code = r.categories.map((name, k) => [r.tiles.memory[k][tile], name])
    .slice(0, r.categories.length - r.liveness.tile.length)
    .filter(([held]) => held).map(([held, name]) => [held, name, "", name]);
  const live = liveOn(r, tile, moment).map(([held, e]) =>
    [held, r.tensors.name[e], r.tensors.type[e], tensorCategory(r, e),
      placeOf(r, r.tensors.location[e])]);
  box.hidden = false;
  box.innerHTML = `<h3>Tile ${tile}: ${size(r.tileTotal[tile])} at its ` +
    `fullest moment, ${size(r.tiles.gaps[tile])} of gaps</h3>` +
    `<p class="muted">During step ${step}, ` +
    `${escapeText(stepLabel(r, step))}. Over a run it computes ` +
    `${whole(r.tiles.busy[tile])} cycles, receives ` +
    `${size(r.tiles.received[tile])} and sends ${size(r.tiles.sent[tile])}.` +
    `</p>` + heldTable([...code, ...live]);
}

const SHOWN = 14;

function heldTable(rows) {
  rows.sort((a, b) => b[0] - a[0]);
  const rest = rows.slice(SHOWN).reduce((sum, row) => sum + row[0], 0);
  const shown = rows.slice(0, SHOWN).map(([held, name, type, kind, place]) =>
    `<tr><td class="number">${size(held)}</td><td><i class="dot" style=` +
    `"background:${categoryColour(kind)}"></i>${kind}</td>` +
    `<td><code>${escapeText(name === kind ? "" : name)} ${escapeText(type)}` +
    `</code></td><td>${escapeText(place || "")}</td></tr>`);
  if (rest) {
    shown.push(`<tr><td class="number">${size(rest)}</td><td>` +
      `${whole(rows.length - SHOWN)} more</td><td></td><td></td></tr>`);
  }
  return '<table class="plain"><tr><th class="number">Size</th><th>Kind</th>' +
    `<th>Name</th><th>Line</th></tr>${shown.join("")}</table>`;
}

// --- Over a run ------------------------------------------------------------

function showLiveness(r) {
  const tile = r.memory.peak_tile;
  document.getElementById("liveness-about").textContent =
    `Tensors and buffers on tile ${tile}, the fullest one, from the first step ` +
    "to the last. Click a moment for what is live.";
  addChart("liveness-chart", drawLiveness);
}

function drawLiveness(chart) {
  const r = report, {time, tile} = r.liveness, narrow = innerWidth < 700;
  const total = Array.from(time, (_, i) =>
    tile.reduce((sum, row) => sum + row[i], 0));
  const events = fullestOf(total.slice(0, -1), 600);
  const names = r.categories.slice(-tile.length);
  chart.setOption(chartBase({
    legend: {type: narrow ? "scroll" : "plain", top: 6, left: 10, right: 10},
    grid: {left: 72, right: 18, top: 40, bottom: 34},
    xAxis: {type: "value", min: 0, max: Math.max(events.length, 1),
      splitLine: {show: false}, axisLabel: {formatter: (i) => events[i] ===
        undefined ? "" : `step ${whole(stepAt(r, time[events[i]]))}`}},
    yAxis: {type: "value", ...byteAxis(Math.max(...total, 8))},
    tooltip: {trigger: "axis", order: "seriesDesc", formatter: (found) => {
      const e = events[Math.floor(found[0].value[0])], step = stepAt(r, time[e]);
      return `<b>step ${step}: ${size(total[e])}</b><br>` +
        `${escapeText(stepLabel(r, step))}<br>` + found
        .filter((f) => f.value[1]).map((f) =>
          `${f.marker}${f.seriesName} ${size(f.value[1])}`).join("<br>");
    }},
    series: categoryAreas(names, events, (k, e) => tile[k][e]),
  }), {notMerge: true});
  onPlotClick(chart, (i) => showLive(time[events[Math.min(i,
    events.length - 1)]]));
}

function showLive(time) {
  const r = report, tile = r.memory.peak_tile, step = stepAt(r, time);
  const rows = liveOn(r, tile, time).map(([held, e]) =>
    [held, r.tensors.name[e], r.tensors.type[e], tensorCategory(r, e),
      placeOf(r, r.tensors.location[e])]);
  const box = document.getElementById("live-detail");
  box.hidden = false;
  box.innerHTML = `<h3>Live on tile ${tile} in step ${step}, ` +
    `${escapeText(stepLabel(r, step))}</h3>` + heldTable(rows);
}

// --- All tiles at a glance -------------------------------------------------

function mapFigures(r) {
  const figures = [["SRAM at the fullest moment", r.tileTotal, size],
    ["Busy cycles", r.tiles.busy, whole],
    ["Bytes received", r.tiles.received, size],
    ["Bytes sent", r.tiles.sent, size],
    ["Gaps between tensors", r.tiles.gaps, size]];
  r.categories.forEach((name, k) =>
    figures.push([`SRAM: ${name}`, r.tiles.memory[k], size]));
  return figures.filter(([, values]) => values.some((x) => x > 0));
}

function showTiles(r) {
  const select = document.getElementById("map-figure");
  r.figures = mapFigures(r);
  select.innerHTML = r.figures.map(([name], i) =>
    `<option value="${i}">${escapeText(name)}</option>`).join("");
  select.onchange = () => drawChart("map-chart", true);
  addChart("map-chart", drawMap);
  addChart("balance-chart", drawBalance);
}

function drawMap(chart) {
  const r = report;
  const [name, values, show] =
    r.figures[document.getElementById("map-figure").value];
  const width = innerWidth < 700 ? 32 : 64;
  const height = Math.ceil(r.numTiles / width);
  const most = Math.max(...values), least = Math.min(...values);
  document.getElementById("map-about").textContent =
    `tile 0 at the top left, ${width} in a row; ${show(least)} to ` +
    `${show(most)}. Click a tile for what is on it.`;
  chart.setOption(chartBase({
    grid: {left: 48, right: 124, top: 12, bottom: 12},
    xAxis: {type: "category", show: false,
      data: Array.from({length: width}, (_, i) => i)},
    yAxis: {type: "category", inverse: true, axisLine: {show: false},
      axisTick: {show: false}, axisLabel: {formatter: (v) => whole(v * width)},
      data: Array.from({length: height}, (_, i) => i)},
    visualMap: {dimension: 2, min: 0, max: most || 1, calculable: true, right: 6,
      top: "middle", itemHeight: 200, formatter: (v) => show(v),
      textStyle: {color: css("--muted")}, inRange: {color: isDark()
        ? ["#1c2330", "#24508c", "#3b8fc2", "#8fd3c8", "#f5f3b3"]
        : ["#f4f6fb", "#b5cdee", "#5a8fd6", "#2a5599", "#152a52"]}},
    tooltip: {formatter: ({value}) =>
      `tile ${value[3]}: ${show(value[2])}`},
    series: [{type: "heatmap", progressive: 0, itemStyle: {
      borderColor: css("--page"), borderWidth: 1},
      emphasis: {itemStyle: {borderColor: css("--text")}},
      data: Array.from(values, (v, t) => [t % width, Math.floor(t / width), v,
        t])}],
  }), {notMerge: true});
  chart.off("click");
  chart.on("click", ({value}) => {
    selectTile(value[3]);
    document.getElementById("tile-detail").scrollIntoView({block: "center"});
  });
}

function drawBalance(chart) {
  const r = report;
  const rows = [["busy cycles", r.tiles.busy, "--compute", whole],
    ["bytes received", r.tiles.received, "--exchange", size],
    ["bytes sent", r.tiles.sent, "--host", size]];
  chart.setOption(chartBase({
    legend: {top: 6, left: 10},
    grid: {left: 64, right: 84, top: 38, bottom: 30},
    xAxis: {type: "value", max: r.numTiles, splitLine: {show: false}},
    yAxis: [{type: "value", axisLabel: {formatter: (v) => short(v)}},
      {type: "value", splitLine: {show: false},
        ...byteAxis(Math.max(...r.tiles.received, ...r.tiles.sent, 8))}],
    tooltip: {trigger: "axis", formatter: (found) =>
      found.map((f) => `${f.marker}${f.seriesName}: ` +
        rows.find(([n]) => n === f.seriesName)[3](f.value[1])).join("<br>")},
    series: rows.map(([name, values, colour], k) => {
      const sorted = Float64Array.from(values).sort().reverse();
      return {name, type: "line", symbol: "none", color: css(colour),
        yAxisIndex: k ? 1 : 0, areaStyle: k ? undefined : {opacity: 0.2},
        data: fullestOf(sorted, 400).map((i) => [i, sorted[i]])};
    }),
  }), {notMerge: true});
}
