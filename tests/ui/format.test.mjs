import assert from "node:assert/strict";
import test from "node:test";

import { formatResult, formatPercents } from "../../ui/web/format.js";

test("a translation shows BLEU by its name, other runs exact match, and unmeasured ones nothing", () => {
  const quality = { bleu: 23.649, chrf: 51.6, bleu_name: "BLEU" };
  assert.equal(formatResult({ quality, exact_match: 0.003 }), "BLEU 23.6");
  assert.equal(formatResult({ quality: { ...quality, bleu_name: "character BLEU" }, exact_match: 1 }), "character BLEU 23.6");
  assert.equal(formatResult({ quality: null, exact_match: 0.9912 }, 2), "99.12 %");
  assert.equal(formatResult({ quality: null, exact_match: null }), "");
});

test("two fractions that differ are printed differently", () => {
  assert.deepEqual(formatPercents(0.87, 0.86), ["87.0 %", "86.0 %"]);
  assert.deepEqual(formatPercents(0.99991, 0.99993), ["99.991 %", "99.993 %"]);
  assert.deepEqual(formatPercents(0.5, 0.5), ["50.0 %", "50.0 %"]);
});
