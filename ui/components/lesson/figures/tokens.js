// The tokens of the input with their ids and their vectors, each number as a colored cell.

import { onAppearanceChange, prepareCanvas, themeColors } from "../../../web/canvas.js";
import { attentionColor } from "../../../web/colors.js";
import { make } from "../../../web/dom.js";
import { visibleToken } from "../../../web/format.js";

const SHOWN = 4; // numbers of a vector that are written out

/** Draw a vector as a strip: the larger a number's size, the stronger its color; a line above positive ones. */
function drawVector(canvas, vector, most) {
  const cell = innerWidth < 760 ? 3 : 5; // pixels
  const context = prepareCanvas(canvas, cell * vector.length, 16);
  const accent = themeColors().accent;
  vector.forEach((value, at) => {
    context.fillStyle = "rgb(" + attentionColor(Math.abs(value) / most) + ")";
    context.fillRect(at * cell, 2, cell, 14);
    context.fillStyle = accent;
    if (value > 0) context.fillRect(at * cell, 0, cell, 2);
  });
}

export function tokensFigure({ box, request }) {
  const table = make("table", { class: "vectors" });
  let shown = [];
  box.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "tokens, ids and vectors" }, table),
    make("p", { class: "muted" }, "One colored cell per number of the vector: a stronger color is farther from 0, a line above it says that it is positive. Equal tokens have equal strips."));

  function draw() {
    const most = Math.max(...shown.flatMap(({ vector }) => vector.map(Math.abs)));
    for (const { canvas, vector } of shown) drawVector(canvas, vector, most);
  }

  onAppearanceChange(box, draw);
  return {
    async show(input) {
      const answer = await request("vectors", { input });
      if (!answer) return;
      const { tokens, ids, vectors } = answer;
      shown = vectors.map((vector) => ({ vector, canvas: make("canvas", { "aria-hidden": "true" }) }));
      const begins = (vector) => vector.slice(0, SHOWN).map((value) => value.toFixed(2)).join("  ") + "  …";
      table.replaceChildren(
        make("thead", {}, make("tr", {}, ...["token", "id", "its vector of " + vectors[0].length + " numbers"].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...tokens.map((token, at) => make("tr", {}, make("th", { scope: "row" }, visibleToken(token)),
          make("td", { class: "number" }, String(ids[at])), make("td", {}, shown[at].canvas, make("code", {}, begins(vectors[at])))))));
      draw();
    },
  };
}
