import assert from "node:assert/strict";
import test from "node:test";

import { viewOf } from "../../ui/web/maps.js";
import { alignment, ribbonOf } from "../../ui/web/ribbon_lines.js";
import { viewByWord } from "../../ui/web/words.js";

/** Maps [layer][head][row][column] packed as Python packs them, 16 bits per weight. */
function packed(maps) {
  const numbers = Uint16Array.from(maps.flat(3), (weight) => Math.round(65535 * weight));
  const shape = [maps.length, maps[0].length, maps[0][0].length, maps[0][0][0].length];
  return { shape, bytes: 2, data: Buffer.from(numbers.buffer).toString("base64") };
}

const about = (block, columns) => ({ block, columns, name: block, axes: "tokens", caption: "" });

/** "the red door" as BOS, three tokens and EOS; "Die Tür" in three pieces and EOS. */
function record(maps, changes = {}) {
  return {
    run: "a run", source: ["<BOS>", "▁the", "▁red", "▁door", "<EOS>"], tokens: ["▁Die", "▁Tü", "r", "<EOS>"],
    words: {
      source: ["<BOS>", "the", "red", "door", "<EOS>"].map((name) => ({ name, pieces: 1 })),
      produced: [{ name: "Die", pieces: 1 }, { name: "Tür", pieces: 2 }, { name: "<EOS>", pieces: 1 }],
      read: [{ name: "<BOS>", pieces: 1 }, { name: "Die", pieces: 1 }, { name: "Tü", pieces: 1 }, { name: "r", pieces: 1 }],
    },
    blocks: [about("cross", "source")], maps: { cross: packed(maps) }, scored_block: null, attention_mass: null, gold_cells: [],
    ablated: [], marks: {}, ...changes,
  };
}

const sharp = [[0, 1, 0, 0, 0], [0, 0, 0, 0.8, 0.2], [0, 0, 0, 0.6, 0.4], [0, 0, 0, 0, 1]];
const onBos = Array(4).fill([0.9, 0.1, 0, 0, 0]);
const diagonal = (n) => Array.from({ length: n }, (_, row) => Array.from({ length: n }, (__, column) => Number(row === column)));

test("the words are those of the map by word, without BOS and EOS", () => {
  const given = record([[onBos, sharp]]);
  const ribbon = ribbonOf(given, [0.5, 0.8, 0.5, 1]);
  assert.deepEqual(ribbon.source.map(({ name }) => name), ["the", "red", "door"]);
  assert.deepEqual(ribbon.output.map(({ name, probability }) => [name, probability]), [["Die", 0.5], ["Tür", 0.4]]);
  const map = viewByWord({ row: null, cell: null, ...viewOf(given, "cross") }).heads[1].weights;
  assert.deepEqual(ribbon.heads[1].weights, [map[0].slice(1, 4), map[1].slice(1, 4)]);
  assert.deepEqual(ribbon.heads[1].weights[1], [0, 0, 0.7]);
  assert.ok(Math.abs(ribbon.heads[1].special[1] - 0.3) < 1e-3);
});

test("the head that aligns the words best is chosen, or the mean of the last layer where none does", () => {
  assert.deepEqual(ribbonOf(record([[onBos, sharp]])).chosen, { layer: 1, head: 2, why: "best aligned here" });
  assert.equal(ribbonOf(record([[onBos, sharp]], { ablated: ["cross.1.2"] })).chosen.head, null);
  const none = ribbonOf(record([[sharp, onBos].map(() => onBos), [onBos, onBos]]));
  assert.deepEqual([none.chosen.layer, none.chosen.head], [2, null]);
});

test("with correct alignments the head with the most weight on them is chosen", () => {
  const ribbon = ribbonOf(record([[onBos, sharp]], { scored_block: "cross", attention_mass: [[0.9, 0.2]], scored_on: "" }));
  assert.deepEqual([ribbon.chosen.layer, ribbon.chosen.head], [1, 1]);
});

test("the mean of a layer is that of its heads", () => {
  const { heads } = ribbonOf(record([[onBos, sharp]]));
  const mean = heads.find(({ head }) => head === null);
  assert.ok(Math.abs(mean.weights[0][0] - 0.55) < 1e-3);
  assert.ok(Math.abs(mean.weights[1][2] - 0.35) < 1e-3);
});

test("a decoder-only model reads the source in its own attention", () => {
  const tokens = { source: ["<BOS>", "a", "<EOS>"], tokens: ["b", "<EOS>"], words: undefined, scored_block: null };
  const maps = { decoder: packed([[[[0.1, 0.7, 0.1, 0.1, 0], [0, 0.2, 0.1, 0.1, 0.6]]]]) };
  const ribbon = ribbonOf({ ...record([[sharp]]), ...tokens, maps, blocks: [about("decoder", "source and read")] });
  assert.deepEqual([ribbon.source.length, ribbon.output.length], [1, 1]);
  assert.ok(Math.abs(ribbon.heads[0].weights[0][0] - 0.7) < 1e-3);
  assert.ok(Math.abs(ribbon.heads[0].special[0] - 0.2) < 1e-3);
});

test("there is no ribbon where no output reads a source", () => {
  assert.equal(ribbonOf(null), null);
  assert.equal(ribbonOf({ ...record([[sharp]]), maps: { encoder: packed([[sharp]]) } }), null);
  assert.equal(ribbonOf({ ...record([[sharp.slice(3)]]), tokens: ["<EOS>"], words: undefined }), null);
});

test("alignment is 1 for one word each, and small where all words attend to one", () => {
  assert.equal(alignment(diagonal(3)), 1);
  assert.equal(alignment([[1, 0, 0], [1, 0, 0], [1, 0, 0]]), 1 / 3);
  assert.equal(alignment([]), 0);
});
