// The legend of a chart: a sample of each line beside its name.

import { DOT } from "./chart_drawing.js";
import { make } from "./dom.js";

const SAMPLE = { width: 28, height: 12 }; // pixels

function shape(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** A color for CSS: of a variable, or of a function of the theme (whether it is dark). */
function styleColor(color) {
  if (typeof color === "function") return color(document.body.classList.contains("dark"));
  return color.startsWith("--") ? "var(" + color + ")" : color;
}

/** A sample of a series' line, with its dashes and its marker. */
export function lineSample({ color, width = 2, dash = [], alpha = 1, points = false, marker = DOT }) {
  const { width: wide, height: high } = SAMPLE;
  const svg = shape("svg", { width: wide, height: high, viewBox: [0, -high / 2, wide, high].join(" "), "aria-hidden": "true" });
  const opacity = alpha < 1 ? 0.75 : 1; // fainter samples would be invisible
  svg.style.color = styleColor(color);
  svg.append(shape("path", {
    d: "M0 0H" + wide, fill: "none", stroke: "currentColor", "stroke-width": width, "stroke-dasharray": dash.join(" "), opacity,
  }));
  if (points) svg.append(shape("path", { d: marker, fill: "currentColor", transform: "translate(" + wide / 2 + ")" }));
  return svg;
}

/** Fill a list with the series that have a label. */
export function showLegend(list, series) {
  const named = series.filter((each) => each.label);
  list.hidden = named.length === 0;
  list.replaceChildren(...named.map((each) => make("li", {}, lineSample(each), make("span", {}, each.label))));
}
