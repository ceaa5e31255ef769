// A thumbnail of one head: its map, name and score.

import { make, setText } from "./dom.js";
import { headName } from "./format.js";
import { MARKS } from "./head_marks.js";
import { drawThumbnail } from "./small_map.js";

/** { nodes, show }: the elements, and a function that shows a head in them. */
export function makeThumbnail(side) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const label = make("span", { class: "head-label" });
  const score = make("span", { class: "score" });
  const mark = make("span", { class: "mark-word" });
  return {
    nodes: [make("span", { class: "picture" }, canvas), label, score, mark],
    show(head) {
      drawThumbnail(canvas, head.weights, side);
      setText(label, (head.ablated ? "✕ " : "") + "head " + head.head);
      label.classList.toggle("ablated", Boolean(head.ablated));
      setText(score, head.label ?? "");
      score.hidden = !head.label;
      setText(mark, head.mark ?? "");
      mark.title = MARKS[head.mark] ?? "";
      mark.hidden = !head.mark;
    },
    /** Show only the head's number, and the rest when it is pointed at. */
    shorten(head, element) {
      setText(label, (head.ablated ? "✕" : "") + head.head);
      score.hidden = mark.hidden = true;
      element.title = [headName(head), head.label, head.mark].filter(Boolean).join(" · ");
    },
  };
}

/** The score of uniform attention, for comparison. */
export function uniformSentence(uniform) {
  return uniform == null ? "" : "Uniform attention would score " + uniform.toFixed(2) + ".";
}
