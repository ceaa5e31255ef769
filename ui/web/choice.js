// Radio buttons in a fieldset, created and updated by script.

/** Show options [[value, text]] in the fieldset with a class; `pick(value)` is called with the visitor's choice. */
function showChoice(name, options, chosen, pick) {
  const box = part(name).querySelector(".options");
  const key = JSON.stringify(options);
  if (box.key !== key) { // rebuilding would lose the keyboard focus
    box.key = key;
    const group = uniqueName(name);
    box.replaceChildren(...options.map(([value, text]) => {
      const radio = make("input", { type: "radio", name: group, value, onchange: () => pick(value) });
      return make("label", { class: "option" }, radio, make("span", {}, text));
    }));
  }
  for (const radio of box.querySelectorAll("input")) radio.checked = radio.value === String(chosen);
}
