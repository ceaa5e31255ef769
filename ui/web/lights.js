// The doctor's findings as lights with a sentence each; they differ in shape and word, not only in color.

import { make } from "./dom.js";

const LAMPS = { red: ["■", "failed"], amber: ["▲", "warning"], green: ["●", "passed"], gray: ["○", "not checked"] };

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
  const [green, gray, ...others] = ["green", "gray", "red", "amber"].map((wanted) => examination.findings.filter(({ light }) => light === wanted));
  const alarms = others.flat();
  return make("div", {},
    make("p", { class: "verdict" }, examination.titles.length ? make("b", {}, "Diagnosis: " + examination.titles.join(", ") + ".") : withoutBug(alarms, green, gray)),
    lightList([...alarms, ...gray]),
    green.length ? make("details", { open }, make("summary", {}, countOf(green, "passed")), lightList(green)) : null);
}

const countOf = ({ length }, what) => length + (length === 1 ? " check " : " checks ") + what;

function withoutBug(alarms, green, gray) {
  if (alarms.length) return "No known bug, but some checks did not pass.";
  if (!gray.length) return "No bug found: all checks passed.";
  return "No bug found: " + countOf(green, "passed") + ", " + gray.length + (gray.length === 1 ? " was" : " were") + " not made.";
}
