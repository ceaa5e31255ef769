// A vector as a strip of colored cells: one color for positive numbers, one for negative, white (dark: the paper) for 0.

import { prepareCanvas } from "./canvas.js";
import { signedColor } from "./colors.js";
import { make } from "./dom.js";
import { formatNumber } from "./format.js";

const HEIGHT = 16;

/** A canvas as wide as its box, one cell per number; `most` is the number with the full color. */
export function makeStrip(numbers, most, label) {
  const canvas = make("canvas", { class: "strip", role: "img", "aria-label": label + ": " + numbers.length + " numbers" });
  const draw = () => {
    const width = canvas.parentElement?.clientWidth ? canvas.getBoundingClientRect().width : 0;
    if (!width) return;
    const context = prepareCanvas(canvas, width, HEIGHT);
    canvas.style.width = ""; // the style sheet stretches it
    const cell = width / numbers.length;
    const gap = cell >= 6 ? 1 : 0;
    numbers.forEach((number, at) => {
      context.fillStyle = signedColor((number ?? 0) / most);
      context.fillRect(at * cell, 0, cell - gap, HEIGHT);
    });
  };
  canvas.addEventListener("pointermove", (event) => {
    const at = Math.min(numbers.length - 1, Math.floor((event.offsetX / canvas.clientWidth) * numbers.length));
    canvas.title = label + ", dimension " + (at + 1) + " of " + numbers.length + ": " + formatNumber(numbers[at]);
  });
  requestAnimationFrame(draw);
  return canvas;
}
