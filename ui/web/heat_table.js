// A table of numbers with cells colored by sign and size.

import { signedColor } from "./colors.js";
import { make } from "./dom.js";
import { formatNumber, isolated, visibleToken } from "./format.js";

const MOST_WITH_NUMBERS = 16; // columns that have room for numbers

/** Black or white, whichever has more contrast with a color [red, green, blue]. */
export function blackOrWhite(color) {
  const [red, green, blue] = color.map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/**
 * A table of values[row][column] with labels; `most` is the number with the full color. `format` writes a cell,
 * `outlined[row][column]` marks some. The label of the corner describes the rows.
 */
export function makeHeatTable({ rows, columns, values, most = 1, format = formatNumber, outlined = null, corner = "", label }) {
  const withNumbers = columns.length <= MOST_WITH_NUMBERS;
  const cell = (value, row, column) => {
    const share = (value ?? 0) / most;
    const isMarked = outlined?.[row][column];
    const color = signedColor(share);
    return make("td", {
      class: isMarked ? "marked" : false,
      style: "background: " + color + "; color: " + blackOrWhite(color.match(/\d+/g).map(Number)),
      title: isolated(rows[row]) + ", " + isolated(visibleToken(columns[column])) + ": " + formatNumber(value),
    }, withNumbers ? format(value) : "");
  };
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    make("table", { class: withNumbers ? "heat" : "heat small" },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, corner), ...columns.map((name) => make("th", { scope: "col" }, visibleToken(name))))),
      make("tbody", {}, ...values.map((row, at) => make("tr", {}, make("th", { scope: "row" }, rows[at]),
        ...row.map((value, column) => cell(value, at, column)))))));
}
