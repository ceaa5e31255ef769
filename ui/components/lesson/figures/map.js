// The map of one head for the input; a row can be read in words.

import { make, setText } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";
import { lookInside, makeHeadSelect, makeHeatTable, rowInWords } from "./heat_table.js";

export function mapFigure({ box, options, lesson, request }) {
  const heads = makeHeadSelect(options, () => draw());
  const link = make("a", {});
  let answer = null;
  let input = "";
  box.append(make("div", { class: "tools" }, heads.node, link));
  const table = makeHeatTable(box, { label: "attention weights of the head", corner: options.block === "encoder" ? "query ↓ key →" : "produced ↓ key →", onRow: showLink });

  /** Link to the head or, of a marked row, to the arithmetic of its largest weight. */
  function showLink(row) {
    const [layer, head] = heads.chosen();
    const weights = answer.weights[options.block][layer - 1][head - 1];
    const cell = row === null ? {} : { row: row + 1, column: weights[row].indexOf(Math.max(...weights[row])) + 1 };
    link.href = lookInside(lesson, input, { block: options.block, layer, head, ...cell });
    setText(link, row === null ? "Open this head in Look inside" : "Open the row's largest weight in Look inside");
  }

  function draw() {
    const { weights, source, read, produced } = answer;
    heads.show(weights[options.block]);
    const [layer, head] = heads.chosen();
    const shown = weights[options.block][layer - 1][head - 1];
    const columns = options.block === "decoder" ? read : source;
    table.show({
      rows: (options.block === "encoder" ? source : produced).map(visibleToken), columns, weights: shown, row: options.row - 1,
      inWords: (row) => rowInWords(options.block === "encoder"
        ? "The query of " + visibleToken(source[row]) + " (row " + (row + 1) + ")."
        : "Step " + (row + 1) + " produced " + visibleToken(produced[row]) + " after reading " + visibleToken(read[row]) + ".", columns, shown[row]),
    });
  }

  return {
    async show(text) {
      const next = await request("decode", { input: text });
      if (!next) return;
      [answer, input] = [next, text];
      draw();
    },
  };
}
