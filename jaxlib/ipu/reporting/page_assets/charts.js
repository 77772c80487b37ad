// Charts that are drawn when they come near the screen, and drawn again when
// the colours change.

const charts = new Map();  // by element id: {draw, chart, drawn}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) drawChart(entry.target.id);
  }
}, {rootMargin: "300px"});

function addChart(id, draw) {
  charts.set(id, {draw, chart: null, drawn: false});
  seen.observe(document.getElementById(id));
}

function drawChart(id, again = false) {
  const entry = charts.get(id);
  if (!entry || (entry.drawn && !again)) return entry && entry.chart;
  const element = document.getElementById(id);
  if (!entry.chart) {
    entry.chart = echarts.init(element, null, {renderer: "canvas"});
  }
  entry.drawn = true;
  entry.draw(entry.chart);
  return entry.chart;
}

function redrawCharts() {
  for (const [id, entry] of charts) if (entry.drawn) drawChart(id, true);
}

window.addEventListener("resize", () => {
  for (const {chart} of charts.values()) if (chart) chart.resize();
});
window.addEventListener("beforeprint", () => {
  for (const id of charts.keys()) drawChart(id);
});

// What all charts have in common.
function chartBase(more) {
  const text = css("--text"), muted = css("--muted"), line = css("--line");
  const axis = {
    axisLine: {lineStyle: {color: line}}, axisTick: {lineStyle: {color: line}},
    axisLabel: {color: muted, hideOverlap: true},
    splitLine: {lineStyle: {color: line}},
    nameTextStyle: {color: muted},
  };
  const withAxis = (one) => ({
    ...axis, ...one, axisLabel: {...axis.axisLabel, ...(one.axisLabel || {})},
  });
  const option = {
    animation: false,
    backgroundColor: css("--page"),
    textStyle: {color: text, fontFamily: "system-ui, sans-serif"},
    ...more,
  };
  for (const name of ["xAxis", "yAxis"]) {
    if (Array.isArray(option[name])) option[name] = option[name].map(withAxis);
    else if (option[name]) option[name] = withAxis(option[name]);
  }
  option.tooltip = {
    backgroundColor: css("--raised"), borderColor: line, confine: true,
    textStyle: {color: text, fontSize: 13}, transitionDuration: 0,
    ...(more.tooltip || {}),
  };
  if (option.legend) {
    option.legend = {
      textStyle: {color: muted}, inactiveColor: line, itemWidth: 12,
      itemHeight: 10, icon: "roundRect", ...option.legend,
    };
  }
  return option;
}

// A slider under a chart that zooms along its x axes.
function slider(axes, more = {}) {
  const line = css("--line");
  return {
    type: "slider", xAxisIndex: axes, height: 18, bottom: 8,
    borderColor: line, fillerColor: css("--idle") + "66",
    handleStyle: {color: css("--muted"), borderColor: css("--muted")},
    moveHandleSize: 4, showDetail: false, showDataShadow: false,
    brushSelect: false, ...more,
  };
}

// At most `most` bins of consecutive columns; each has the values of the
// column of it in which `key` is largest.
function fullestOf(key, most) {
  const count = key.length, bins = Math.min(count, most), out = [];
  for (let b = 0; b < bins; b++) {
    const begin = Math.floor(b * count / bins);
    const end = Math.floor((b + 1) * count / bins);
    let best = begin;
    for (let i = begin; i < end; i++) if (key[i] > key[best]) best = i;
    out.push(best);
  }
  return out;
}
