// The health of a run in the browser: answers are merged step by step, and dropped steps go.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyHealth, healthRows, mergeHealth } from "../../ui/components/bench/health_history.js";

const answer = (steps, added, series) => ({ steps, added, series, by_layer: false });

test("new steps are appended to those that are there", () => {
  const first = mergeHealth(emptyHealth(), answer([0, 5], [0, 5], { perplexity: { validation: [9, 4] } }));
  const both = mergeHealth(first, answer([0, 5, 10], [10], { perplexity: { validation: [2] }, change: { "cross.1.1": [0.5] } }));
  assert.deepEqual(both.steps, [0, 5, 10]);
  assert.deepEqual(both.series, { perplexity: { validation: [9, 4, 2] }, change: { "cross.1.1": [null, null, 0.5] } });
});

test("steps that are no longer saved, or that a resumed run repeats, are dropped", () => {
  const first = mergeHealth(emptyHealth(), answer([0, 5, 10, 15], [0, 5, 10, 15], { distance: { "cross.1.1": [1, 2, 3, 4] } }));
  const thinned = mergeHealth(first, answer([0, 10, 20], [20], { distance: { "cross.1.1": [5] } }));
  assert.deepEqual(thinned.series.distance["cross.1.1"], [1, 3, 5]);
  const repeated = mergeHealth(first, answer([0, 5, 10], [10], { distance: { "cross.1.1": [7] } }));
  assert.deepEqual([repeated.steps, repeated.series.distance["cross.1.1"]], [[0, 5, 10], [1, 2, 7]]);
});

test("the CSV file has a column for each figure", () => {
  const health = mergeHealth(emptyHealth(), answer([0], [0], { perplexity: { validation: [9] }, distance: { "cross.1.1": [null] } }));
  assert.deepEqual(healthRows(health), [["step", "perplexity validation", "distance cross.1.1"], [0, 9, null]]);
});
