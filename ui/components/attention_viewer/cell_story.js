// How one cell of a map came about: score, softmax, values, residual stream and answer, with this model's numbers.

import { make } from "../../web/dom.js";
import { counted, formatNumber, formatPercent, formatPercents, isolated, visibleToken } from "../../web/format.js";
import { makeStrip } from "../../web/strip.js";

const MOST_BARS = 10; // keys shown in the softmax; of more, those with the largest weights
const LINES = {
  scores: "The scores used are not these: something in this run changes them, such as a bug that is studied.",
  weights: "The weights used are not this softmax: a forced pattern or a bug replaces it.",
  output: "The output used is not this sum: the head is ablated.",
  sublayer: "The output of this sublayer is not the sum of its heads: something in this run changes it.",
  stream: "The residual stream is not this sum: something in this run changes it.",
};
const READERS = { // of the context, by the attention of a recurrent model
  additive: ["Into the cell", "The recurrent cell reads it beside the embedding of the previous token, and updates its state."],
  "last-token": ["Into the output layer", "The output layer reads it beside the decoder's state, which knows nothing of the source."],
};

const otherKeys = (count, the) => the + " other " + (count === 1 ? "key" : counted(count, "key"));
const quoted = (token) => "“" + isolated(visibleToken(token)) + "”";

/** One sentence about a cell: `cell` is the server's answer, `view` the block, `chosen` { layer, head, row, column }. */
export function storySentence(cell, view, chosen) {
  return story({ cell, view, chosen }, false).sentence();
}

/** The steps from query and key to the answer, drawn as strips or as numbers. */
export function storySections(cell, view, chosen, inNumbers) {
  const { score, shares, values, stream, answer } = story({ cell, view, chosen }, inNumbers);
  const steps = [score(), shares(), values(), ...[stream()].flat()];
  return [...steps, answer(steps.length + 1)];
}

function story(shown, inNumbers) {
  // ---- parts of a step ----

  const note = (text) => make("p", { class: "soft" }, text);

  function step(number, name, question, ...children) {
    return make("section", { class: "step" }, make("h4", {}, number + " · ", make("b", {}, name), ": " + question), ...children);
  }

  /** Rows of [label, numbers, end], drawn as colored strips of one scale, or as a table of numbers. */
  function vectors(rows) {
    const known = rows.filter(([, numbers]) => numbers);
    const most = Math.max(1e-9, ...known.flatMap(([, numbers]) => numbers.map((each) => Math.abs(each ?? 0))));
    if (inNumbers) {
      return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": known.map(([label]) => label).join(", ") },
        make("table", { class: "numbers" }, make("tbody", {}, ...known.map(([label, numbers, end]) => make("tr", {},
          make("th", { scope: "row" }, label), ...numbers.map((each) => make("td", {}, formatNumber(each))), make("td", {}, end ?? ""))))));
    }
    return make("div", { class: "strips" }, ...known.flatMap(([label, numbers, end]) => [
      make("span", { class: "strip-label", title: label }, label),
      makeStrip(numbers, most, label),
      make("span", { class: "strip-end" }, end ?? ""),
    ]));
  }

  const replaced = (line) => (shown.cell.replaced.includes(line) ? make("p", { class: "replaced" }, LINES[line]) : null);

  // ---- the tokens of the cell ----

  function tokens() {
    const { view, chosen } = shown;
    const row = view.rows[chosen.row];
    return { row, read: row.read ?? row.token, produced: row.produced, key: view.columns[chosen.column] };
  }

  function sentence() {
    const { cell, chosen } = shown;
    const { read, produced, key } = tokens();
    const weight = cell.weights[chosen.column];
    const share = formatPercent(weight);
    if (!cell.visible[chosen.column]) return "The mask hides " + quoted(key) + " from " + quoted(read) + ": the weight is 0, whatever the score.";
    const ablated = cell.replaced.includes("output") ? "This head is ablated, so nothing of this reaches the model. " : "";
    const from = produced === undefined ? quoted(read) + " takes " : "To write " + quoted(produced) + ", having read " + quoted(read) + ", this head takes ";
    return ablated + from + share + " of what it brings from " + (produced === undefined ? "" : "the token ") + quoted(key) + ".";
  }

  // ---- the steps ----

  function score() {
    const { cell, chosen } = shown;
    const { read, key } = tokens();
    const isAdditive = cell.method === "additive";
    const of = cell.method === "linear" ? ["φ(query) of ", "φ(key) of "] : ["query of ", "key of "];
    const total = cell.divisor === 1
      ? "Their sum is the score: " + formatNumber(cell.sum)
      : cell.location
      ? "Their sum times the logarithm of the source's length, to the base 20: " + formatNumber(cell.sum) + " × " + formatNumber(1 / cell.divisor) + " = " + formatNumber(cell.sum / cell.divisor)
      : formatNumber(cell.sum) + " / √" + cell.query.length + " = " + formatNumber(cell.sum / cell.divisor);
    const bias = cell.bias === null ? "" : "; with the bias for the distance, " + formatNumber(cell.bias) + ": " + formatNumber(cell.sum / cell.divisor + cell.bias);
    return step(1, "Score", "does the query ask for what the key offers? (" + cell.query.length + " dimensions)",
      vectors([
        [of[0] + quoted(read), cell.query],
        [of[1] + quoted(key), cell.key],
        ...(cell.location ? [["previous weights", cell.location]] : []),
        [isAdditive ? cell.location ? "v · tanh(their sum)" : "v · tanh(query + key)" : "product", cell.products, "Σ = " + formatNumber(cell.sum)],
      ]),
      note(total + bias + (cell.visible[chosen.column] ? "." : "; the mask hides this key.")), replaced("scores"));
  }

  function shares() {
    const { cell, view, chosen } = shown;
    const order = cell.weights.map((weight, column) => [weight, column]).sort((a, b) => b[0] - a[0]).map(([, column]) => column);
    const kept = new Set([chosen.column, ...order].slice(0, MOST_BARS + 1));
    const columns = [...kept].slice(0, MOST_BARS).sort((a, b) => a - b);
    const bars = columns.map((column) => make("div", { class: column === chosen.column ? "key-bar on" : "key-bar" },
      make("i", { style: "height: " + Math.round(3 + 40 * (cell.weights[column] ?? 0)) + "px" }),
      make("span", {}, visibleToken(view.columns[column])),
      make("span", { class: "muted" }, cell.visible[column] ? formatNumber(cell.scores[column]) : "hidden"),
      make("b", {}, (cell.weights[column] ?? 0).toFixed(3))));
    const rest = cell.weights.length - columns.length;
    const restSum = 1 - columns.reduce((sum, column) => sum + (cell.weights[column] ?? 0), 0);
    const how = cell.method === "linear" ? "Each score is divided by the sum of the row." : "e to the power of each score, divided by the sum over the row.";
    return step(2, cell.method === "linear" ? "Shares" : "Softmax", "the scores of the row become shares",
      make("div", { class: "bars" }, make("div", { class: "key-bar names-of-bars" }, make("span", {}, "key"), make("span", { class: "muted" }, "score"), make("b", {}, "share")), ...bars),
      note(how + (rest ? otherKeys(rest, " The") + (rest === 1 ? " has " : " have ") + formatPercent(Math.max(0, restSum)) + " together." : "")), replaced("weights"));
  }

  function values() {
    const { cell, view, chosen } = shown;
    const rows = cell.values.map(({ column, numbers }) => [(cell.weights[column] ?? 0).toFixed(3) + " × value of " + quoted(view.columns[column]), numbers]);
    if (cell.others) rows.push([otherKeys(cell.num_others, "the"), cell.others]);
    const back = cell.rotated_back ? " The sum is rotated back by the position of the query (VO-RoPE)." : "";
    return step(3, "Values", "each key gives its value, in proportion to its share",
      vectors([...rows, ["head " + chosen.head + " brings", cell.output]]), back ? note(back) : null, replaced("output"));
  }

  function stream() {
    const { cell, chosen } = shown;
    if (!cell.stream.length) {
      const [title, text] = READERS[cell.attention_type] ?? READERS.additive;
      return step(4, title, "the sum is the context", note(text));
    }
    const [own, ...later] = cell.stream;
    const normalized = cell.norm === "post" ? ", normalized" : "";
    const rows = [
      ["head " + chosen.head + " through W_o", cell.head_addition],
      ["all heads and bias", own.added],
      ["stream before", own.before],
      ["stream after" + normalized, own.after],
    ];
    const then = later.flatMap(({ name, added, after }) => [[name + " adds", added], ["stream after" + normalized, after]]);
    return [
      step(4, "Back into the stream", "W_o, add" + (cell.norm === "post" ? ", normalize" : ""), vectors(rows), replaced("sublayer"), replaced("stream")),
      step(5, "The rest of the layer", later.map(({ name }) => name).join(", then "), vectors(then)),
    ];
  }

  function answer(number) {
    const { cell, view, chosen } = shown;
    if (!cell.answer) {
      const next = chosen.layer < view.layers ? "encoder layer " + (chosen.layer + 1) : "every cross-attention, as keys and values";
      return step(number, "Next", "this state goes on to " + next);
    }
    const produced = cell.answer.tokens.find(({ token }) => token === cell.answer.produced);
    const chips = cell.answer.tokens.map(({ token, logit, probability }) => make("span", { class: token === cell.answer.produced ? "chip win" : "chip" },
      make("b", {}, isolated(visibleToken(token))), " " + formatPercent(probability), make("span", { class: "muted" }, " logit " + formatNumber(logit))));
    const [before, without] = formatPercents(produced.probability, produced.without);
    const change = before === without ? " stays at " + before
      : (produced.without < produced.probability ? " falls from " : " rises from ") + before + " to " + without;
    return step(number, "The answer", "the state after the last layer scores every token",
      make("div", { class: "chips" }, ...chips),
      note(cell.replaced.includes("output") ? "This head is ablated already." : "Without this head, " + quoted(produced.token) + change + "."));
  }

  return { sentence, score, shares, values, stream, answer };
}
