// One row of a head: the score of each key, and the softmax that turns the scores into weights.

import { make, setText } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";
import { lookInside, makeCheckbox, makeHeadSelect, weightsInWords } from "./heat_table.js";

/** The weights of scores: e^score, divided by the sum of all of them. */
export function softmax(scores) {
  const most = Math.max(...scores); // subtracted, so that no power is too large; it cancels out
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

export function rowFigure({ box, options, lesson, request }) {
  const heads = makeHeadSelect(options, () => draw());
  const rows = make("select", { "aria-label": "row", onchange: () => draw() });
  const scaled = makeCheckbox("divide by √d_k", true, () => draw());
  const table = make("table", { class: "scores" });
  const words = make("p", { class: "readout", "aria-live": "polite" });
  const link = make("a", {}, "Open the largest weight in Look inside");
  let answer = null;
  let input = "";
  box.append(make("div", { class: "tools" }, heads.node, make("label", {}, "row", rows), scaled.node),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "scores and weights of a row" }, table), words, make("p", { class: "links" }, link));

  function showRows() {
    const { produced, read, source } = answer;
    const names = options.block === "encoder" ? source.map((token) => "query of " + visibleToken(token))
      : produced.map((token, at) => "produces " + visibleToken(token) + " after " + visibleToken(read[at]));
    const chosen = rows.value === "" ? options.row - 1 : Number(rows.value);
    rows.replaceChildren(...names.map((name, at) => make("option", { value: at }, at + 1 + ": " + name)));
    rows.value = Math.min(chosen, names.length - 1);
  }

  function draw() {
    const { scores, source, read, d_k: width } = answer;
    heads.show(scores[options.block]);
    const [layer, head] = heads.chosen();
    const row = Number(rows.value);
    const columns = options.block === "decoder" ? read.slice(0, row + 1) : source;
    const divided = scores[options.block][layer - 1][head - 1][row].slice(0, columns.length);
    const products = divided.map((score) => score * Math.sqrt(width));
    const used = scaled.isChecked() ? divided : products;
    const weights = softmax(used);
    const largest = weights.indexOf(Math.max(...weights));
    const names = ["key", "q·k", scaled.isChecked() ? "÷ √" + width : "not divided", "weight"];
    table.replaceChildren(
      make("thead", {}, make("tr", {}, ...names.map((name, at) => make("th", { scope: "col", class: at ? "number" : "" }, name)))),
      make("tbody", {}, ...columns.map((token, at) => make("tr", { class: at === largest ? "marked" : "" },
        make("th", { scope: "row" }, visibleToken(token)),
        make("td", { class: "number" }, products[at].toFixed(2)), make("td", { class: "number" }, used[at].toFixed(2)),
        make("td", { class: "number bar", style: "--part: " + (100 * weights[at]).toFixed(1) + "%" }, weights[at].toFixed(3))))));
    setText(words, "The largest weights: " + weightsInWords(columns, weights) + ". The sum of all " + columns.length + " weights is "
      + weights.reduce((sum, weight) => sum + weight, 0).toFixed(2) + ".");
    link.href = lookInside(lesson, input, { block: options.block, layer, head, row: row + 1, column: largest + 1 });
  }

  return {
    async show(text) {
      const next = await request("scores", { input: text });
      if (!next) return;
      [answer, input] = [next, text];
      showRows();
      draw();
    },
  };
}
