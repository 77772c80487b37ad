// Tables of operations, steps, tensors and choices.

// Draws a table when it comes near the screen.
function addTable(id, make) {
  const element = document.getElementById(id);
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      watch.disconnect();
      make(element);
    }
  }, {rootMargin: "300px"});
  watch.observe(element);
}

function table(element, data, columns, more = {}) {
  return new Tabulator(element, {
    data, height: Math.min(60 + 33 * Math.max(data.length, 2), 460),
    layout: innerWidth < 900 ? "fitData" : "fitColumns",
    columnDefaults: {headerTooltip: true, tooltip: true, minWidth: 70},
    columns, placeholder: "nothing to show", ...more,
  });
}

const textColumn = (title, field, more = {}) => ({title, field, widthGrow: 2,
  headerFilter: "input", headerFilterPlaceholder: "filter",
  formatter: "plaintext", minWidth: 110, ...more});

const numberColumn = (title, field, show, more = {}) => ({title, field,
  hozAlign: "right", headerHozAlign: "right", sorter: "number", minWidth: 98,
  headerSortStartingDir: "desc",
  formatter: (cell) => {
    const value = Number(cell.getValue());
    return value ? escapeText(show(value)) : "";
  }, tooltip: (event, cell) => whole(Number(cell.getValue())), ...more});

function cyclesColumn(most) {
  return {title: "cycles", field: "cycles", sorter: "number", widthGrow: 2,
    headerSortStartingDir: "desc", minWidth: 150,
    formatter: (cell) => {
      const value = Number(cell.getValue());
      const width = 70 * value / (most || 1);
      return `<span class="cellbar" style="width:${width}px"></span>` +
        whole(value);
    }};
}

function showTables(r) {
  addTable("operation-table", (e) => operationTable(e, r));
  addTable("step-table", (e) => stepTable(e, r));
  addTable("tensor-table", (e) => tensorTable(e, r));
  document.getElementById("choices").hidden = !r.choices.length;
  if (r.choices.length) addTable("choice-table", (e) => choiceTable(e, r));
}

function operationTable(element, r) {
  const s = r.steps, found = new Map();
  for (let i = 0; i < r.count; i++) {
    if (!r.cycles[i]) continue;
    const at = s.location[i], what = s.codelet[i] || s.kind[i];
    const name = leafOf(r, at), line = placeOf(r, at);
    const key = `${what}|${name}|${line}`;
    let row = found.get(key);
    if (!row) {
      row = {what, name, line, count: 0, cycles: 0, compute: 0, exchange: 0,
        link: 0, sync: 0, bytes: 0, flops: 0, tiles: 0, first: i};
      found.set(key, row);
    }
    row.count++;
    row.cycles += r.cycles[i];
    for (const k of ["compute", "exchange", "link", "sync", "bytes", "flops"]) {
      row[k] += s[k][i] * s.times[i];
    }
    row.tiles += s.tiles[i] * r.cycles[i];
  }
  const rows = [...found.values()];
  for (const row of rows) {
    row.tiles = row.tiles / row.cycles / r.numTiles;
    row.share = row.cycles / (r.total || 1);
  }
  rows.sort((a, b) => b.cycles - a.cycles);
  table(element, rows, [
    textColumn("step", "what"), textColumn("operation", "name", {widthGrow: 3, minWidth: 150}),
    textColumn("line", "line"), numberColumn("steps", "count", whole),
    cyclesColumn(rows.length && rows[0].cycles),
    numberColumn("of all", "share", percent),
    numberColumn("compute", "compute", whole),
    numberColumn("exchange", "exchange", whole),
    numberColumn("moved", "bytes", size),
    numberColumn("FLOP", "flops", short),
    numberColumn("tiles", "tiles", percent),
  ]).on("rowClick", (event, row) => {
    showSection("timeline");
    selectStep(row.getData().first);
  });
}

function stepTable(element, r) {
  const s = r.steps, rows = [];
  let most = 1;
  for (let i = 0; i < r.count; i++) {
    const at = s.location[i];
    most = Math.max(most, r.cycles[i]);
    rows.push({number: i, what: "\u2003".repeat(s.depth[i]) +
      (s.codelet[i] || s.kind[i]), name: r.locations.name[at],
      line: placeOf(r, at), shape: s.shape[i], cycles: r.cycles[i],
      compute: s.compute[i] * s.times[i], bytes: s.bytes[i] * s.times[i],
      flops: s.flops[i] * s.times[i], tiles: s.tiles[i],
      times: s.times[i] === 1 ? 0 : s.times[i]});
  }
  table(element, rows, [
    numberColumn("#", "number", whole, {width: 70, formatter: "plaintext",
      headerSortStartingDir: "asc"}),
    textColumn("step", "what"), textColumn("JAX's name", "name",
      {widthGrow: 4}), textColumn("line", "line"),
    textColumn("shape", "shape"), numberColumn("passes", "times", whole),
    cyclesColumn(most), numberColumn("compute", "compute", whole),
    numberColumn("moved", "bytes", size),
    numberColumn("FLOP", "flops", short), numberColumn("tiles", "tiles", whole),
  ]).on("rowClick", (event, row) => {
    showSection("timeline");
    selectStep(row.getData().number);
  });
}

function tensorTable(element, r) {
  const t = r.tensors, rows = [];
  const {offsets, begin, end} = r.lives;
  const last = r.count ? r.steps.time[r.count - 1] : 0;
  for (let e = 0; e < t.share.length; e++) {
    const from = offsets[e], to = offsets[e + 1];
    const always = from < to && begin[from] <= 0 && end[to - 1] >= last;
    rows.push({name: t.name[e], type: t.type[e], kind: tensorCategory(r, e),
      line: placeOf(r, t.location[e]), bytes: t.bytes[e], most: t.most[e],
      from: from < to ? stepAt(r, begin[from]) : 0,
      live: always ? "always" : from < to
        ? `${stepAt(r, begin[from])} – ${stepAt(r, end[to - 1])}` : ""});
  }
  rows.sort((a, b) => b.most - a.most);
  table(element, rows, [
    textColumn("name", "name", {widthGrow: 4}), textColumn("type", "type"),
    textColumn("kind", "kind"), textColumn("line", "line"),
    numberColumn("on a tile", "most", size),
    numberColumn("all tiles", "bytes", size),
    {title: "steps", field: "live", headerFilter: false,
      sorter: (a, b, x, y) => x.getData().from - y.getData().from},
  ]);
}

function choiceTable(element, r) {
  const rows = r.choices.map((c) => ({
    ...c, line: placeOf(r, c.location), chosen: c.alternatives[0].what,
    cycles: c.alternatives[0].cycles, bytes: c.alternatives[0].bytes,
    next: c.alternatives[1] ? c.alternatives[1].what : "",
    worse: c.alternatives[1]
      ? c.alternatives[1].cycles / c.alternatives[0].cycles - 1 : 0,
  }));
  table(element, rows, [
    textColumn("line", "line"), textColumn("what", "space", {widthGrow: 3}),
    numberColumn("tried", "considered", whole),
    textColumn("chosen", "chosen", {widthGrow: 3}),
    numberColumn("cycles", "cycles", whole),
    numberColumn("SRAM", "bytes", size),
    textColumn("next best", "next", {widthGrow: 3}),
    numberColumn("slower", "worse", percent),
  ]);
}
