// One head's map small, with its name and its score under it: what stands in a button or beside a radio.

/** { nodes, show }: the elements, and a function that puts another head's map and score into them. */
function makeThumbnail(side) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const label = make("span", { class: "head-label" });
  const score = make("span", { class: "score" });
  return {
    nodes: [make("span", { class: "picture" }, canvas), label, score],
    show(head) {
      drawThumbnail(canvas, head.weights, side);
      setText(label, "head " + head.head);
      setText(score, head.label ?? "");
      score.hidden = !head.label;
    },
  };
}

/** What a score is to be compared with. */
function uniformSentence(uniform) {
  return uniform == null ? "" : "Looking everywhere equally would score " + uniform.toFixed(2) + ".";
}
