// What the doctor found, as lights with a sentence each; shape and word tell them apart without colour.

const LAMPS = { red: ["■", "wrong"], amber: ["▲", "odd"], green: ["●", "as it should be"] };

function makeLight({ check, light, sentence }) {
  const [lamp, word] = LAMPS[light];
  return make("li", { class: light },
    make("span", { class: "lamp", "aria-hidden": "true" }, lamp),
    make("span", { class: "check" }, check, make("span", { class: "state" }, " · " + word)),
    make("span", { class: "said" }, sentence));
}

const lightList = (findings) => make("ul", { class: "lights" }, ...findings.map(makeLight));

/** The diagnosis, what is not green, and the rest folded away. `found` is { step, titles, findings }. */
function makeLights(found, open = false) {
  const green = found.findings.filter(({ light }) => light === "green");
  const others = ["red", "amber"].flatMap((wanted) => found.findings.filter(({ light }) => light === wanted));
  const none = others.length ? "No known bug named, but some lights are not green." : "Nothing found: all lights are green.";
  return make("div", {},
    make("p", { class: "verdict" }, found.titles.length ? make("b", {}, "Diagnosis: " + found.titles.join(", ") + ".") : none),
    lightList(others),
    green.length ? make("details", { open }, make("summary", {}, green.length + " checks found it as it should be"), lightList(green)) : null);
}
