// How similar the vectors of each two tokens are, at a stage on their way through the encoder.

import { showChoice } from "../../../web/choice.js";
import { make } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";
import { makeHeatTable } from "./heat_table.js";

const STAGES = { embedding: "embedding", position: "position", sum: "embedding + position", encoder: "encoder output" };

export function similarityFigure({ box, options, request }) {
  const choice = make("fieldset", { class: "tools" }, make("legend", { class: "visually-hidden" }, "vectors to compare"), make("div", { class: "options tools" }));
  let stage = options.stage;
  let answer = null;
  box.append(choice);
  const table = makeHeatTable(box, { label: "cosine similarity of the tokens' vectors", corner: "cosine" });

  function draw() {
    const { tokens, similarity } = answer;
    const names = tokens.map((token, at) => (stage === "position" ? "position " + at : visibleToken(token)));
    const columns = tokens.map((token, at) => (stage === "position" ? String(at) : token));
    showChoice(choice, Object.keys(similarity).map((each) => [each, STAGES[each]]), stage, pick);
    table.show({
      rows: names, columns, weights: similarity[stage], row: options.row - 1,
      inWords(row) {
        const others = similarity[stage][row].map((value, at) => [value, at]).filter(([, at]) => at !== row).sort(([a], [b]) => b - a);
        const [[most, at]] = others;
        const [least, far] = others.at(-1);
        const name = (each) => names[each] + (stage === "position" ? "" : " (token " + (each + 1) + ")");
        return name(row) + " is most similar to " + name(at) + ", cosine " + most.toFixed(2) + ", and least to " + name(far) + ", " + least.toFixed(2) + ".";
      },
    });
  }

  function pick(next) {
    stage = next;
    draw();
  }

  return {
    async show(input) {
      answer = (await request("vectors", { input })) ?? answer;
      if (answer) draw();
    },
  };
}
