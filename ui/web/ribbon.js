// A sentence above its translation with lines between the words: a line's width is its attention weight.

import { make, setText } from "./dom.js";
import { download, fileName } from "./files.js";
import { formatPercent, headName, isolated, visibleToken } from "./format.js";
import { LEAST, ribbonOf } from "./ribbon_lines.js";

const SVG = "http://www.w3.org/2000/svg";
const STEP_MS = 700; // of a word, step by step
const NAMED = 3; // words at most in the sentence about a word
const UNSURE = 0.5; // probability of a word below which it is marked

function svgNode(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const lineName = (each) => (each.head === null ? "mean of layer " + each.layer : headName(each));
const quoted = (name) => "“" + isolated(visibleToken(name)) + "”";

/**
 * Build a ribbon in `box`.
 *
 * With `follows`, the caller says which head is shown, and how many words of the output while it plays them.
 * Returns show(record, { probabilities, head, count }); without anything to draw, the ribbon is hidden.
 */
export function ribbon(box, { follows = false } = {}) {
  let data = null; // of ribbonOf
  let record = null;
  let drawn = []; // the lines: { path, row, column }
  let hovered = null; // [side, at]: side is "source" or "output"
  let pinned = null;
  let focused = null;
  let shown = Infinity; // how many output words are shown; not all while it plays
  let timer = 0;

  const lines = svgNode("svg", { "aria-hidden": "true" });
  const rows = {
    source: make("div", { class: "words above", role: "group", "aria-label": "input" }),
    output: make("div", { class: "words below", role: "group", "aria-label": "output" }),
  };
  const pair = make("div", { class: "pair" }, lines, rows.source, rows.output);
  const scroller = make("div", { class: "scroll whole" }, pair); // the rows do not wrap, or lines would cross the words of another row
  const readout = make("p", { class: "readout muted", "aria-live": "polite" });
  const select = make("select", { onchange: () => draw() });
  const play = make("button", { type: "button", class: "play", onclick: () => (timer ? stop() : start()) }, "▶ Step by step");
  box.classList.add("ribbon");
  box.hidden = true;
  box.append(scroller, readout, make("div", { class: "tools" }, ...(follows ? [] : [make("label", {}, "Lines", select), play]),
    make("button", { type: "button", onclick: savePng, title: "Download the picture" }, "PNG"),
    make("button", { type: "button", onclick: saveSvg, title: "Download the picture as vectors" }, "SVG")));

  // ---- the head ----

  const key = ({ layer, head }) => layer + "." + (head ?? "mean");
  const byKey = (wanted) => data.heads.find((each) => key(each) === wanted);
  const chosen = () => byKey(select.value) ?? byKey(key(data.chosen));

  function showChoices() {
    const { chosen: best, heads } = data;
    const before = select.value;
    const layers = [...new Set(heads.map(({ layer }) => layer))];
    select.replaceChildren(make("option", { value: "" }, lineName(best) + " (" + best.why + ")"),
      ...layers.map((layer) => make("optgroup", { label: "Layer " + layer }, ...heads.filter((each) => each.layer === layer)
        .map((each) => make("option", { value: key(each) }, lineName(each) + (each.ablated ? ", switched off" : ""))))));
    select.value = byKey(before) ? before : "";
  }

  // ---- words and lines ----

  /** A word as a button; the arrow keys move between the words, so that Tab visits only one. */
  function makeWord(side, { name, probability = null }, at) {
    const unsure = probability !== null && probability < UNSURE;
    const button = make("button", { type: "button", class: unsure ? "word unsure" : "word", tabindex: side === "source" && at === 0 ? 0 : -1,
      "aria-pressed": "false", "data-at": at,
      onpointerenter: () => light(() => { hovered = [side, at]; }),
      onpointerleave: () => light(() => { hovered = null; }),
      onfocus: () => light(() => { focused = [side, at]; }),
      onblur: () => light(() => { focused = null; }),
      onclick: () => light(() => { pinned = String(pinned) === String([side, at]) ? null : [side, at]; }),
      onkeydown: (event) => onKey(event, side, at),
    }, visibleToken(name));
    if (probability !== null) {
      const bar = make("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = 100 * probability + "%";
      button.append(bar);
    }
    return button;
  }

  /** The word of the other side with the largest weight. */
  function partner(side, at) {
    const { weights } = chosen();
    const line = side === "output" ? weights[at] : weights.map((row) => row[at]);
    return line.indexOf(Math.max(...line));
  }

  function onKey(event, side, at) {
    const other = side === "source" ? "output" : "source";
    const moves = { ArrowLeft: [side, at - 1], ArrowRight: [side, at + 1], Home: [side, 0], End: [side, data[side].length - 1],
      ArrowUp: ["source", side === "output" ? partner(side, at) : at], ArrowDown: ["output", side === "source" ? partner(side, at) : at] };
    if (event.key === "Escape") return light(() => { pinned = null; });
    const [to, where] = moves[event.key] ?? [other, -1];
    const next = rows[to].children[where];
    if (!next || !moves[event.key]) return undefined;
    event.preventDefault();
    for (const word of pair.querySelectorAll(".word")) word.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    return undefined;
  }

  /** Draw the lines of the chosen head between the words as they are laid out. */
  function draw() {
    if (!data || !pair.clientWidth) return;
    const { weights } = chosen();
    const width = pair.clientWidth;
    const height = pair.clientHeight;
    lines.setAttribute("viewBox", "0 0 " + width + " " + height);
    const [above, below] = [rows.source, rows.output].map((row) => [...row.children]);
    drawn = [];
    weights.forEach((row, at) => row.forEach((weight, column) => {
      if (weight < LEAST) return;
      const [from, to] = [above[column], below[at]];
      const [x1, y1] = [from.offsetLeft + from.offsetWidth / 2, from.offsetTop + from.offsetHeight];
      const [x2, y2] = [to.offsetLeft + to.offsetWidth / 2, to.offsetTop];
      const middle = (y1 + y2) / 2;
      drawn.push({ row: at, column, path: svgNode("path", { d: "M" + x1 + "," + y1 + "C" + x1 + "," + middle + " " + x2 + "," + middle + " " + x2 + "," + y2,
        "stroke-width": (1 + 6 * weight).toFixed(2), "stroke-opacity": (0.15 + 0.75 * weight).toFixed(3),
        "data-row": at, "data-column": column, "data-weight": weight.toFixed(4) }) });
    }));
    lines.replaceChildren(...drawn.map(({ path }) => path));
    follow();
  }

  // ---- lighting ----

  const unit = () => (record.words ? "word" : "token");

  const last = () => Math.min(shown, data.output.length) - 1; // of the shown output words; -1 without any
  const current = () => (shown < Infinity && last() >= 0 ? ["output", last()] : hovered ?? pinned ?? focused);

  /** Show which words are connected with the current one, after `change`. */
  function light(change) {
    change?.();
    const lit = current();
    const [side, at] = lit ?? [];
    pair.classList.toggle("some", Boolean(lit));
    const on = { source: new Set(), output: new Set() };
    if (lit) on[side].add(at);
    for (const { path, row, column } of drawn) {
      const isLit = lit && (side === "output" ? row === at : column === at);
      path.classList.toggle("on", Boolean(isLit));
      path.style.visibility = row < shown ? "" : "hidden";
      if (isLit) {
        on.source.add(column);
        on.output.add(row);
      }
    }
    for (const name of ["source", "output"]) {
      [...rows[name].children].forEach((word, index) => {
        word.classList.toggle("on", on[name].has(index));
        word.setAttribute("aria-pressed", String(String(pinned) === String([name, index])));
        word.style.visibility = name === "source" || index < shown ? "" : "hidden";
      });
    }
    setText(readout, lit ? sentenceOf(side, at)
      : "Point at a " + unit() + " to see which ones it is connected with. The width of a line is its attention weight.");
  }

  /** What the head measures at a word, in words. */
  function sentenceOf(side, at) {
    const { weights, special } = chosen();
    const given = side === "output" ? weights[at].map((weight, to) => [weight, data.source[to].name]) : weights.map((row, to) => [row[at], data.output[to].name]);
    const named = given.filter(([weight]) => weight >= LEAST).sort((a, b) => b[0] - a[0]).slice(0, NAMED)
      .map(([weight, name]) => quoted(name) + " " + formatPercent(weight, 0)).join(", ");
    const { name, probability } = data[side][at];
    if (side === "source") return named ? quoted(name) + " gets attention from " + named + "." : "No " + unit() + " attends to " + quoted(name) + " with 5 % or more.";
    const rest = special[at] >= LEAST ? "; " + formatPercent(special[at], 0) + " on <BOS> and <EOS>" : "";
    const chance = probability === null ? "" : " The model gives this " + unit() + " " + formatPercent(probability, 0) + ".";
    return quoted(name) + " attends to " + (named || "no " + unit() + " with 5 % or more") + rest + "." + chance;
  }

  // ---- step by step ----

  /** Show the output up to the last shown word, in sight. */
  function follow() {
    light();
    const word = rows.output.children[last()];
    if (shown < Infinity && word) scroller.scrollLeft = word.offsetLeft + (word.offsetWidth - scroller.clientWidth) / 2;
  }

  function start() {
    [hovered, pinned, shown] = [null, null, 1];
    timer = setInterval(() => {
      shown += 1;
      if (shown > data.output.length) return stop();
      return follow();
    }, STEP_MS);
    setText(play, "■ Stop");
    follow();
  }

  function stop() {
    clearInterval(timer);
    [timer, shown] = [0, Infinity];
    setText(play, "▶ Step by step");
    light();
  }

  // ---- files ----

  /** The ribbon as a picture of its own, in the colors of the page. */
  function picture() {
    const styleOf = (node) => getComputedStyle(node);
    const [width, height] = [pair.clientWidth, pair.clientHeight + 28];
    const font = styleOf(rows.source).fontFamily;
    const texts = [...pair.querySelectorAll(".word")].map((word) => svgNode("text", { x: word.offsetLeft + word.offsetWidth / 2,
      y: word.offsetTop + word.offsetHeight / 2, "text-anchor": "middle", "dominant-baseline": "central", "font-family": font, "font-size": styleOf(word).fontSize,
      "font-weight": styleOf(word).fontWeight, fill: styleOf(word).color }, word.firstChild.textContent));
    const paths = drawn.map(({ path }) => svgNode("path", { d: path.getAttribute("d"), fill: "none", "stroke-linecap": "round", stroke: styleOf(path).stroke,
      "stroke-width": path.getAttribute("stroke-width"), "stroke-opacity": path.getAttribute("stroke-opacity") }));
    const about = svgNode("text", { x: 8, y: height - 10, "font-family": font, "font-size": 12, fill: styleOf(readout).color },
      [record.model ?? record.run, lineName(chosen())].filter(Boolean).join(" · "));
    const paper = svgNode("rect", { width, height, fill: styleOf(document.body).getPropertyValue("--card").trim() || "white" });
    return svgNode("svg", { xmlns: SVG, width, height, viewBox: "0 0 " + width + " " + height }, paper, ...paths, ...texts, about);
  }

  const svgText = () => new XMLSerializer().serializeToString(picture());
  const nameOf = (extension) => fileName(data.output.map(({ name }) => name).join(" "), extension);

  function saveSvg() {
    download(new Blob([svgText()], { type: "image/svg+xml" }), nameOf("svg"));
  }

  async function savePng() {
    const image = new Image();
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svgText());
    await image.decode();
    const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height }); // sharp in print
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(blob, nameOf("png")));
  }

  new ResizeObserver(draw).observe(pair);

  return function show(next, { probabilities = null, head = null, count = null } = {}) {
    if (next !== record) {
      record = next;
      data = next ? ribbonOf(next, probabilities) : null;
      box.hidden = !data;
      if (timer) stop();
      [hovered, pinned, focused] = [null, null, null];
      scroller.scrollLeft = 0;
      if (!data) return;
      for (const side of ["source", "output"]) rows[side].replaceChildren(...data[side].map((word, at) => makeWord(side, word, at)));
      showChoices();
    }
    if (data && head) select.value = key(head);
    if (follows) shown = count ?? Infinity;
    draw();
  };
}
