import assert from "node:assert/strict";
import test from "node:test";

import {
  allX, drawnPoints, nearestPoint, spread, stepX, valueRange, visiblePart, zoomedRange,
} from "../../ui/web/chart_data.js";
import { joinGroup } from "../../ui/web/chart_group.js";

const line = (x, y) => ({ x, y, low: null, high: null });
const whole = { from: 0, to: 10, log: false, zoomed: false };

test("points without a finite value are not drawn, nor those that a log axis cannot show", () => {
  const given = { x: [1, 2, 3, 4, 5], y: [0.5, null, NaN, 0, -1] };
  assert.deepEqual(drawnPoints(given, false), line([1, 4, 5], [0.5, 0, -1]));
  assert.deepEqual(drawnPoints(given, true), line([1], [0.5]));
  assert.deepEqual(drawnPoints(undefined, false), line([], []));
});

test("a point keeps its band, and has none where an edge is missing", () => {
  const given = { x: [1, 2], y: [3, 4], low: [2, null], high: [4, 5] };
  assert.deepEqual(drawnPoints(given, false), { x: [1, 2], y: [3, 4], low: [2, null], high: [4, 5] });
});

test("the visible part has a neighbor on each side, so that lines reach the edge", () => {
  assert.deepEqual(visiblePart({ x: [0, 10, 20, 30, 40] }, 15, 25), [1, 3]);
  assert.deepEqual(visiblePart({ x: [0, 10, 20] }, -5, 50), [0, 2]);
  assert.deepEqual(visiblePart({ x: [] }, 0, 1), [0, -1]);
});

test("a linear axis holds all values with some room and begins at 0", () => {
  assert.deepEqual(valueRange([line([1, 2], [3, 20])], whole), [0, 21]);
  const [low, high] = valueRange([line([1, 2], [-1, 1])], whole);
  assert.ok(low < -1 && high > 1);
});

test("a zoomed axis fits what is visible", () => {
  const [low, high] = valueRange([line([0, 4, 5, 6, 10], [90, 3, 4, 5, 80])], { from: 5, to: 5, log: false, zoomed: true });
  assert.ok(low > 3.5 && low < 4 && high > 5 && high < 5.5);
});

test("bands are inside the axis; on a log axis only their upper edges, because the lower may be negative", () => {
  const banded = { x: [1], y: [4], low: [-2], high: [9] };
  const [low, high] = valueRange([banded], whole);
  assert.ok(low < -2 && high > 9);
  const [least, most] = valueRange([banded], { ...whole, log: true });
  assert.ok(least > 0 && least < 4 && most > 9);
});

test("without values, the axis has a range all the same", () => {
  assert.deepEqual(valueRange([line([], [])], whole), [0, 1]);
  assert.deepEqual(valueRange([], { ...whole, log: true }), [0.1, 1]);
});

test("one constant value has a range of more than nothing", () => {
  for (const log of [false, true]) {
    const [low, high] = valueRange([line([1, 2], [5, 5])], { ...whole, log });
    assert.ok(low < 5 && high > 5);
  }
});

test("lines of different x share one axis", () => {
  assert.deepEqual(allX([line([1, 5, 9], []), line([5, 20], [])]), [1, 5, 9, 20]);
});

test("the nearest point of each line is read", () => {
  assert.deepEqual(nearestPoint(line([0, 50, 100], [7, 8, 9]), 70), { x: 50, y: 8, at: 1 });
  assert.equal(nearestPoint(line([], []), 70), null);
});

test("zooming keeps the point under the cursor inside the whole range", () => {
  assert.deepEqual(zoomedRange([0, 100], [0, 100], 50, 0.5), [25, 75]);
  assert.deepEqual(zoomedRange([0, 100], [0, 100], 5, 0.5), [0, 50]);
  assert.deepEqual(zoomedRange([0, 100], [0, 100], 98, 0.5), [50, 100]);
  assert.equal(zoomedRange([25, 75], [0, 100], 50, 2), null);
});

test("keys step through the points and stay inside what is shown", () => {
  const xs = [0, 10, 20, 30, 40];
  assert.equal(stepX(xs, null, 1, [0, 40]), 0);
  assert.equal(stepX(xs, null, -1, [0, 35]), 30);
  assert.equal(stepX(xs, 20, 1, [0, 40]), 30);
  assert.equal(stepX(xs, 20, 20, [0, 40]), 40);
  assert.equal(stepX(xs, 20, 1, [10, 20]), 20);
  assert.equal(stepX(xs, 24, 0, [0, 40]), 20);
  assert.equal(stepX([], null, 1, [0, 40]), null);
});

test("labels at the same height are moved apart and none leaves the chart", () => {
  assert.deepEqual(spread([10, 50], 13, 100), [10, 50]);
  assert.deepEqual(spread([20, 10, 12], 13, 100), [36, 10, 23]);
  assert.deepEqual(spread([99, 100], 13, 100), [87, 100]);
});

test("charts of a group share cursor and zoom, until they leave", () => {
  const calls = [];
  const member = (name) => ({ cursorMoved: () => calls.push(name + " cursor"), zoomed: () => calls.push(name + " zoom") });
  const one = joinGroup("pair", member("one"));
  const other = joinGroup("pair", member("other"));
  const alone = joinGroup(null, member("alone"));
  one.moveCursor(7);
  other.zoomTo([1, 5]);
  assert.deepEqual(calls, ["one cursor", "other cursor", "one zoom", "other zoom"]);
  assert.equal(other.cursor, 7);
  assert.deepEqual(one.zoom, [1, 5]);
  assert.equal(alone.cursor, null);
  one.leave();
  other.moveCursor(8);
  assert.deepEqual(calls.slice(4), ["other cursor"]);
  other.leave();
  assert.equal(joinGroup("pair", member("next")).zoom, null);
});
