// Helpers for all components. Python prepends this file, after `const COLORS = …`, to each component's
// script; Gradio runs the whole as one function of (element, trigger, props, server, watch).
// Tokens and run names come from visitors: show them only as text nodes and attributes.

// ---- elements ----

/** The first element of this component with a class. */
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

/** Set a text only if it differs, so that nothing flickers and screen readers announce it once. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name that is unique on the page, for radio groups and ids. */
function uniqueName(prefix) {
  return prefix + "-" + Math.random().toString(36).slice(2, 10);
}

// ---- server ----

/** Call a server function; null without an answer (no connection, error, or more than ten seconds). */
async function callServer(name, argument) {
  const timeout = new Promise((resolve) => setTimeout(resolve, 10000, null));
  try {
    return (await Promise.race([server[name](argument), timeout])) ?? null;
  } catch {
    return null;
  }
}

/**
 * Call `poll` repeatedly while the component is on the page and visible. `poll` returns the
 * milliseconds until the next call. Returns a function that polls immediately.
 */
function pollWhileVisible(poll) {
  const whileHidden = 300;
  let timer = 0;
  let round = 0; // a response of an earlier round must not start a second chain of timers
  async function turn(mine) {
    if (!element.isConnected) return;
    const isVisible = document.visibilityState === "visible" && element.offsetParent !== null;
    const wait = isVisible ? await poll() : whileHidden;
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

// ---- formatting ----

/** A number with three significant digits: 12.3, 0.0213, 2.1e-5. */
function formatNumber(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1000) return String(Math.round(value));
  return size >= 0.001 ? value.toPrecision(3) : value.toExponential(1);
}

/** A fraction as a percentage; 0 % and 100 % only if exact. */
function formatPercent(fraction, digits = 1) {
  if (fraction == null || !Number.isFinite(fraction)) return "–";
  const least = 10 ** -digits;
  const percent = fraction * 100;
  if (percent > 0 && percent < least) return "<" + least.toFixed(digits) + " %";
  if (percent < 100 && percent > 100 - least) return ">" + (100 - least).toFixed(digits) + " %";
  return (percent === 0 || percent === 100 ? String(percent) : percent.toFixed(digits)) + " %";
}

/** A duration in one or two units. */
function formatSeconds(seconds) {
  if (seconds < 1) return "<1 s";
  if (seconds < 90) return Math.round(seconds) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

/** A token with visible signs for spaces and the empty string. */
function visibleToken(token) {
  const text = String(token);
  if (text === "") return "∅";
  return text.trim() === "" ? "␣".repeat(text.length) : text;
}

// ---- files ----

/** Download a blob as a file. */
function download(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** A file name of letters, digits and dashes. */
function fileName(text, extension) {
  const stem = String(text).toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  return (stem.slice(0, 80) || "attention-lab") + "." + extension;
}

/** One CSV cell. Text that starts with = + - @ is quoted, because spreadsheets run it as a formula. */
function csvCell(value) {
  if (value == null) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
  const safe = /^[\s]*[=+\-@\t\r]/.test(text) && !isNumber ? "'" + text : text;
  return '"' + safe.replaceAll('"', '""') + '"';
}

/** Download rows as a CSV file, with the byte-order mark that Excel needs for non-ASCII text. */
function downloadCsv(rows, name) {
  const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  download(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }), name);
}

// ---- colors and canvas ----

const ATTENTION_STOPS = COLORS.attention.map((hex) =>
  [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** [red, green, blue] of an attention weight; the scale is 0–1 for all maps. */
function attentionColor(weight) {
  const position = Math.min(1, Math.max(0, weight || 0)) * (ATTENTION_STOPS.length - 1);
  const below = Math.min(Math.floor(position), ATTENTION_STOPS.length - 2);
  const fraction = position - below;
  return ATTENTION_STOPS[below].map((from, channel) =>
    Math.round(from + (ATTENTION_STOPS[below + 1][channel] - from) * fraction));
}

/** The theme's colors and font for a canvas; read before each drawing, because the theme can change. */
function themeColors() {
  const sample = make("span", { hidden: true });
  element.append(sample);
  const read = (name) => {
    sample.style.color = "var(" + name + ")";
    return getComputedStyle(sample).color;
  };
  const colors = {
    font: getComputedStyle(element).fontFamily,
    text: read("--body-text-color"),
    muted: read("--muted"),
    line: read("--border-color-primary"),
    background: read("--background-fill-primary"),
    accent: read("--color-accent"),
  };
  sample.remove();
  return colors;
}

/** Set a canvas's size in CSS pixels at the screen's resolution; returns its cleared context. */
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

/** A function that draws in the next frame, once for any number of calls. */
function inNextFrame(draw) {
  let pending = 0;
  return () => {
    pending ||= requestAnimationFrame(() => {
      pending = 0;
      if (element.isConnected) draw();
    });
  };
}

/** Call `redraw` when the component's width or the theme changes. */
function onAppearanceChange(redraw) {
  const size = new ResizeObserver(redraw);
  const theme = new MutationObserver(() => {
    if (element.isConnected) return redraw();
    theme.disconnect(); // the component was removed
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
