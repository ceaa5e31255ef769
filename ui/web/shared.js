// What every component needs. Python puts this file, after `const COLORS = …`, in front of each
// component's script; Gradio runs the whole as one function of (element, trigger, props, server, watch).
// Tokens and run names are strangers' text: they enter the page only as text nodes and attributes.

// ---- elements ----

/** The first element of this component with that class. */
const part = (name) => element.querySelector("." + name);

/** Make an element; string children become text, `on…` attributes become listeners. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Change a text only if it differs, so that nothing flickers and nothing is announced twice. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A number that no other component on the page has: radio groups and ids need one. */
function uniqueName(prefix) {
  return prefix + "-" + Math.random().toString(36).slice(2, 10);
}

// ---- server ----

/** Call a server function; null means that no answer came (server gone, error, or over ten seconds). */
async function askServer(name, question) {
  const tooLong = new Promise((resolve) => setTimeout(resolve, 10000, null));
  try {
    return (await Promise.race([server[name](question), tooLong])) ?? null;
  } catch {
    return null;
  }
}

/**
 * Call `ask` for as long as the component is on the page and can be seen. `ask` returns the
 * milliseconds until its next turn. Returns a function that asks at once.
 */
function keepAsking(ask) {
  const whileHidden = 300;
  let timer = 0;
  let round = 0; // an answer of an earlier round must not start a second chain of timers
  async function turn(mine) {
    if (!element.isConnected) return;
    const seen = document.visibilityState === "visible" && element.offsetParent !== null;
    const wait = seen ? await ask() : whileHidden;
    if (mine === round) timer = setTimeout(turn, wait, mine);
  }
  function now() {
    clearTimeout(timer);
    round += 1;
    timer = setTimeout(turn, 0, round);
  }
  now();
  return now;
}

// ---- numbers and words ----

/** A plain number with three digits that matter: 12.3, 0.0213, 2.1e-5. */
function formatNumber(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1000) return String(Math.round(value));
  return size >= 0.001 ? value.toPrecision(3) : value.toExponential(1);
}

/** A share as a percentage that never claims all or nothing unless it is. */
function formatPercent(share, digits = 1) {
  if (share == null || !Number.isFinite(share)) return "–";
  const least = 10 ** -digits;
  const percent = share * 100;
  if (percent > 0 && percent < least) return "<" + least.toFixed(digits) + " %";
  if (percent < 100 && percent > 100 - least) return ">" + (100 - least).toFixed(digits) + " %";
  return (percent === 0 || percent === 100 ? String(percent) : percent.toFixed(digits)) + " %";
}

/** A duration in the one or two units that matter. */
function formatSeconds(seconds) {
  if (seconds < 1) return "<1 s";
  if (seconds < 90) return Math.round(seconds) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

/** A token as people can see it: a space and an empty text get a sign. */
function visibleToken(token) {
  const text = String(token);
  if (text === "") return "∅";
  return text.trim() === "" ? "␣".repeat(text.length) : text;
}

// ---- files ----

/** Hand a blob to the visitor as a file. */
function download(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Letters, digits and dashes only: safe as a file name everywhere. */
function fileName(text, ending) {
  const stem = String(text).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  return (stem.slice(0, 80) || "attention-lab") + "." + ending;
}

/** One CSV cell. A spreadsheet runs text that begins with = + - @ as a formula, so that is defused. */
function csvCell(value) {
  if (value == null) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
  const safe = /^[\s]*[=+\-@\t\r]/.test(text) && !isNumber ? "'" + text : text;
  return '"' + safe.replaceAll('"', '""') + '"';
}

/** Rows of cells as a CSV file (with a byte-order mark, which Excel needs for anything but ASCII). */
function downloadCsv(rows, name) {
  const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  download(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }), name);
}

// ---- colours and canvas ----

const ATTENTION_STOPS = COLORS.attention.map((hex) =>
  [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** [red, green, blue] of an attention weight; the scale is 0–1 for every map. */
function attentionColor(weight) {
  const place = Math.min(1, Math.max(0, weight || 0)) * (ATTENTION_STOPS.length - 1);
  const below = Math.min(Math.floor(place), ATTENTION_STOPS.length - 2);
  const share = place - below;
  return ATTENTION_STOPS[below].map((from, channel) =>
    Math.round(from + (ATTENTION_STOPS[below + 1][channel] - from) * share));
}

/** The theme's colours and font as a canvas can use them; read for each drawing, so a theme switch shows. */
function themeLook() {
  const probe = make("span", { hidden: true });
  element.append(probe);
  const read = (name) => {
    probe.style.color = "var(" + name + ")";
    return getComputedStyle(probe).color;
  };
  const look = {
    font: getComputedStyle(element).fontFamily,
    text: read("--body-text-color"),
    quiet: read("--quiet"),
    line: read("--border-color-primary"),
    background: read("--background-fill-primary"),
    accent: read("--color-accent"),
  };
  probe.remove();
  return look;
}

/** Size a canvas in CSS pixels, sharp on any screen; returns its cleared context. */
function prepareCanvas(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  return context;
}

/** Draw in the next frame, however often it is asked for before. */
function inNextFrame(draw) {
  let asked = 0;
  return () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      if (element.isConnected) draw();
    });
  };
}

/** Call `redraw` when the component's width or the theme changes. */
function onLookChange(redraw) {
  const size = new ResizeObserver(redraw);
  const theme = new MutationObserver(() => {
    if (element.isConnected) return redraw();
    theme.disconnect(); // the component is gone; its observers go too
    size.disconnect();
  });
  size.observe(element);
  theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
}

/** Shorten a text with an ellipsis until it fits the width. */
function fitText(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let letters = [...text].slice(0, 80);
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.join("") + "…";
}
