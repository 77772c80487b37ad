// Numbers as a person reads them, and colours that mean the same everywhere.

const escapeText = (text) => String(text).replace(/[&<>"']/g,
  (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;",
    "'": "&#39;"})[c]);

const whole = (x) => Math.round(x).toLocaleString("en-US");

function short(x, unit = "") {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"],
    [1e3, "k"]]) {
    if (Math.abs(x) >= size) {
      return `${+(x / size).toPrecision(3)} ${letter}${unit}`.trim();
    }
  }
  return `${+x.toPrecision(3)} ${unit}`.trim();
}

function size(x) {
  let unit = 0;
  while (Math.abs(x) >= 1024 && unit < 4) { x /= 1024; unit++; }
  const digits = unit && Math.abs(x) < 100 ? 1 : 0;
  return `${x.toFixed(digits)} ${["bytes", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

function seconds(x) {
  for (const [scale, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (x >= scale) return `${+(x / scale).toPrecision(3)} ${unit}`;
  }
  return `${+(x / 1e-9).toPrecision(3)} ns`;
}

const percent = (part) =>
  `${(100 * part).toFixed(part && part < 0.0995 ? 1 : 0)}\u00a0%`;

// Colours of the style sheet; asking for thousands of them takes long.
const colours = new Map();
function css(name) {
  if (!colours.has(name)) {
    const style = getComputedStyle(document.documentElement);
    colours.set(name, style.getPropertyValue(name).trim());
  }
  return colours.get(name);
}
const isDark = () => document.documentElement.dataset.theme === "dark";

const PHASES = ["compute", "exchange", "link", "sync", "host"];
const phaseColour = (phase) => css(`--${phase}`);

// [light, dark] of each category of SRAM: what has to do with exchanges is
// amber, code is brown and grey, tensors are blue and green.
const CATEGORY = {
  "stacks": ["#8b95a5", "#6b7585"],
  "vertex state": ["#b4bcc9", "#8c96a6"],
  "vertex code": ["#9a5b3c", "#b3714f"],
  "control code": ["#c79a7b", "#d0a588"],
  "host stream code": ["#8a5be0", "#a988f0"],
  "exchange code": ["#e8a020", "#e0a33a"],
  "arguments": ["#2c55b5", "#4a76dd"],
  "donated arguments": ["#6d97ee", "#86acf7"],
  "constants": ["#0f8379", "#27a99c"],
  "results": ["#2c9a57", "#45b873"],
  "temporaries": ["#93c95c", "#8cc050"],
  "exchanged copies": ["#f4c967", "#f1cf80"],
  "buffers": ["#f9e3ad", "#c9b684"],
};
const categoryColour = (name) =>
  (CATEGORY[name] || ["#c05299", "#d871b3"])[isDark() ? 1 : 0];

// The ten most expensive lines have a colour of their own.
const LINES = ["#3b6fd8", "#e07b39", "#2c9a57", "#c2478f", "#0f8f9c",
  "#a87c1d", "#7a5be0", "#d1495b", "#5c8a1e", "#8a6d5a"];
const lineColour = (line) =>
  line && line.rank < LINES.length ? LINES[line.rank] : css("--line");

// Ticks of an axis in bytes: multiples of a power of two.
function byteAxis(most) {
  const interval = 2 ** Math.max(Math.ceil(Math.log2(Math.max(most, 8) / 6)), 0);
  return {
    max: Math.ceil(most / interval) * interval, interval,
    axisLabel: {formatter: (x) => x ? size(x).replace(".0 ", " ") : "0"},
  };
}
