// A thumbnail of one head: its map, name and score.

import { drawThumbnail } from "./attention_map.js";
import { make, setText } from "./dom.js";

/** { nodes, show }: the elements, and a function that shows a head in them. */
export function makeThumbnail(side) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const label = make("span", { class: "head-label" });
  const score = make("span", { class: "score" });
  return {
    nodes: [make("span", { class: "picture" }, canvas), label, score],
    show(head) {
      drawThumbnail(canvas, head.weights, side);
      setText(label, (head.ablated ? "✕ " : "") + "head " + head.head);
      label.classList.toggle("ablated", Boolean(head.ablated));
      setText(score, head.label ?? "");
      score.hidden = !head.label;
    },
  };
}

/** The score of uniform attention, for comparison. */
export function uniformSentence(uniform) {
  return uniform == null ? "" : "Uniform attention would score " + uniform.toFixed(2) + ".";
}
