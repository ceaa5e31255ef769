// What the preset in the form takes to train, or that another one is opening.
// Event: 'due' {} while the training time of the shown preset is not known.

import { setText, partsOf } from "../../web/dom.js";

const SOON_MS = 100; // Gradio sets the form's other fields a moment after this value
const AGAIN_MS = 2500; // a bit more than the server waits for a measurement, see ui/forms/preset_form.py

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);
  let shown = null; // key of the shown preset
  let timer = 0;

  function ask(wait) {
    timer = setTimeout(() => {
      trigger("due", {});
      ask(AGAIN_MS);
    }, wait);
  }

  function show() {
    const value = props.value ?? {};
    if (value.answer && value.preset !== shown) return; // the form holds another preset by now
    shown = value.preset ?? null;
    clearTimeout(timer);
    if (value.pending) ask(SOON_MS);
    const text = value.opening ? "Opening " + value.opening + " …" : value.text ?? "";
    const line = part("summary");
    line.hidden = !text;
    line.className = value.problem ? "summary bad" : "summary muted";
    line.classList.toggle("not-open", Boolean(value.opening || value.unopened)); // the form shows an earlier preset
    setText(line, (value.problem ? "✗ " : "") + text);
  }

  show();
  watch("value", show);
}
