import assert from "node:assert/strict";
import test from "node:test";

import { bestHead, headsOf, readTokens, viewOf } from "../../ui/web/maps.js";

/** Maps [layer][head][row][column] packed as the server packs them, in 1 or 2 bytes per weight, low byte first. */
function pack(maps, bytes) {
  const full = 256 ** bytes - 1;
  const numbers = maps.flat(3).map((weight) => Math.round(weight * full));
  const data = numbers.flatMap((number) => (bytes === 2 ? [number & 255, number >> 8] : [number]));
  const shape = [maps.length, maps[0].length, maps[0][0].length, maps[0][0][0].length];
  return { shape, bytes, data: btoa(String.fromCharCode(...data)) };
}

const one = [[1, 0, 0], [0.25, 0.75, 0]];
const other = [[0, 1, 0], [0.1, 0.2, 0.7]];
const record = () => ({
  source: ["<BOS>", "4", "<EOS>"],
  tokens: ["4", "<EOS>"],
  gold_cells: [[0, 1], [7, 2]],
  blocks: [
    { block: "cross", name: "cross-attention", columns: "source" },
    { block: "encoder", name: "encoder self-attention", columns: "source" },
    { block: "decoder", name: "decoder self-attention", columns: "read" },
  ],
  maps: {
    cross: pack([[one, other], [other, one]], 2),
    encoder: pack([[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]], 1),
    decoder: pack([[[[1, 0], [0.5, 0.5]]]], 1),
  },
  scored_block: "cross",
  scored_on: "on this input",
  attention_mass: [[0.2, 0.9], [0.6, 0.3]],
  uniform_mass: 0.33,
});

test("weights of two bytes are exact to four digits, in the order of layers and heads", () => {
  const heads = headsOf(record().maps.cross);
  assert.deepEqual(heads.map(({ layer, head }) => [layer, head]), [[1, 1], [1, 2], [2, 1], [2, 2]]);
  assert.deepEqual(heads.map(({ weights }) => weights), [one, other, other, one]);
});

test("weights of one byte are at most 0.002 off", () => {
  const [{ weights }] = headsOf(record().maps.decoder);
  weights.flat().forEach((weight, at) => assert.ok(Math.abs(weight - [1, 0, 0.5, 0.5][at]) <= 0.002 + 1e-9));
});

test("each step reads BOS or the token that the step before produced", () => {
  assert.deepEqual(readTokens(record()), ["<BOS>", "4"]);
  assert.deepEqual(readTokens({ ...record(), read: ["<s>", "7"] }), ["<s>", "7"]); // with teacher forcing the reference
});

test("rows and columns are those of the block", () => {
  const cross = viewOf(record(), "cross");
  assert.deepEqual(cross.rows, [{ produced: "4", read: "<BOS>" }, { produced: "<EOS>", read: "4" }]);
  assert.deepEqual(cross.columns, ["<BOS>", "4", "<EOS>"]);
  assert.deepEqual(viewOf(record(), "encoder").rows, [{ token: "<BOS>" }, { token: "4" }, { token: "<EOS>" }]);
  assert.deepEqual(viewOf(record(), "decoder").columns, ["<BOS>", "4"]);
});

test("step t of an encoder-only model is row t + 1 of its encoder", () => {
  const { maps: { encoder }, ...rest } = record();
  const of = { ...rest, maps: { encoder }, blocks: [rest.blocks[1]], scored_block: "encoder", gold_cells: [[0, 1], [1, 2]] };
  assert.deepEqual(viewOf(of, "encoder").goldCells, [[1, 1], [2, 2]]);
  assert.deepEqual(viewOf(of, "encoder").heads.map(({ score }) => score), [0.2]);
});

test("only the scored block has scores and gold cells, and those of steps that the output has", () => {
  const cross = viewOf(record(), "cross");
  assert.deepEqual(cross.heads.map(({ label }) => label), ["0.20", "0.90", "0.60", "0.30"]);
  assert.deepEqual(cross.goldCells, [[0, 1]]);
  const encoder = viewOf(record(), "encoder");
  assert.deepEqual([encoder.heads[0].score, encoder.heads[0].label, encoder.goldCells, encoder.uniformMass], [null, "", [], null]);
});

test("the best head is that with the highest score in the last layer, else the first one there", () => {
  const { layer, head } = bestHead(viewOf(record(), "cross"));
  assert.deepEqual([layer, head], [2, 1]);
  assert.equal(bestHead(viewOf(record(), "cross"), 1).head, 2);
  const unscored = bestHead(viewOf({ ...record(), scored_block: null }, "cross"));
  assert.deepEqual([unscored.layer, unscored.head], [2, 1]);
});
