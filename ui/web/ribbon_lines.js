// The ribbon as data: the words above, the words below, and the weights between them by head.

import { sourceBlock, viewOf } from "./maps.js";
import { viewByWord } from "./words.js";

export const LEAST = 0.05; // the smallest weight that gets a line
const SURE = 0.5; // a head below this measure aligns words with each other no better than the mean of its layer

const [BOS, EOS] = ["<BOS>", "<EOS>"];

/** The largest of numbers and where it is: [value, index]. */
const largest = (row) => row.reduce((best, value, at) => (value > best[0] ? [value, at] : best), [-Infinity, -1]);

/** The mean of the heads of a layer, as weights[row][column]. */
function meanOf(heads) {
  return heads[0].weights.map((row, at) => row.map((_, column) =>
    heads.reduce((sum, { weights }) => sum + weights[at][column], 0) / heads.length));
}

/** How well weights[row][column] align the words: how much the rows agree on one column each, and on different ones. */
export function alignment(weights) {
  if (!weights.length || !weights[0].length) return 0;
  const best = weights.map(largest);
  const mean = best.reduce((sum, [weight]) => sum + weight, 0) / best.length;
  return (mean * new Set(best.map(([, column]) => column)).size) / Math.min(weights.length, weights[0].length);
}

/** The probability of each output word: of all its pieces one after the other; null where a step has none. */
function probabilitiesOf(record, probabilities) {
  if (!probabilities) return null;
  const pieces = record.words ? record.words.produced.map((word) => word.pieces) : record.tokens.map(() => 1);
  let step = 0;
  return pieces.map((count) => {
    const those = probabilities.slice(step, (step += count));
    return those.some((each) => each == null) ? null : those.reduce((product, each) => product * each, 1);
  });
}

/** Which head the ribbon opens with, and why; head null is the mean of a layer. */
function chosenOf(heads, layers) {
  const scored = heads.filter(({ score }) => score !== null);
  const by = scored.length ? ({ score }) => score : ({ measure }) => measure;
  const intact = heads.filter(({ ablated }) => !ablated);
  const best = (intact.length ? intact : heads).reduce((one, other) => (by(other) > by(one) ? other : one));
  if (scored.length) return { layer: best.layer, head: best.head, why: "best on the correct tokens" };
  if (best.measure < SURE) return { layer: layers, head: null, why: "no head aligns them well" };
  return { layer: best.layer, head: best.head, why: "best aligned here" };
}

/**
 * A record (see maps.js) as a ribbon, or null where nothing of the output reads the source:
 *   source, output   [{ name, at }]: words without BOS and EOS; at is the column or row of the map by word
 *   heads            [{ layer, head, weights[output][source], special[output], measure, score, ablated }], then the mean
 *                    of each layer with head null; special is the weight on BOS and EOS
 *   chosen           { layer, head, why }: the head to open with
 */
export function ribbonOf(record, probabilities = null) {
  const block = sourceBlock(record);
  if (!block || !record.tokens.length) return null;
  const view = viewByWord({ row: null, cell: null, ...viewOf(record, block) });
  const isSource = ({ at }) => at < (record.words?.source ?? record.source).length;
  const isWord = ({ name }) => name !== BOS && name !== EOS;
  const chances = probabilitiesOf(record, probabilities);
  const columns = view.columns.map((name, at) => ({ name, at })).filter(isSource);
  const source = columns.filter(isWord);
  const output = view.rows.map(({ produced }, at) => ({ name: produced, at, probability: chances?.[at] ?? null })).filter(isWord);
  const special = columns.filter((each) => !isWord(each)).map(({ at }) => at);
  if (!source.length || !output.length) return null;
  const between = (weights) => output.map((row) => source.map((column) => weights[row.at][column.at]));
  const entry = ({ layer, head, weights, score, ablated }) => ({ layer, head, weights: between(weights),
    special: output.map((row) => special.reduce((sum, at) => sum + weights[row.at][at], 0)),
    measure: alignment(between(weights)), score, ablated });
  const heads = view.heads.map(entry);
  const layers = Array.from({ length: view.layers }, (_, at) => view.heads.filter(({ layer }) => layer === at + 1));
  const means = layers.map((those, at) => entry({ layer: at + 1, head: null, weights: meanOf(those), score: null, ablated: false }));
  return { source, output, heads: [...heads, ...means], chosen: chosenOf(heads, view.layers) };
}
