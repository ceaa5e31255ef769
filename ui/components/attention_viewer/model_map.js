// The model as figure 1 of the paper draws it: encoder and decoder from the bottom up; each box opens.

import { make, setText } from "../../web/dom.js";

const CLASSES = { embedding: "embedding", positions: "positions", attention: "attention", norm: "norm", add: "norm",
  "feed-forward": "feed-forward", recurrent: "feed-forward", output: "output" };

const SHALLOW = 3; // layers that are drawn with all their parts

/** Make the map in a viewer's elements; open(part) is called for a pressed box. Returns { show(facts, isOpen) }. */
export function makeModelMap(part, open) {
  let drawn = null;
  let boxes = [];
  let frames = []; // of the layers; in a deep model only those that the user opened, or that have the open part, show it

  function box(each) {
    const stack = each.side === "source" ? "encoder" : "decoder";
    const button = make("button", { type: "button", class: "model-part " + CLASSES[each.kind],
      "aria-label": each.label + ", " + stack + (each.layer ? " layer " + each.layer : ""), onclick: () => open(each) }, each.label);
    boxes.push({ each, button });
    return button;
  }

  function makeFrame(layer, stack) {
    const frame = { layer, isOpen: false, node: make("div", { class: "model-layer", title: "layer " + layer }) };
    frame.fold = make("button", { type: "button", class: "model-fold", "aria-label": stack + " layer " + layer,
      onclick: () => { frame.isOpen = frame.node.classList.contains("folded"); setFolded(frame, !frame.isOpen); } }, "layer " + layer);
    frames.push(frame);
    return frame;
  }

  function setFolded({ node, fold }, folded) {
    node.classList.toggle("folded", folded);
    fold.setAttribute("aria-expanded", String(!folded));
  }

  /** One column, its layers framed; the first box is the lowest. */
  function stack(parts, below, above) {
    const children = [make("span", { class: "faint" }, below)];
    let frame = null;
    for (const each of parts) {
      if (!each.layer) children.push(box(each));
      else if (frame?.layer === each.layer) frame.node.append(box(each));
      else {
        frame = makeFrame(each.layer, each.side === "source" ? "encoder" : "decoder");
        frame.node.append(box(each));
        children.push(frame.node);
      }
    }
    for (const { node, fold } of frames) node.append(fold); // the highest
    return make("div", { class: "stack" }, ...children, make("span", { class: "faint" }, above));
  }

  function draw({ size, parts }) {
    boxes = [];
    frames = [];
    part("stacks").classList.toggle("deep", isDeep(parts));
    const [before, after] = (size + ". Press a part.").split("d_model");
    part("model-size").replaceChildren(before, ...(after ? [make("span", { "data-term": "d_model" }, "d_model"), after] : []));
    const source = parts.filter((each) => each.side === "source");
    const target = parts.filter((each) => each.side === "target");
    const hasEncoder = source.some((each) => each.layer || each.kind === "recurrent");
    const isAlone = !target.length; // an encoder-only model
    part("stacks").replaceChildren(
      stack(source, "input", isAlone ? "a token at each position" : hasEncoder ? "→ keys and values" : "→ read first, by the same layers"),
      ...(isAlone ? [] : [stack(target, "output so far", "next token")]));
  }

  const isDeep = (parts) => parts.some((each) => each.layer > SHALLOW);

  return {
    /** Show the parts; those for which isOpen(part) is true are marked. */
    show(facts, isOpen) {
      part("model").hidden = !facts;
      if (!facts) return;
      if (drawn !== facts) draw(facts);
      drawn = facts;
      for (const { each, button } of boxes) button.setAttribute("aria-current", String(isOpen(each)));
      for (const frame of frames) {
        const isShown = frame.isOpen || !isDeep(facts.parts) || frame.node.querySelector("[aria-current='true']");
        setFolded(frame, !isShown);
      }
    },
  };
}
