// Reading along: each step of the answer with lines to the input tokens that it attends to.

import { make, setText } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";
import { lookInside, makeHeadSelect, rowInWords } from "./heat_table.js";

const SVG = "http://www.w3.org/2000/svg";
const [LEAST_WIDTH, WIDTH, HEIGHT] = [34, 44, 72]; // of a token's slot at least and at most, and of the lines, pixels
const LEAST = 0.05; // the smallest weight that gets a line

function line(from, to, weight, isCurrent) {
  const node = document.createElementNS(SVG, "line");
  const given = { x1: from, y1: HEIGHT, x2: to, y2: 0, "stroke-width": 1 + 5 * weight, "stroke-opacity": isCurrent ? 0.25 + 0.75 * weight : 0.15 * weight,
    class: isCurrent ? "current" : "" };
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
  return node;
}

export function readingFigure({ box, options, lesson, request }) {
  const heads = makeHeadSelect(options, () => draw());
  const slider = make("input", { type: "range", min: 1, "aria-label": "step of the answer", oninput: () => draw() });
  const [top, bottom] = [make("div", { class: "slots" }), make("div", { class: "slots" })];
  const lines = document.createElementNS(SVG, "svg");
  const words = make("p", { class: "readout", "aria-live": "polite" });
  const link = make("a", {}, "Open this step in Look inside");
  let answer = null;
  let input = "";
  lines.setAttribute("aria-hidden", "true");
  box.append(make("div", { class: "tools" }, heads.node, make("label", {}, "step", slider)),
    make("div", { class: "scroll reading", tabindex: "0", role: "region", "aria-label": "input above, answer below" }, top, lines, bottom), words, make("p", { class: "links" }, link));

  function draw() {
    const { source, produced, read, weights } = answer;
    heads.show(weights[options.block]);
    const [layer, head] = heads.chosen();
    const map = weights[options.block][layer - 1][head - 1];
    const step = Number(slider.value) - 1;
    const width = Math.max(LEAST_WIDTH, Math.min(WIDTH, Math.floor((box.clientWidth || 400) / Math.max(source.length, produced.length))));
    const middle = (at) => (at + 0.5) * width;
    box.style.setProperty("--slot", width + "px");
    top.replaceChildren(...source.map((token, at) => make("span", { class: map[step][at] >= LEAST ? "attended" : "", style: "--part: " + Math.round(100 * map[step][at]) + "%" }, visibleToken(token))));
    bottom.replaceChildren(...produced.map((token, at) => make("button", { type: "button", "aria-pressed": String(at === step),
      "aria-label": "step " + (at + 1) + ", produced " + visibleToken(token), onclick: () => go(at) }, visibleToken(token))));
    lines.setAttribute("width", width * Math.max(source.length, produced.length));
    lines.setAttribute("height", HEIGHT);
    lines.replaceChildren(...map.flatMap((row, from) => row.map((weight, to) =>
      (weight < LEAST ? null : line(middle(from), middle(to), weight, from === step))).filter(Boolean)));
    setText(words, rowInWords("Step " + (step + 1) + " produces " + visibleToken(produced[step]) + " after reading " + visibleToken(read[step]) + ".", source, map[step]));
    link.href = lookInside(lesson, input, { block: options.block, layer, head, row: step + 1 });
  }

  function go(step) {
    slider.value = step + 1;
    draw();
    bottom.children[step].focus();
  }

  return {
    async show(text) {
      const next = await request("decode", { input: text });
      if (!next) return;
      [answer, input] = [next, text];
      slider.max = answer.produced.length;
      slider.value = Math.min(options.row, answer.produced.length);
      draw();
    },
  };
}
