// The decoder's self-attention over a whole answer, with or without the causal mask, and which steps notice another last token.

import { make, setText } from "../../../web/dom.js";
import { formatPercent, visibleToken } from "../../../web/format.js";
import { makeCheckbox, makeHeadSelect, makeHeatTable, rowInWords } from "./heat_table.js";

export function causalFigure({ box, options, request }) {
  const mask = makeCheckbox("causal mask", true, () => ask());
  const heads = makeHeadSelect(options, () => draw());
  let answer = null;
  let input = "";
  box.append(make("div", { class: "tools" }, mask.node, heads.node));
  const table = makeHeatTable(box, { label: "decoder self-attention, all steps read together", corner: "query ↓ key →" });
  const note = make("p", {});
  const changes = make("table", { class: "changes" });
  box.append(note, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "change of each step" }, changes));

  function draw() {
    const { read, produced, weights, changes: moved, changed_to: other } = answer;
    heads.show(weights);
    const [layer, head] = heads.chosen();
    const shown = weights[layer - 1][head - 1];
    table.show({
      rows: read.map(visibleToken), columns: read, weights: shown, row: options.row - 1,
      inWords: (row) => rowInWords("Step " + (row + 1) + " reads " + visibleToken(read[row]) + ".", read, shown[row]),
    });
    setText(note, "Now the last token of the decoder input, " + visibleToken(read.at(-1)) + ", becomes " + visibleToken(other) + ". How far do the probabilities of each step move?");
    changes.replaceChildren(
      make("thead", {}, make("tr", {}, ...["step", "reads", "predicts", "moves by"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...read.map((token, at) => make("tr", {}, make("th", { scope: "row" }, String(at + 1)), make("td", {}, visibleToken(token)),
        make("td", {}, visibleToken(produced[at])), make("td", { class: "number" }, formatPercent(moved[at], 2))))));
  }

  async function ask() {
    answer = (await request("causality", { input, masked: mask.isChecked() })) ?? answer;
    if (answer) draw();
  }

  return {
    show(text) {
      input = text;
      return ask();
    },
  };
}
