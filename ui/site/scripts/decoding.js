// One decode of a typed input, in the forms that the components of the tabs Decode and Look inside read.

import { EOS, UNK } from "./model.js";
import { meanMass, packed, withoutEos } from "./snapshots.js";
import { inWords, wordsOf } from "./subwords.js";
import { lengthNote, readInput, solve } from "./tasks.js";

const [BOS_TOKEN, EOS_TOKEN] = ["<BOS>", "<EOS>"];
const CANDIDATES = 5;

export function softmax(logits) {
  const most = Math.max(...logits);
  const exponentials = Array.from(logits, (logit) => Math.exp(logit - most));
  const sum = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((each) => each / sum);
}

/** Decode a text with a model; heads or layers that are named in `ablated` are switched off. */
export async function decodeText(model, text, ablated = []) {
  const { facts } = model;
  const { symbols, note } = readInput(facts, text);
  const source = [1, ...symbols.map((token) => (token === "<UNK>" ? UNK : facts.source_tokens.indexOf(token))), EOS];
  await model.open(); // the time of a decode is not that of opening its graphs
  const started = performance.now();
  const [{ tokens, logits }] = await model.greedy([source], facts.model.max_seq_len, { ablated, keepsLogits: true });
  const milliseconds = performance.now() - started;
  const [maps] = await model.maps([source], [tokens], { ablated });
  const { answer, sources } = solve(facts, symbols);
  const output = withoutEos(tokens).map((id) => facts.target_tokens[id]);
  const probabilities = logits.map(softmax);
  const gold = sources.flatMap((columns, step) => columns.map((column) => [step, column + 1])).filter(([step]) => step < tokens.length);
  const block = facts.source_block;
  const scores = gold.length ? meanMass([maps[block]], [tokens], { src: [source], gold: [gold] }, block) : null;
  const stopped = tokens.at(-1) === EOS;
  return {
    symbols, note: [note, lengthNote(facts, symbols)].filter(Boolean).join("; "), source, tokens, output, expected: answer, stopped, milliseconds, probabilities, maps, gold, scores, ablated,
    correct: answer && stopped && output.join("\n") === answer.join("\n"),
    produced: tokens.map((id) => facts.target_tokens[id]),
    ...inWords(facts, symbols, tokens.map((id) => facts.target_tokens[id]), answer),
  };
}

/** The value of the component "answer", with a record of `recordOf` for the ribbon. */
export function answerValue(facts, { texts = null, symbols, note, output, expected, correct, stopped, milliseconds, tokens, produced, probabilities, ablated }, record) {
  const best = (row) => row.map((probability, id) => ({ token: facts.target_tokens[id], probability }))
    .sort((a, b) => b.probability - a.probability).slice(0, CANDIDATES);
  const logProb = tokens.reduce((sum, id, step) => sum + Math.log(probabilities[step][id]), 0);
  return {
    texts, input: symbols, output, expected, correct, stopped, note, milliseconds, log_prob: logProb, n_best: [], record,
    unsure: facts.confidence_threshold == null || ablated.length ? null : logProb / tokens.length < facts.confidence_threshold,
    steps: tokens.map((id, step) => ({
      token: produced[step], read: step ? produced[step - 1] : BOS_TOKEN, probability: probabilities[step][id], forced: false, candidates: best(probabilities[step]),
    })),
  };
}

const isOff = (name, ablated) => ablated.some((each) => name === each || name.startsWith(each + "."));

/** The value of the component "head_thumbnails": the last layer of the block that attends to the source. */
export function thumbnailsValue(facts, { symbols, produced, maps, scores, gold, ablated }) {
  const block = facts.source_block;
  const about = facts.blocks.find((each) => each.block === block);
  const { dims: [layers, heads, rows, columns], data } = maps[block];
  const read = [BOS_TOKEN, ...produced.slice(0, -1)];
  const source = [BOS_TOKEN, ...symbols, EOS_TOKEN];
  const masses = scores?.masses[layers - 1];
  return {
    title: about.name[0].toUpperCase() + about.name.slice(1) + ", layer " + layers + " of " + layers,
    caption: about.caption, block, layer: layers,
    rows: produced.map((token, step) => ({ produced: token, read: read[step] })),
    columns: { source, read, "source and read": [...source, ...read] }[about.columns],
    heads: Array.from({ length: heads }, (_, head) => ({
      head: head + 1,
      weights: Array.from({ length: rows }, (__, row) => {
        const from = (((layers - 1) * heads + head) * rows + row) * columns;
        return Array.from(data.subarray(from, from + columns));
      }),
      score: masses?.[head] ?? null,
      label: masses ? masses[head].toFixed(2) + " on the correct source token" : "",
      ablated: isOff(block + "." + layers + "." + (head + 1), ablated),
    })),
    uniform_mass: scores?.uniform ?? null, gold_cells: gold, selected: masses ? 1 + masses.indexOf(Math.max(...masses)) : null,
  };
}

/** A decode as a record, see maps.js. */
export function recordOf(facts, run, step, decode) {
  const { symbols, produced, expected, maps, scores, gold, ablated, texts, words } = decode;
  const suffix = ablated.length ? ", without " + ablated.join(", ") : "";
  return {
    run: run.title, name: run.id, model: run.title + " after " + step.toLocaleString("en") + " steps" + suffix,
    source: [BOS_TOKEN, ...symbols, EOS_TOKEN], tokens: produced, expected: expected && [...expected, EOS_TOKEN],
    ...(texts && { texts, words: { ...words, source: wordsOf([BOS_TOKEN, ...symbols, EOS_TOKEN]) } }),
    blocks: facts.blocks.filter(({ block }) => maps[block]), maps: packed(maps, 2),
    scored_block: scores ? facts.source_block : null, attention_mass: scores?.masses ?? null, scored_on: "on this input",
    uniform_mass: scores?.uniform ?? null, gold_cells: gold, marks: {}, ablated, interventions: { ablate: ablated, patterns: [], ablate_with: "zero" },
  };
}

/** The value of the component "attention_viewer", of a record. */
export function viewerValue(run, record, selection, asked) {
  const now = Date.now();
  return { run: run.id, decode: record, selection: selection ? { ...selection, at: now } : {}, asked: asked ? now : null };
}

/** The value of the component "answer_comparison": a decode with and without the ablated heads. */
export function comparisonValue(baseline, decode) {
  const row = (label, { output, correct, stopped, texts }) =>
    ({ label, output, words: texts ? wordsOf(output).map(({ name }) => name) : null, correct, stopped });
  return {
    heading: "", note: "", button: "Restore all heads",
    rows: [row("all heads as trained", baseline), row("without " + decode.ablated.join(", "), decode)],
  };
}
