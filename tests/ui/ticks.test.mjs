import assert from "node:assert/strict";
import test from "node:test";

import { linearTicks, logTicks, tickText } from "../../ui/web/ticks.js";

test("ticks of a linear axis are round and inside", () => {
  assert.deepEqual(linearTicks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(linearTicks(0, 2000, 4), [0, 500, 1000, 1500, 2000]);
  assert.deepEqual(linearTicks(307, 1205, 4), [500, 1000]);
  assert.deepEqual(linearTicks(-0.3, 0.3, 3), [-0.2, 0, 0.2]);
});

test("ticks are at least as far apart as asked: steps are whole numbers", () => {
  assert.deepEqual(linearTicks(3, 5, 8, 1), [3, 4, 5]);
});

test("ticks of a log axis are powers of ten, with 2 and 5 between them if they are few", () => {
  assert.deepEqual(logTicks(0.001, 1), [0.001, 0.01, 0.1, 1]);
  assert.deepEqual(logTicks(0.04, 0.6), [0.05, 0.1, 0.2, 0.5]);
  assert.ok(logTicks(1e-12, 1, 6).length <= 7);
  assert.ok(logTicks(0.31, 0.39).length >= 2);
});

test("labels of ticks are short", () => {
  assert.deepEqual([0, 0.05, 0.00002, 1, 12500, 2000].map(tickText), ["0", "0.05", "2e-5", "1", "12.5k", "2000"]);
});
