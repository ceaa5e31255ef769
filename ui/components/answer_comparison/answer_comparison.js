// Several outputs for one input, one per row; the tokens that differ from the first row are marked.

import { make, setText, partsOf } from "../../web/dom.js";
import { visibleToken } from "../../web/format.js";

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  const tokensOf = (row) => [...(row.words ?? row.output.map(visibleToken)), row.stopped ? "<EOS>" : "…"];

  function makeRow(row, first) {
    const tokens = tokensOf(row);
    const others = tokensOf(first);
    const tiles = tokens.map((token, at) => make("span", { class: token === others[at] ? "tile" : "tile differs" },
      token, token === others[at] ? null : make("span", { class: "visually-hidden" }, " (differs)")));
    const text = row.words ? (row.correct ? "✓ as the reference" : "") : row.correct ? "✓ correct" : "✗ wrong";
    const verdict = make("span", { class: row.correct ? "good" : "bad" }, row.correct == null ? "" : text);
    const logProb = row.log_prob == null ? null : make("span", { class: "muted" }, " · log P " + row.log_prob.toFixed(3));
    return make("div", { class: "row" },
      make("span", { class: "label" }, row.label),
      make("div", { class: "tiles" }, ...tiles),
      make("span", { class: "metrics" }, verdict, logProb));
  }

  /** Show a text in a node, which is hidden without one. */
  function showText(node, text) {
    node.hidden = !text;
    setText(node, text ?? "");
  }

  function show() {
    const value = props.value?.rows?.length ? props.value : null;
    part("shown").hidden = value === null;
    if (!value) return;
    showText(part("heading"), value.heading);
    showText(part("note"), value.note);
    showText(part("button"), value.button);
    part("rows").replaceChildren(...value.rows.map((row) => makeRow(row, value.rows[0])));
  }

  part("button").addEventListener("click", () => trigger("press", {}));
  show();
  watch("value", show);
}
