// The arithmetic of one cell of a map, and what the other parts of a model compute, from the hook points of a pass; the
// counterparts of core/interpret/cell.py and parts.py.

import { UNK } from "./model.js";
import { softmax } from "./decoding.js";
import { Problem } from "./problem.js";

const SHOWN_VALUES = 4;
const SHOWN_ANSWERS = 5;
const [MAX_ROWS, MAX_WIDTH] = [48, 256];
const TOLERANCE = 1e-4;
const TEXTS = {
  embedding: "Every token has a row of learned numbers in a table. The model reads this row, times the square root of its width, and nothing else of the token: tokens with similar rows are similar to the model.",
  positions: "Attention alone cannot tell the order of its keys. This vector is added to the embedding; it depends on the position only.",
  add: "What the sublayer computed is added to the residual stream, so a layer changes its input rather than replacing it.",
  "feed-forward": "Each token by itself: a wider vector of activations, then back to the width of the model. Attention moves information between tokens; this works on what has arrived.",
  output: "The last state of each step, times one row of weights for each token of the vocabulary, gives the logits. The softmax turns them into probabilities.",
};

const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
const sumOf = (vectors, width) => Array.from({ length: width }, (_, at) => vectors.reduce((sum, vector) => sum + vector[at], 0));
const differs = (a, b) => Math.max(...a.map((value, at) => Math.abs(value - b[at]))) > TOLERANCE * Math.max(1, ...a.map(Math.abs));

/** The row of a tensor [1, heads, rows, width] of a head, or of a tensor [1, rows, width]. */
function rowOf({ dims, data }, row, head = 0) {
  const [width, rows] = [dims.at(-1), dims.at(-2)];
  const heads = dims.length === 4 ? dims[1] : 1;
  const from = (Math.min(head, heads - 1) * rows + Math.min(row, rows - 1)) * width;
  return Array.from(data.subarray(from, from + width));
}

function idsOf({ facts }, request) {
  const known = (tokens, names) => names.map((name) => {
    const id = name === "<UNK>" ? UNK : tokens.indexOf(name);
    if (id === -1) throw new Problem("The token “" + name + "” is not in the vocabulary of this run.");
    return id;
  });
  return { source: known(facts.source_tokens, request.source), tokens: known(facts.target_tokens, request.tokens) };
}

/** The arithmetic of a cell, in the form that the viewer reads. */
export async function cellOf(model, request, step) {
  const { facts } = model;
  const { source, tokens } = idsOf(model, request);
  const name = request.block + "." + request.layer;
  const about = facts.model.attention[name];
  if (!about) throw new Problem("There is no " + name + " in this model.");
  const [head, row, column] = [request.head - 1, request.row, request.column];
  const ablated = request.ablate ?? [];
  const points = ["hook_q", "hook_k", "hook_v", "hook_mask", "hook_attn_scores", "hook_pattern", "hook_z", "hook_out"].map((each) => about.path + "." + each);
  const stream = about.stream.flatMap(({ before, added, after }) => [before, added, after]);
  const found = await model.forward([source], [tokens], [...points, ...stream, "logits"], { ablated });
  const of = (point) => found[about.path + "." + point];
  const pattern = of("hook_pattern");
  if (row >= pattern.dims[2] || column >= pattern.dims[3]) throw new Problem("The map has no cell at row " + (row + 1) + ", column " + (column + 1) + ".");
  const query = rowOf(of("hook_q"), row, head);
  const [keys, values] = ["hook_k", "hook_v"].map((point) => {
    const tensor = of(point); // heads of a group share keys and values
    const group = Math.floor((head * tensor.dims[1]) / about.heads);
    return Array.from({ length: tensor.dims[2] }, (_, at) => rowOf(tensor, at, group));
  });
  const divisor = Math.sqrt(query.length);
  const [scores, weights, output] = ["hook_attn_scores", "hook_pattern", "hook_z"].map((point) => rowOf(of(point), row, head));
  const visible = of("hook_mask") ? rowOf(of("hook_mask"), row, head).map(Boolean) : weights.map(() => true);
  const gain = ablated.some((each) => name + "." + request.head === each || name === each) ? 0 : 1;
  const products = query.map((value, at) => value * keys[column][at]);
  const order = weights.map((_, at) => at).sort((a, b) => weights[b] - weights[a] || a - b);
  const shown = [...new Set([column, ...order])].slice(0, SHOWN_VALUES).sort((a, b) => weights[b] - weights[a]);
  const others = weights.map((_, at) => at).filter((at) => !shown.includes(at));
  const weighted = values.map((value, at) => value.map((each) => weights[at] * each));
  const w_o = model.weights[about.w_o];
  const matrixRow = (at) => w_o.data.subarray(at * w_o.dims[1] + head * query.length, at * w_o.dims[1] + (head + 1) * query.length);
  const brought = output.map((value) => value * gain);
  const masked = scores.map((score, at) => (visible[at] ? score : -Infinity));
  const replaced = [
    ["scores", scores, keys.map((key) => dot(query, key) / divisor)], ["weights", weights, softmax(masked)], ["output", brought, sumOf(weighted, query.length)],
  ].filter(([, recorded, computed]) => differs(recorded, computed)).map(([line]) => line);
  return {
    model_step: step, method: "dot product", query, key: keys[column], products, sum: products.reduce((a, b) => a + b, 0), divisor, bias: null,
    scores, visible, weights,
    values: shown.map((at) => ({ column: at, numbers: weighted[at] })),
    others: others.length ? sumOf(others.map((at) => weighted[at]), query.length) : null, num_others: others.length,
    rotated_back: false, output: brought, head_addition: Array.from({ length: w_o.dims[0] }, (_, at) => dot(brought, matrixRow(at))),
    norm: facts.model.norm,
    stream: about.stream.map(({ name: label, ...at }) => ({ name: label, ...Object.fromEntries(Object.entries(at).map(([key, point]) => [key, rowOf(found[point], row)])) })),
    answer: request.block === "encoder" ? null : await answerOf(model, { source, tokens, row, ablated, head: name + "." + request.head }, found.logits),
    replaced,
  };
}

/** The tokens with the highest logits of a step, with their probabilities with a head and without it. */
async function answerOf(model, { source, tokens, row, ablated, head }, logits) {
  const { facts } = model;
  const without = await model.forward([source], [tokens], ["logits"], { ablated: [...ablated, head] });
  const [own, other] = [logits, without.logits].map((each) => rowOf(each, row));
  const [probabilities, otherProbabilities] = [own, other].map(softmax);
  const best = own.map((_, id) => id).sort((a, b) => own[b] - own[a]).slice(0, SHOWN_ANSWERS);
  return {
    produced: facts.target_tokens[tokens[row]],
    tokens: [...new Set([...best, tokens[row]])].map((id) => ({
      token: facts.target_tokens[id], logit: own[id], probability: probabilities[id], without: otherProbabilities[id],
    })),
  };
}

/** What a part of the model computes for each token of its side. */
export async function partOf(model, request) {
  const { facts } = model;
  const { source, tokens } = idsOf(model, request);
  const part = facts.model.parts.find(({ name }) => name === request.part);
  const points = facts.model.vectors[request.part];
  if (!part || !points) throw new Problem("The site does not show what this part computes; the program does.");
  const found = await model.forward([source], [tokens], points.map(([, point]) => point), { ablated: request.ablate ?? [] });
  const length = part.side === "source" ? source.length : tokens.length;
  const vectors = points.map(([name, point]) => [name, Array.from({ length }, (_, row) => rowOf(found[point], row))]);
  const last = vectors.at(-1)[1];
  const isOutput = part.kind === "output";
  const size = last.map((vector) => Math.hypot(...vector));
  const stack = part.side === "source" ? "encoder" : "decoder";
  return {
    part, title: part.label + ", " + stack + (part.layer ? " layer " + part.layer : ""), text: TEXTS[part.kind], num_rows: length, width: last[0].length,
    vectors: isOutput ? [] : vectors.map(([name, rows]) => ({ name, rows: rows.slice(0, MAX_ROWS).map((row) => row.slice(0, MAX_WIDTH)) })),
    similarity: isOutput ? null : last.slice(0, MAX_ROWS).map((a, at) => last.slice(0, MAX_ROWS).map((b, other) => dot(a, b) / (size[at] * size[other]))),
    patterns: null,
    answers: isOutput ? last.slice(0, MAX_ROWS).map((logits) => bestOf(facts, logits)) : null,
  };
}

function bestOf(facts, logits) {
  const probabilities = softmax(logits);
  return logits.map((logit, id) => ({ token: facts.target_tokens[id], logit, probability: probabilities[id] }))
    .sort((a, b) => b.logit - a.logit).slice(0, SHOWN_ANSWERS);
}
