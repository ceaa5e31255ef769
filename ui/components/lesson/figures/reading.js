// Reading along: a sentence above its translation, with lines between the words. The figure has an input of its own.

import { make } from "../../../web/dom.js";
import { ribbon } from "../../../web/ribbon.js";
import { lookInside } from "./heat_table.js";

export function readingFigure({ box, options, request }) {
  const field = make("input", { type: "text", maxlength: 200, spellcheck: "false", autocomplete: "off", "aria-label": "sentence" });
  const words = make("div", {});
  const link = make("a", {}, "Open this sentence in Look inside");
  const draw = ribbon(words);
  let wanted = null;
  field.value = options.input;

  async function translate() {
    const text = field.value;
    if (text === wanted) return;
    wanted = text;
    const answer = await request("reading", { input: text });
    if (text !== wanted) return;
    if (!answer) wanted = null; // the same sentence may be asked for again
    else draw(answer.record, { probabilities: answer.probabilities });
    link.href = lookInside(options, text, { block: "cross" });
  }

  function use(event) {
    event.preventDefault();
    translate();
  }

  box.append(make("form", { class: "tools", onsubmit: use }, field, make("button", { type: "submit" }, "Translate"),
    make("span", { class: "muted" }, "computed now by " + options.run)), words, make("p", { class: "links" }, link));
  return { show: translate }; // whatever the input of the other figures is
}
