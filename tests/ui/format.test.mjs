import assert from "node:assert/strict";
import test from "node:test";

import { fileName } from "../../ui/web/files.js";
import { formatResult, formatPercents, isolated, startText } from "../../ui/web/format.js";

test("a run shows the figures that decide by their names, the first first, and an unmeasured one nothing", () => {
  const bleu = { measure: "bleu", name: "character BLEU", value: 23.649 };
  const exact = { measure: "exact_match", name: "exact match", value: 0.9912 };
  assert.equal(formatResult({ headline: [bleu] }), "character BLEU 23.6");
  assert.equal(formatResult({ headline: [exact, bleu] }, 2), "exact match 99.12 %, character BLEU 23.6");
  assert.equal(formatResult({ headline: [{ measure: "error_rate", name: "WER", value: 0.25 }] }), "WER 25.0 %");
  assert.equal(formatResult({ headline: [{ measure: "perplexity", name: "perplexity", value: 4.314 }] }), "perplexity 4.31");
  assert.equal(formatResult({ headline: [] }), "");
});

test("two fractions that differ are printed differently", () => {
  assert.deepEqual(formatPercents(0.87, 0.86), ["87.0 %", "86.0 %"]);
  assert.deepEqual(formatPercents(0.99991, 0.99993), ["99.991 %", "99.993 %"]);
  assert.deepEqual(formatPercents(0.5, 0.5), ["50.0 %", "50.0 %"]);
});

test("what starts within a second starts now", () => {
  assert.equal(startText(0.4), "starts now");
  assert.equal(startText(5), "starts in about 5 s");
});

test("only a text that is written from right to left is isolated", () => {
  assert.equal(isolated("9 2 8 ä ▁Haus"), "9 2 8 ä ▁Haus");
  for (const text of ["שלום", "السلام 12", "▁ש", "a\u202eb"]) assert.equal(isolated(text), "\u2068" + text + "\u2069");
});

test("a long file name keeps its beginning and its end", () => {
  assert.equal(fileName("Tom’s run, layer 1", "csv"), "tom-s-run-layer-1.csv");
  assert.equal(fileName("→", "csv"), "attention-lab.csv");
  const long = (head) => fileName("run without cross.1 " + "4 8 ".repeat(100) + "layer 2 of 2, head " + head, "png");
  assert.match(long(1), /^run-without-cross-1-4-8-.{150,}-layer-2-of-2-head-1\.png$/);
  assert.ok(long(1).length <= 204);
  assert.notEqual(long(1), long(4));
});
