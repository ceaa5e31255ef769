import assert from "node:assert/strict";
import test from "node:test";

import {
  applyUpdate, emptyReplay, emptyText, recordAt, requestFor, reserveFor, snapshotAt,
} from "../../ui/components/attention_viewer/replay.js";

const snapshot = (step, tokens) => ({
  step, attention_mass: [[step / 100]],
  outputs: [{ tokens, maps: { cross: { shape: [1, 1, tokens.length, 3] }, encoder: { shape: [1, 1, 3, 3] } } }],
});
const update = (changes) => ({
  status: "training", step: 40, steps: 100, saved_steps: [20, 40],
  inputs: [{ source: ["<BOS>", "4", "<EOS>"] }], blocks: [{ block: "cross" }], scored_block: "cross", scored_on: "", uniform_mass: 0.3,
  snapshots: [snapshot(20, ["4"]), snapshot(40, ["4", "<EOS>"])], ...changes,
});

function followed() {
  const replay = emptyReplay("otter");
  applyUpdate(replay, update({}));
  return replay;
}

test("a replay asks for what is after its last snapshot", () => {
  assert.deepEqual([emptyReplay("otter"), followed()].map((replay) => requestFor(replay).since), [-1, 40]);
});

test("snapshots that come twice are kept once, and deleted ones are dropped", () => {
  const replay = followed();
  assert.equal(applyUpdate(replay, update({})), false);
  assert.equal(applyUpdate(replay, update({ saved_steps: [40, 60], snapshots: [snapshot(60, ["4"])] })), true);
  assert.deepEqual(replay.snapshots.map(({ step }) => step), [40, 60]);
});

test("a replay knows which of its steps have weights", () => {
  const replay = followed();
  applyUpdate(replay, update({ weights_steps: [20] }));
  assert.deepEqual(replay.weightsSteps, [20]);
});

test("a new status is a change", () => {
  assert.equal(applyUpdate(followed(), update({ status: "finished" })), true);
});

test("the snapshot of a step is the nearest, and without a step the latest", () => {
  const replay = followed();
  assert.deepEqual([null, 0, 29, 31, 900].map((step) => snapshotAt(replay, step)), [1, 0, 0, 1, 1]);
  assert.equal(snapshotAt(emptyReplay("otter"), null), -1);
});

test("a record joins a fixed input with its output at a snapshot", () => {
  const replay = followed();
  const record = recordAt(replay, 0, 0);
  assert.deepEqual([record.source, record.tokens, record.step, record.attention_mass], [["<BOS>", "4", "<EOS>"], ["4"], 20, [[0.2]]]);
  assert.equal(recordAt(replay, 0, 5).tokens.length, 1); // the last input, if there is no such one
  assert.equal(recordAt(replay, 7, 0), null);
  assert.equal(recordAt(emptyReplay("otter"), -1, 0), null);
});

test("room is reserved for the largest map of all snapshots", () => {
  assert.deepEqual(reserveFor(followed(), 0, "cross"), { tokens: ["4", "<EOS>"], rows: 2, columns: 3 });
  assert.deepEqual(reserveFor(followed(), 0, "encoder"), { tokens: [], rows: 3, columns: 3 });
});

test("an empty replay says why", () => {
  const replay = emptyReplay("otter");
  assert.match(emptyText(replay), /Loading/);
  applyUpdate(replay, update({ saved_steps: [], snapshots: [] }));
  assert.match(emptyText(replay), /first evaluation/);
  applyUpdate(replay, update({ saved_steps: [], snapshots: [], status: "stopped" }));
  assert.match(emptyText(replay), /no replay/);
  applyUpdate(replay, update({ blocks: [], watched: true })); // of a model whose attention was not seen
  assert.equal(recordAt(replay, 0, 0), null);
  assert.match(emptyText(replay), /no attention maps/);
  applyUpdate(replay, update({ blocks: [], watched: false }));
  assert.match(emptyText(replay), /no attention heads/);
});
