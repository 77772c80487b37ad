// The timeline: above, the line of code of each step; below, its phases.

const MOST_STEPS = 1000;  // drawn one by one; more are drawn as bins
const BINS = 800;
let chosenStep = -1, stepMatches = null;

function showTimeline(r) {
  document.getElementById("phase-legend").innerHTML =
    [...PHASES.filter((p) => r.cost[`ipu ${p} cycles`] > 0), "idle"]
      .map((p) => `<span><i style="background:var(--${p})"></i>` +
        `${p === "idle" ? "idle tiles" : p}</span>`).join("");
  addChart("timeline-chart", drawTimeline);
  document.getElementById("zoom-out").onclick = () => zoomTo(0, report.total);
  document.getElementById("step-back").onclick = () => moveStep(-1);
  document.getElementById("step-next").onclick = () => moveStep(1);
  document.getElementById("step-search").oninput = (event) =>
    searchSteps(event.target.value);
}

// The steps with cycles that begin before `to` and end after `from`.
function visibleSteps(r, from, to) {
  let low = 0, high = r.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (r.begin[middle + 1] <= from) low = middle + 1; else high = middle;
  }
  const out = [];
  for (let i = low; i < r.count && r.begin[i] < to; i++) {
    if (r.cycles[i] > 0) out.push(i);
  }
  return out;
}

// [begin, end, bottom, top, colour] of a step's phases, and its line's.
function stepMarks(r, i, marks) {
  const s = r.steps, faded = stepMatches && !stepMatches.has(i);
  const opacity = faded ? 0.15 : 1;
  let at = r.begin[i];
  for (const phase of ["host", "sync", "link", "exchange"]) {
    const width = s[phase][i] * s.times[i];
    if (width > 0) {
      marks.push([at, at + width, 0, 1, phaseColour(phase), opacity, i]);
    }
    at += width;
  }
  const width = s.compute[i] * s.times[i];
  if (width > 0) {
    const share = Math.max(s.tiles[i] / r.numTiles, 0.01);
    marks.push([at, at + width, 0, share, css("--compute"), opacity, i]);
    if (share < 1) {
      marks.push([at, at + width, share, 1, css("--idle"), opacity, i]);
    }
  }
}

// Stacked shares of the cycles of each bin.
function binMarks(r, steps, from, to, marks) {
  const width = (to - from) / BINS, s = r.steps;
  const keys = ["compute", "idle", "exchange", "link", "sync", "host"];
  const sums = keys.map(() => new Float64Array(BINS));
  const hits = new Uint8Array(BINS), best = new Float64Array(BINS);
  const lines = new Array(BINS), owner = new Int32Array(BINS).fill(-1);
  for (const i of steps) {
    const begin = Math.max(r.begin[i], from), end = Math.min(r.begin[i + 1], to);
    const share = s.tiles[i] / r.numTiles, scale = s.times[i] / r.cycles[i];
    const parts = [s.compute[i] * share, s.compute[i] * (1 - share),
      s.exchange[i], s.link[i], s.sync[i], s.host[i]].map((x) => x * scale);
    const first = Math.floor((begin - from) / width);
    for (let b = first; b < BINS && from + b * width < end; b++) {
      const length = Math.min(end, from + (b + 1) * width) -
        Math.max(begin, from + b * width);
      if (length <= 0) continue;
      parts.forEach((part, k) => { sums[k][b] += part * length; });
      if (!stepMatches || stepMatches.has(i)) hits[b] = 1;
      if (length > best[b]) {
        best[b] = length; lines[b] = r.lineOf[i]; owner[b] = i;
      }
    }
  }
  const stripes = [];
  for (let b = 0; b < BINS; b++) {
    const begin = from + b * width;
    const all = keys.reduce((sum, _, k) => sum + sums[k][b], 0);
    let bottom = 0;
    keys.forEach((key, k) => {
      if (!sums[k][b]) return;
      const top = bottom + sums[k][b] / all;
      marks.push([begin, begin + width, bottom, top, css(`--${key}`),
        hits[b] ? 1 : 0.15, owner[b]]);
      bottom = top;
    });
    stripes.push([begin, begin + width, lines[b], owner[b]]);
  }
  return stripes;
}

// Neighbouring stripes of one line become one.
function joinStripes(stripes) {
  const out = [];
  for (const [begin, end, line, step] of stripes) {
    const last = out[out.length - 1];
    if (last && last[2] === line) last[1] = end;
    else out.push([begin, end, line, step]);
  }
  return out;
}

function timelineMarks(r, from, to) {
  const steps = visibleSteps(r, from, to), marks = [];
  let stripes;
  if (steps.length > MOST_STEPS) {
    stripes = binMarks(r, steps, from, to, marks);
  } else {
    for (const i of steps) stepMarks(r, i, marks);
    stripes = steps.map((i) => [r.begin[i], r.begin[i + 1], r.lineOf[i], i]);
  }
  return {marks, stripes: joinStripes(stripes)};
}

function rectangle(api, begin, end, bottom, top, style) {
  const [x0, y0] = api.coord([begin, top]), [x1, y1] = api.coord([end, bottom]);
  const width = Math.max(x1 - x0, 0.4);
  return {type: "rect", shape: {x: x0, y: y0, width, height: y1 - y0}, style};
}

let timelineView = null;  // [from, to]

function drawTimeline(chart) {
  const r = report;
  timelineView = timelineView || [0, r.total];
  const x = {type: "value", min: 0, max: r.total};
  chart.setOption(chartBase({
    grid: [{left: 50, right: 18, top: 12, height: 22, outerBoundsMode: "none"},
      {left: 50, right: 18, top: 42, bottom: 62, outerBoundsMode: "none"}],
    xAxis: [
      {...x, gridIndex: 0, show: false},
      {...x, gridIndex: 1, axisLabel: {formatter: (v) =>
        timelineView[1] - timelineView[0] < r.total / 20 ? whole(v) : short(v)},
        splitLine: {show: false}},
    ],
    yAxis: [
      {gridIndex: 0, min: 0, max: 1, show: false},
      {gridIndex: 1, min: 0, max: 1, interval: 0.5, name: "",
        axisLabel: {formatter: (v) => `${100 * v} %`}},
    ],
    dataZoom: [
      {type: "inside", xAxisIndex: [0, 1], filterMode: "none",
        zoomOnMouseWheel: "ctrl", moveOnMouseMove: true},
      slider([0, 1], {filterMode: "none"}),
    ],
    tooltip: {formatter: timelineTooltip},
    series: timelineSeries(r, ...timelineView),
  }), {notMerge: true});
  chart.off("datazoom");
  chart.on("datazoom", () => {
    const {start, end} = chart.getOption().dataZoom[0];
    timelineView = [start, end].map((p) => p / 100 * r.total);
    chart.setOption({series: timelineSeries(r, ...timelineView)});
  });
  chart.off("click");
  chart.on("click", (event) => {
    const step = event.seriesIndex === 0 ? event.value[3] : event.value[6];
    if (step >= 0) selectStep(step, false);
  });
  const [from, to] = timelineView;
  if (from > 0 || to < r.total) zoomTo(from, to);
}

function timelineSeries(r, from, to) {
  const {marks, stripes} = timelineMarks(r, from, to);
  window.reportMarks = marks.length + stripes.length;
  const chosen = chosenStep >= 0
    ? [[r.begin[chosenStep], r.begin[chosenStep + 1]]] : [];
  return [
    {
      type: "custom", xAxisIndex: 0, yAxisIndex: 0, clip: true, animation: false,
      data: stripes.map(([a, b, line, step], i) => [a, b, i, step]),
      encode: {x: [0, 1]},
      renderItem: (params, api) => {
        const [a, b, line] = stripes[params.dataIndex];
        const mark = rectangle(api, a, b, 0, 1,
          {fill: lineColour(line)});
        const {x, width: room} = params.coordSys;
        const begin = Math.max(mark.shape.x, x);
        const width = Math.min(mark.shape.x + mark.shape.width, x + room) - begin;
        const text = line && line.file
          ? [`${fileName(line.file)}:${line.line}`, `${line.line}`]
            .find((one) => one.length * 6.5 + 6 < width) : "";
        const on = line && line.rank < LINES.length;
        const label = {type: "text", silent: true, style: {text, fontSize: 11,
          fill: on ? "#fff" : css("--text"), align: "center",
          verticalAlign: "middle", x: begin + width / 2,
          y: mark.shape.y + mark.shape.height / 2}};
        return {type: "group", children: [mark, label]};
      },
    },
    {
      type: "custom", xAxisIndex: 1, yAxisIndex: 1, clip: true, animation: false,
      data: marks, encode: {x: [0, 1]},
      renderItem: (params, api) => {
        const [a, b, low, high, fill, opacity] = marks[params.dataIndex];
        return rectangle(api, a, b, low, high, {fill, opacity});
      },
      markArea: {silent: true, animation: false,
        itemStyle: {color: "transparent", borderColor: css("--text"),
          borderWidth: 1.5},
        data: chosen.map(([a, b]) => [{xAxis: a}, {xAxis: b}])},
    },
  ];
}

function timelineTooltip(event) {
  const step = event.seriesIndex === 0 ? event.value[3] : event.value[6];
  if (event.seriesIndex === 0) {
    const line = report.lineOf[step];
    if (!line || !line.file) return "no line of your code";
    const text = sourceText(report, line.file, line.line).trim();
    return `<b>${escapeText(fileName(line.file))}:${line.line}</b> ` +
      `${whole(line.cycles)} cycles in all, ` +
      `${percent(line.cycles / report.total)}<br>` +
      `<code>${escapeText(text.slice(0, 90))}</code>`;
  }
  const s = report.steps;
  const parts = PHASES.filter((p) => s[p][step] > 0)
    .map((p) => `${p} ${whole(s[p][step])}`).join(", ");
  return `<b>${escapeText(stepLabel(report, step))}</b><br>` +
    `step ${step}: ${parts}` +
    (s.times[step] !== 1 ? `, × ${whole(s.times[step])}` : "") +
    `<br>${whole(s.tiles[step])} of ${whole(report.numTiles)} tiles`;
}

function zoomTo(from, to) {
  const chart = drawChart("timeline-chart");
  const start = 100 * from / report.total, end = 100 * to / report.total;
  chart.dispatchAction({type: "dataZoom", dataZoomIndex: 0, start, end});
}

function selectStep(step, zoom = true) {
  chosenStep = step;
  const r = report, chart = drawChart("timeline-chart");
  const [from, to] = timelineView, begin = r.begin[step];
  const inView = begin >= from && r.begin[step + 1] <= to;
  const visible = r.cycles[step] / (to - from) > 0.004;
  if (zoom && r.cycles[step] > 0 && !(inView && visible)) {
    const around = Math.max(r.cycles[step] * 12, r.total / 200);
    const middle = begin + r.cycles[step] / 2;
    zoomTo(Math.max(middle - around, 0), Math.min(middle + around, r.total));
  } else {
    chart.setOption({series: timelineSeries(r, ...timelineView)});
  }
  showStep(step);
}

function moveStep(by) {
  const pass = (i) => report.cycles[i] > 0 &&
    (!stepMatches || stepMatches.has(i));
  let step = chosenStep + by;
  while (step >= 0 && step < report.count && !pass(step)) step += by;
  if (step >= 0 && step < report.count) selectStep(step);
}

function searchSteps(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = document.getElementById("step-found");
  if (words.length) {
    stepMatches = new Set();
    let cycles = 0;
    for (let i = 0; i < report.count; i++) {
      const at = report.steps.location[i];
      const all = `${stepLabel(report, i)} ${report.locations.name[at]} ` +
        report.locations.operation[at];
      if (words.every((word) => all.toLowerCase().includes(word))) {
        stepMatches.add(i);
        cycles += report.cycles[i];
      }
    }
    found.textContent = `${whole(stepMatches.size)} steps, ` +
      percent(cycles / (report.total || 1)) + " of the cycles";
  } else {
    stepMatches = null;
    found.textContent = "";
  }
  const chart = drawChart("timeline-chart");
  chart.setOption({series: timelineSeries(report, ...timelineView)});
}
