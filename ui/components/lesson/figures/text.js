// The map of one head of a decoder-only model between all tokens of its text: the source, then the answer.

import { make, setText } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";
import { lookInside, makeHeadSelect, makeHeatTable, rowInWords } from "./heat_table.js";

export function textFigure({ box, options, lesson, request }) {
  const heads = makeHeadSelect(options, () => draw());
  const link = make("a", {});
  let answer = null;
  let input = "";
  box.append(make("div", { class: "tools" }, heads.node, link));
  const table = makeHeatTable(box, { label: "attention weights of the head between all tokens", corner: "query ↓ key →" });

  /** "The token a (row 10) is read by the step that produces d." */
  function readBy(row) {
    const step = row - answer.source_length;
    return "The token " + visibleToken(answer.tokens[row]) + " (row " + (row + 1) + ") is "
      + (step < 0 ? "part of the input." : "read by step " + (step + 1) + ", which produces “" + visibleToken(answer.produced[step]) + "”.");
  }

  function draw() {
    heads.show(answer.weights);
    const [layer, head] = heads.chosen();
    const weights = answer.weights[layer - 1][head - 1];
    table.show({
      rows: answer.tokens.map(visibleToken), columns: answer.tokens, weights, row: options.row - 1,
      inWords: (row) => rowInWords(readBy(row), answer.tokens.slice(0, row + 1), weights[row].slice(0, row + 1)),
    });
    link.href = lookInside(lesson, input, { block: options.block, layer, head });
    setText(link, "Open this head in Look inside");
  }

  return {
    async show(text) {
      const next = await request("text", { input: text });
      if (!next) return;
      [answer, input] = [next, text];
      draw();
    },
  };
}
