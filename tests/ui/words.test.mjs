import assert from "node:assert/strict";
import test from "node:test";

import { pieceName, tokenNamer, visibleToken } from "../../ui/web/format.js";
import { strongestPiece, sumByWord, viewByWord, wordsBegun } from "../../ui/web/words.js";

const words = {
  rows: [{ name: "Haustür", pieces: 2 }, { name: ".", pieces: 1 }, { name: "<EOS>", pieces: 1 }],
  columns: [{ name: "<BOS>", pieces: 1 }, { name: "doors", pieces: 3 }, { name: "<EOS>", pieces: 1 }],
};
const weights = [[0.1, 0.2, 0.3, 0.1, 0.3], [0, 0.5, 0, 0.5, 0], [0.2, 0.2, 0.2, 0.2, 0.2], [1, 0, 0, 0, 0]];

/** The same numbers by a plain loop over all pieces. */
function expected() {
  const [rowOf, columnOf] = [[0, 0, 1, 2], [0, 1, 1, 1, 2]];
  const sums = [0, 1, 2].map(() => [0, 0, 0]);
  for (let row = 0; row < 4; row += 1) {
    for (let column = 0; column < 5; column += 1) sums[rowOf[row]][columnOf[column]] += weights[row][column];
  }
  return sums.map((row, at) => row.map((sum) => sum / [2, 1, 1][at]));
}

const view = () => ({
  block: "cross", words, axes: "rows = decoding steps (produced ← previous), columns = input tokens", caption: "Rows sum to 1.",
  rows: [["Haus", "<BOS>"], ["·tür", "Haus"], ["·.", "·tür"], ["<EOS>", "·."]].map(([produced, read]) => ({ produced, read })),
  columns: ["<BOS>", "d", "·oo", "·rs", "<EOS>"],
  goldCells: [[0, 1], [0, 2], [1, 1], [2, 4]], row: 1, cell: { row: 2, column: 3 }, reserve: { rows: 9 },
  heads: [{ layer: 1, head: 1, score: 0.5, label: "0.50", weights }],
});

test("columns are summed over the pieces of a word and rows averaged, so that rows still sum to 1", () => {
  const sums = sumByWord(weights, words);
  sums.flat().forEach((sum, at) => assert.ok(Math.abs(sum - expected().flat()[at]) < 1e-4));
  for (const row of sums) assert.ok(Math.abs(row.reduce((sum, each) => sum + each) - 1) < 1e-3);
});

test("a cell of words has its strongest piece", () => {
  assert.deepEqual(strongestPiece(weights, words, { row: 0, column: 1 }), { row: 1, column: 1 });
  assert.deepEqual(strongestPiece(weights, words, { row: 2, column: 2 }), { row: 3, column: 4 });
});

test("a word is revealed with its first piece", () => {
  assert.deepEqual([0, 1, 2, 3, 4, Infinity].map((count) => wordsBegun(words, count)), [0, 1, 1, 2, 3, 3]);
});

test("a view by word has the words' names, gold cells, marked row and selected cell", () => {
  const byWord = viewByWord(view());
  assert.deepEqual(byWord.rows, [{ produced: "Haustür", read: "<BOS>" }, { produced: ".", read: "Haustür" }, { produced: "<EOS>", read: "." }]);
  assert.deepEqual(byWord.columns, ["<BOS>", "doors", "<EOS>"]);
  assert.deepEqual(byWord.goldCells, [[0, 1], [1, 2]]);
  assert.deepEqual([byWord.row, byWord.cell], [0, { row: 1, column: 1 }]);
  assert.deepEqual(byWord.heads[0], { ...view().heads[0], weights: sumByWord(weights, words) });
  assert.equal(byWord.axes, "rows = output words (produced ← previous), columns = input words; by word");
});

test("a view of other tokens stays as it is", () => {
  const plain = { ...view(), words: null };
  assert.equal(viewByWord(plain), plain);
});

test("pieces are named as in core.text.pieces", () => {
  const names = { "▁Haus": "Haus", "tür": "·tür", ".": "·.", "▁": "␣", "▁▁": "␣", "<0xF0>": "<0xF0>", "<EOS>": "<EOS>" };
  assert.deepEqual(Object.fromEntries(Object.keys(names).map((piece) => [piece, pieceName(piece)])), names);
  assert.equal(tokenNamer(null)("tür"), "tür");
});

test("a token that nobody would see is named", () => {
  const named = { "": "∅", " ": "␣", "  ": "␣␣", "\u200d": "U+200D", "\ufe0f": "U+FE0F", "\u202e": "U+202E", "\u00ad": "U+00AD" };
  for (const [token, shown] of Object.entries(named)) assert.equal(visibleToken(token), shown);
  for (const token of ["a", "👩‍👩‍👧", "❤️", "а́", "שלום"]) assert.equal(visibleToken(token), token);
});
