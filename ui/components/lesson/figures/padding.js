// The input with PAD after it, decoded with or without the masks that hide PAD.

import { make, setText } from "../../../web/dom.js";
import { formatPercent, visibleToken } from "../../../web/format.js";
import { makeCheckbox, makeHeadSelect, makeHeatTable, rowInWords } from "./heat_table.js";
import { answerText } from "./orders.js";

const MOST = 6;

export function paddingFigure({ box, options, request }) {
  const mask = makeCheckbox("mask that hides PAD", true, () => ask());
  const slider = make("input", { type: "range", min: 0, max: MOST, "aria-label": "number of PAD tokens", oninput: () => ask() });
  const count = make("span", {});
  const heads = makeHeadSelect(options, () => draw());
  const result = make("p", { class: "readout", "aria-live": "polite" });
  let answer = null;
  let input = "";
  slider.value = 3;
  box.append(make("div", { class: "tools" }, make("label", {}, "PAD", slider, count), mask.node, heads.node), result);
  const table = makeHeatTable(box, { label: "cross-attention of the head, PAD included", corner: "produced ↓ key →" });

  function draw() {
    const { source, produced, expected, weights, mass_on_pad: mass } = answer;
    heads.show(weights);
    const [layer, head] = heads.chosen();
    const shown = weights[layer - 1][head - 1];
    const symbols = produced.filter((token) => token !== "<EOS>");
    const correct = expected && symbols.join(" ") === expected.join(" ");
    setText(result, "Answer: " + answerText({ produced, correct }) + ". All heads of cross-attention together have " + formatPercent(mass) + " of their attention on PAD.");
    table.show({
      rows: produced.map(visibleToken), columns: source, weights: shown, row: options.row - 1,
      inWords: (row) => rowInWords("Step " + (row + 1) + " produced " + visibleToken(produced[row]) + ".", source, shown[row]),
    });
  }

  async function ask() {
    const pads = Number(slider.value);
    setText(count, String(pads));
    answer = (await request("padding", { input, num_pad: pads, masked: mask.isChecked() })) ?? answer;
    if (answer) draw();
  }

  return {
    show(text) {
      input = text;
      return ask();
    },
  };
}
