// The doctor's findings as lights with a sentence each; they differ in shape and word, not only in color.

import { make } from "./dom.js";

const LAMPS = { red: ["■", "failed"], amber: ["▲", "warning"], green: ["●", "passed"] };

function makeLight({ check, light, sentence }) {
  const [lamp, word] = LAMPS[light];
  return make("li", { class: light },
    make("span", { class: "lamp", "aria-hidden": "true" }, lamp),
    make("span", { class: "check" }, check, make("span", { class: "state" }, " · " + word)),
    make("span", { class: "sentence" }, sentence));
}

const lightList = (findings) => make("ul", { class: "lights" }, ...findings.map(makeLight));

/** The diagnosis and the findings; passed checks are folded. `examination` is { step, titles, findings }. */
export function makeLights(examination, open = false) {
  const green = examination.findings.filter(({ light }) => light === "green");
  const others = ["red", "amber"].flatMap((wanted) => examination.findings.filter(({ light }) => light === wanted));
  const none = others.length ? "No known bug, but some checks did not pass." : "No bug found: all checks passed.";
  return make("div", {},
    make("p", { class: "verdict" }, examination.titles.length ? make("b", {}, "Diagnosis: " + examination.titles.join(", ") + ".") : none),
    lightList(others),
    green.length ? make("details", { open }, make("summary", {}, green.length + (green.length === 1 ? " check passed" : " checks passed")), lightList(green)) : null);
}
