// One line of text: a status or an error.

import { setText, partsOf } from "../../web/dom.js";

export function mount({ element, props, watch }) {
  const part = partsOf(element);

  function show() {
    const value = props.value ?? {};
    const line = part("notice");
    line.hidden = !value.text;
    line.className = value.problem ? "notice bad" : "notice muted";
    setText(line, (value.problem ? "✗ " : "") + (value.text ?? ""));
  }

  show();
  watch("value", show);
}
