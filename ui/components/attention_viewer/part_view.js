// What a part of the model computes for the current decode: the vectors of each token, and how similar they are.

import { make } from "../../web/dom.js";
import { formatNumber, formatPercent, isolated, visibleToken } from "../../web/format.js";
import { makeHeatTable } from "../../web/heat_table.js";
import { drawThumbnail } from "../../web/small_map.js";
import { makeStrip } from "../../web/strip.js";

const NAMES = { before: "Residual stream before", added: "What the sublayer adds", activations: "Activations", after: "After" };
const SIDE = 96; // pixels of a map

const section = (title, ...children) => make("section", { class: "step" }, make("h4", {}, make("b", {}, title)), ...children);

function vectorsOf({ name, rows }, tokens, width, inNumbers) {
  const most = Math.max(1e-9, ...rows.flat().map((each) => Math.abs(each ?? 0)));
  const shown = rows[0].length;
  const title = NAMES[name] + " (" + (shown < width && name !== "activations" ? "the first " + shown + " of " + width : shown) + " numbers a token)";
  if (inNumbers) {
    return section(title, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      make("table", { class: "numbers" }, make("tbody", {}, ...rows.map((row, at) => make("tr", {},
        make("th", { scope: "row" }, visibleToken(tokens[at])), ...row.map((each) => make("td", {}, formatNumber(each)))))))));
  }
  return section(title, make("div", { class: "strips" }, ...rows.flatMap((row, at) => [
    make("span", { class: "strip-label", title: visibleToken(tokens[at]) }, visibleToken(tokens[at])),
    makeStrip(row, most, visibleToken(tokens[at])),
    make("span", { class: "strip-end" }, "length " + formatNumber(Math.hypot(...row.map((each) => each ?? 0)))),
  ])));
}

function similarityOf(matrix, tokens) {
  const names = tokens.slice(0, matrix.length).map(visibleToken);
  const title = "How similar they are (cosine, −1 to 1)";
  return section(title, makeHeatTable({ rows: names, columns: names, values: matrix, format: (value) => (value ?? 0).toFixed(2), label: title }));
}

function patternsOf(patterns) {
  return section("The first layer's heads, computed from positions alone",
    make("p", { class: "soft" }, "Weights of the first self-attention if every token embedding were zero: rows are queries, columns keys."),
    make("div", { class: "position-maps" }, ...patterns.map((weights, at) => {
      const canvas = make("canvas", { role: "img", "aria-label": "head " + (at + 1) + ", positions alone" });
      drawThumbnail(canvas, weights, SIDE);
      return make("figure", {}, canvas, make("figcaption", { class: "faint" }, "head " + (at + 1)));
    })));
}

function answersOf(rows, tokens, isSource) {
  return section(isSource ? "The most likely tokens at each position" : "The most likely next tokens, step by step", make("div", { class: "answers" }, ...rows.map((row, at) => make("div", { class: "chips" },
    make("span", { class: "strip-label", title: visibleToken(tokens[at]) }, (isSource ? "at " : "after ") + visibleToken(tokens[at])),
    ...row.map(({ token, logit, probability }, best) => make("span", { class: best ? "chip" : "chip win" }, make("b", {}, isolated(visibleToken(token))),
      " " + formatPercent(probability), make("span", { class: "muted" }, " logit " + formatNumber(logit))))))));
}

/** The elements for a server's answer; `tokens` are the names of those of the part's side. */
export function partSections(answer, tokens, inNumbers) {
  const more = answer.num_rows > (answer.vectors[0]?.rows.length ?? answer.answers.length)
    ? make("p", { class: "soft" }, "The first " + (answer.vectors[0]?.rows.length ?? answer.answers.length) + " of " + answer.num_rows + " tokens.") : null;
  return [
    ...(more ? [more] : []),
    ...(answer.answers ? [answersOf(answer.answers, tokens, answer.part.side === "source")] : []),
    ...answer.vectors.map((each) => vectorsOf(each, tokens, answer.width, inNumbers)),
    ...(answer.patterns ? [patternsOf(answer.patterns)] : []),
    ...(answer.similarity ? [similarityOf(answer.similarity, tokens)] : []),
  ];
}
