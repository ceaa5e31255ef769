// The model as figure 1 of the paper draws it: encoder and decoder from the bottom up; each box opens.

import { make, setText } from "../../web/dom.js";

const CLASSES = { embedding: "embedding", positions: "positions", attention: "attention", norm: "norm", add: "norm",
  "feed-forward": "feed-forward", recurrent: "feed-forward", output: "output" };

/** Make the map in a viewer's elements; open(part) is called for a pressed box. Returns { show(facts, isOpen) }. */
export function makeModelMap(part, open) {
  let drawn = null;
  let boxes = [];

  function box(each) {
    const stack = each.side === "source" ? "encoder" : "decoder";
    const button = make("button", { type: "button", class: "model-part " + CLASSES[each.kind],
      "aria-label": each.label + ", " + stack + (each.layer ? " layer " + each.layer : ""), onclick: () => open(each) }, each.label);
    boxes.push({ each, button });
    return button;
  }

  /** One column, its layers framed; the first box is the lowest. */
  function stack(parts, below, above) {
    const children = [make("span", { class: "faint" }, below)];
    let frame = null;
    for (const each of parts) {
      if (!each.layer) children.push(box(each));
      else if (frame?.layer === each.layer) frame.node.append(box(each));
      else {
        frame = { layer: each.layer, node: make("div", { class: "model-layer", title: "layer " + each.layer }, box(each)) };
        children.push(frame.node);
      }
    }
    return make("div", { class: "stack" }, ...children, make("span", { class: "faint" }, above));
  }

  function draw({ size, parts }) {
    boxes = [];
    setText(part("model-size"), size + ". Press a part.");
    const source = parts.filter((each) => each.side === "source");
    const target = parts.filter((each) => each.side === "target");
    const hasEncoder = source.some((each) => each.layer || each.kind === "recurrent");
    const isAlone = !target.length; // an encoder-only model
    part("stacks").replaceChildren(
      stack(source, "input", isAlone ? "a token at each position" : hasEncoder ? "→ keys and values" : "→ read first, by the same layers"),
      ...(isAlone ? [] : [stack(target, "output so far", "next token")]));
  }

  return {
    /** Show the parts; those for which isOpen(part) is true are marked. */
    show(facts, isOpen) {
      part("model").hidden = !facts;
      if (!facts) return;
      if (drawn !== facts) draw(facts);
      drawn = facts;
      for (const { each, button } of boxes) button.setAttribute("aria-current", String(isOpen(each)));
    },
  };
}
