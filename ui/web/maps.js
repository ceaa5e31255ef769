// Unpacks attention maps { shape: [layers, heads, rows, columns], bytes, data } and prepares them for drawing.
//
// A record is one decode, of the visitor's input or of a fixed input at a training step:
//   source, tokens     input tokens with BOS and EOS, and output tokens with EOS
//   expected           the correct output, or null
//   read               the token that each step read, if it is not the one produced before it
//   gold_cells         [step, column] of the correct source token of each output token
//   blocks, maps       the attention blocks with names and captions, and their packed maps
//   scored_block       the block with scores; scored_on: the inputs they are computed on
//   attention_mass     on the gold alignment, by layer and head
//   texts, words       of subwords: source, output and expected as text, and the words of source, produced and read
//                      tokens, each [{ name, pieces }]; see words.js
//   marks              "dead", "collapsed", "uniform" or "" by block, layer and head, or null; see head_marks.js
//   uniform_mass       the attention mass of uniform attention

import { tokenNamer } from "./format.js";

/** The [row, column] of the gold alignment in the maps of a block; row 0 of the encoder's is BOS, not a step. */
function goldCellsOf(record, block) {
  const first = block === "encoder" ? 1 : 0;
  return record.gold_cells.filter(([step]) => step < record.tokens.length).map(([step, column]) => [step + first, column]);
}

/** All heads of a block: [{ layer, head, weights[row][column] }], layers and heads counted from 1. */
export function headsOf(packed) {
  return (packed.heads ??= unpackHeads(packed));
}

function unpackHeads({ shape, bytes, data }) {
  const [layers, heads, rows, columns] = shape;
  const raw = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const full = 256 ** bytes - 1;
  const weight = (at) => Math.round((10000 * (bytes === 2 ? raw[2 * at] + 256 * raw[2 * at + 1] : raw[at])) / full) / 10000;
  const unpacked = [];
  for (let index = 0; index < layers * heads; index += 1) {
    const first = index * rows * columns;
    unpacked.push({
      layer: Math.floor(index / heads) + 1,
      head: (index % heads) + 1,
      weights: Array.from({ length: rows }, (_, row) =>
        Array.from({ length: columns }, (_, column) => weight(first + row * columns + column))),
    });
  }
  return unpacked;
}

/** The token that each decoding step read: the one produced before it, or with teacher forcing that of the reference. */
export const readTokens = (record) => record.read ?? [record.source[0], ...record.tokens.slice(0, -1)];

/** The words of a view's rows and columns, see words.js; null if the tokens are not subwords. */
function wordsOf({ words }, block, columns) {
  if (!words) return null;
  const keys = { source: words.source, read: words.read, "source and read": [...words.source, ...words.read] };
  return { rows: block === "encoder" ? words.source : words.produced, columns: keys[columns] };
}

/** The block through which the output reads the source; undefined in an encoder-only model. */
export const sourceBlock = (record) => record?.blocks.find(({ block, columns }) =>
  block !== "encoder" && columns !== "read" && record.maps[block])?.block;

/** One attention block of a record, ready for drawing: rows, columns, gold cells, heads with scores. */
export function viewOf(record, block) {
  const facts = record.blocks.find((each) => each.block === block);
  const name = tokenNamer(record.words);
  const [source, read] = [record.source.map(name), readTokens(record).map(name)];
  const steps = record.tokens.map((produced, step) => ({ produced: name(produced), read: read[step] }));
  const scored = record.scored_block === block;
  return {
    ...facts,
    layers: record.maps[block].shape[0],
    rows: block === "encoder" ? source.map((token) => ({ token })) : steps,
    columns: { source, read, "source and read": [...source, ...read] }[facts.columns],
    readsSource: block === sourceBlock(record),
    words: wordsOf(record, block, facts.columns),
    goldCells: scored ? goldCellsOf(record, block) : [],
    uniformMass: scored ? record.uniform_mass : null,
    scoredOn: record.scored_on,
    heads: headsOf(record.maps[block]).map((each) => {
      const score = scored ? record.attention_mass?.[each.layer - 1]?.[each.head - 1] ?? null : null;
      const names = [block + "." + each.layer, block + "." + each.layer + "." + each.head];
      const ablated = Boolean(record.ablated?.some((name) => names.includes(name)));
      const mark = record.marks?.[block]?.[each.layer - 1]?.[each.head - 1] ?? "";
      return { ...each, score, ablated, mark, label: score === null ? "" : score.toFixed(2) };
    }),
  };
}

/** The head of a layer with the most attention on the correct source tokens; without scores, the first. */
export function bestHead(view, layer = view.layers) {
  const heads = view.heads.filter((each) => each.layer === layer);
  return heads.reduce((best, each) => (each.score > best.score ? each : best));
}
