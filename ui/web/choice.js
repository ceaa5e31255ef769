// Radio buttons in a fieldset, created and updated by script.

import { make, uniqueName } from "./dom.js";

/** Show options [[value, text]] in a fieldset; `pick(value)` is called with the visitor's choice. */
export function showChoice(fieldset, options, chosen, pick) {
  const box = fieldset.querySelector(".options");
  const key = JSON.stringify(options);
  if (box.key !== key) { // rebuilding would lose the keyboard focus
    box.key = key;
    const group = uniqueName("choice");
    box.replaceChildren(...options.map(([value, text]) => {
      const radio = make("input", { type: "radio", name: group, value, onchange: () => pick(value) });
      return make("label", { class: "option" }, radio, make("span", {}, text));
    }));
  }
  for (const radio of box.querySelectorAll("input")) radio.checked = radio.value === String(chosen);
}
