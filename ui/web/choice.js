// A row of radio buttons with a legend, made and kept up to date by script.

/** Show options [[value, text]] in the fieldset of a class; `pick(value)` is called when the visitor chooses. */
function showChoice(name, options, chosen, pick) {
  const place = part(name).querySelector(".options");
  const told = JSON.stringify(options);
  if (place.told !== told) { // else the one with the focus would lose it
    place.told = told;
    const group = uniqueName(name);
    place.replaceChildren(...options.map(([value, text]) => {
      const radio = make("input", { type: "radio", name: group, value, onchange: () => pick(value) });
      return make("label", { class: "option" }, radio, make("span", {}, text));
    }));
  }
  for (const radio of place.querySelectorAll("input")) radio.checked = radio.value === String(chosen);
}
