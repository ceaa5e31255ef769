// Why the model predicts a token: what each part adds, when it can be read off, what of the input it rests on, and which
// activations bring it back on a changed input.

import { onAppearanceChange } from "../../web/canvas.js";
import { showChoice } from "../../web/choice.js";
import { signedColor } from "../../web/colors.js";
import { make, partsOf, setText } from "../../web/dom.js";
import { formatNumber, formatPercent, isolated, tokenNamer } from "../../web/format.js";
import { makeHeatTable } from "../../web/heat_table.js";
import { onWhyAsked, openHead } from "../../web/navigation.js";
import { callServer, pollWhileVisible } from "../../web/server.js";

const METHODS = [
  ["tokens", "which tokens it rests on"],
  ["parts", "which head or layer adds to it"],
  ["lens", "from which layer on it can be read"],
  ["patching", "what brings it back on a changed input"],
];
const BLOCKS = { encoder: "encoder", decoder: "decoder", cross: "cross-attention" };
const WAIT_SECONDS = 120; // a model of 75 million parameters takes half a minute for the tokens of a long answer
const signed = (number) => (number > 0 ? "+" : "") + formatNumber(number);
const layered = (name) => name.replace(/^(\d+)( |$)/, "layer $1$2"); // "2 feed-forward" is of layer 2
const two = (number) => (number == null ? "–" : number.toFixed(2).replace("-0.00", "0.00"));

export function mount({ element, props, server, watch }) {
  const part = partsOf(element);
  const selected = { step: 0, method: "tokens", foil: null, position: null, replacement: null };
  let key = ""; // of the shown or requested explanation
  let shown = null; // the server's answer
  let isAsked = false; // from another tab; the answer is then scrolled to
  const nameOf = (token) => tokenNamer(props.value?.subwords)(token);
  const quoted = (token) => "“" + isolated(nameOf(token)) + "”";

  // ---- what each method found ----

  /** A table under a heading, which names it for screen readers too. */
  const underHeading = (heading, table) => make("div", {}, make("h4", {}, heading), makeHeatTable({ ...table, label: heading }));

  /** Bars from the middle: what adds to the logit to the right, what takes from it to the left. */
  function partsResult(answer) {
    const most = Math.max(...answer.parts.map(({ logit }) => Math.abs(logit)), 1e-9);
    const bar = (logit) => {
      const width = (50 * Math.abs(logit)) / most;
      const style = "width: " + width + "%; " + (logit < 0 ? "right: 50%" : "left: 50%") + "; background: " + signedColor(logit < 0 ? -0.8 : 0.8);
      return make("div", { class: "contribution", "aria-hidden": "true" }, make("i", { style }));
    };
    const name = ({ name, head }) => (head ? make("button", { type: "button", title: "open this head", onclick: () => openHead({ mode: "decode", ...head }) }, name) : make("span", {}, name));
    return [make("div", { class: "contributions" }, ...answer.parts.flatMap((each) => [name(each), bar(each.logit), make("span", {}, signed(each.logit))]))];
  }

  function lensResult(answer) {
    const tokens = [...new Set(answer.rows.flatMap(({ candidates }) => candidates.slice(0, 3).map(({ token }) => token)))];
    const values = answer.rows.map(({ candidates }) => tokens.map((token) => candidates.find((each) => each.token === token)?.probability ?? 0));
    const rows = answer.rows.map(({ name }) => "after " + layered(name));
    const lens = underHeading("Logit lens: the token, read off the residual stream after each sublayer",
      { rows, columns: tokens.map(nameOf), values, format: (value) => (value ? formatPercent(value, 0) : "") });
    if (!answer.answers) return [lens];
    return [lens, make("div", {}, make("h4", {}, "DecoderLens: the whole answer, if the decoder reads an earlier layer of the encoder"),
      make("table", {}, make("tbody", {}, ...answer.answers.map(({ layer, answer: tokens, matches }) => make("tr", {},
        make("th", { scope: "row" }, layer ? "encoder layer " + layer : "embedding"),
        make("td", { class: "answer-line" }, tokens.map(nameOf).join(" ")), make("td", {}, matches ? "✓ the answer" : ""))))))];
  }

  function tokensResult(answer) {
    const side = (name, labels) => {
      const values = answer.methods.map((each) => each[name]);
      const scaled = answer.methods.map((each) => {
        const most = Math.max(...[...each.source, ...each.prefix].map((value) => Math.abs(value ?? 0)), 1e-9);
        return each[name].map((value) => (value ?? 0) / most);
      });
      return underHeading(name === "source" ? "Tokens of the input" : "Tokens written before",
        { rows: answer.methods.map((each) => each.name), columns: labels.map(nameOf), values: scaled, format: two, corner: "share of the largest" });
    };
    const groups = [...new Set(answer.zeroing.map(({ name }) => name.split(".")[0]))];
    const zeroing = groups.map((block) => {
      const rows = answer.zeroing.filter(({ name }) => name.startsWith(block + "."));
      const most = Math.max(...rows.flatMap(({ values }) => values), 1e-9);
      return underHeading("Value zeroing, " + BLOCKS[block] + (block === "cross" ? "" : " self-attention"),
        { rows: rows.map(({ name }) => "layer " + name.split(".")[1]), columns: rows[0].columns.map(nameOf),
          values: rows.map(({ values }) => values), most, format: two, corner: "1 − cosine" });
    });
    return [make("div", { class: "grids" }, side("source", answer.source), ...(answer.prefix.length ? [side("prefix", answer.prefix)] : []), ...zeroing)];
  }

  function patchingResult(answer) {
    const symbols = answer.source.slice(1, -1);
    const option = (value, text, isChosen) => make("option", { value, selected: isChosen }, text);
    const [changed] = answer.changed;
    const position = make("select", { "aria-label": "token to change", onchange: (event) => change({ position: Number(event.target.value), replacement: null }) },
      ...symbols.map((token, at) => option(at, at + 1 + ": " + nameOf(token), at === changed - 1)));
    const replacement = make("select", { "aria-label": "changed to", onchange: (event) => change({ position: changed - 1, replacement: event.target.value }) },
      ...answer.symbols.filter((token) => token !== symbols[changed - 1]).map((token) => option(token, nameOf(token), token === answer.corrupted[changed - 1])));
    const grids = answer.grids.map((grid) => underHeading(grid.name[0].toUpperCase() + grid.name.slice(1) + ", " + BLOCKS[grid.block]
      + (grid.positions ? ", by " + (grid.positions === "source" ? "input token" : "token written") : ""),
    { rows: grid.rows.map(layered),
      columns: grid.positions ? grid.columns.map(nameOf) : grid.columns.map((head) => "head " + head), values: grid.restored,
      outlined: grid.is_restored, format: two }));
    return [
      make("p", { class: "change" }, "Changed input: ", make("b", { class: "answer-line" }, isolated(answer.corrupted.map(nameOf).join(" "))), " token ", position, " becomes ", replacement),
      make("p", { class: "muted" }, "Each cell: one activation of the original input is put into the run on the changed input. 1: the difference of the two logits is fully restored; 0: nothing. Outlined: the original answer is back."),
      make("div", { class: "grids" }, ...grids),
    ];
  }

  const RESULTS = { parts: partsResult, lens: lensResult, tokens: tokensResult, patching: patchingResult };

  /** One sentence with the answer. */
  function sentence(answer) {
    const question = answer.question[0].toUpperCase() + answer.question.slice(1).replace(/\??$/, "? ");
    if (selected.method === "parts") {
      const [most] = answer.parts;
      return question + "The logit" + (selected.foil ? " difference" : "") + " is " + formatNumber(answer.sum) + "; the largest part, " + signed(most.logit) + ", comes from " + most.name
        + ". " + (answer.num_frozen === 1 ? "The parts sum to it exactly, with the scale of the final norm as it was." : "The parts sum to it with the scales of " + answer.num_frozen + " norms as they were: this model normalizes after every addition.");
    }
    if (selected.method === "lens") {
      return question + (answer.first == null ? "It is not the most likely token at the end." : "It is the most likely token from “after " + layered(answer.rows[answer.first].name) + "” on.");
    }
    if (selected.method === "tokens") {
      const [integrated] = answer.methods;
      const read = [...answer.source.map((token, at) => [token, integrated.source[at], " of the input"]),
        ...answer.prefix.map((token, at) => [token, integrated.prefix[at], " written before"])];
      const ranked = read.filter(([, value]) => value > 0).sort((one, other) => other[1] - one[1]).slice(0, 2);
      const most = Math.max(...read.map(([, value]) => Math.abs(value ?? 0)), 1e-9);
      const named = ranked.map(([token, value, where]) => quoted(token) + where + " (" + two(value / most) + ")");
      const gap = Math.abs(answer.gap) > 0.01 ? " The integral is off by " + formatPercent(Math.abs(answer.gap)) + "." : "";
      return question + (named.length ? "Integrated gradients name " + named.join(", then ") + "." : "By integrated gradients, no token speaks for it.") + gap;
    }
    const [changed] = answer.changed;
    return question + "With " + quoted(answer.corrupted[changed - 1]) + " for " + quoted(answer.source[changed]) + ", the logit difference falls from "
      + formatNumber(answer.clean_difference) + " to " + formatNumber(answer.corrupted_difference) + ".";
  }

  // ---- controls ----

  function change(choice) {
    Object.assign(selected, choice);
    show();
    refreshNow();
  }

  function show() {
    const value = props.value;
    part("empty").hidden = Boolean(value);
    part("body").hidden = !value;
    if (!value) return;
    selected.step = Math.min(selected.step, value.tokens.length - 1);
    showChoice(part("steps"), value.tokens.map((token, at) => [String(at), nameOf(token)]), String(selected.step),
      (step) => change({ step: Number(step), foil: null, position: null, replacement: null }));
    showChoice(part("methods"), METHODS, selected.method, (method) => change({ method, position: null, replacement: null }));
  }

  function draw() {
    if (!shown) return;
    setText(part("problem"), "");
    setText(part("say"), sentence(shown));
    const listed = [...new Set([...shown.candidates, ...(selected.foil ? [selected.foil] : [])])];
    part("foil").replaceChildren(make("option", { value: "" }, "any other token"),
      ...listed.map((token) => make("option", { value: token, selected: token === selected.foil }, nameOf(token))));
    part("other-label").hidden = shown.lists_all;
    part("result").replaceChildren(...RESULTS[selected.method](shown));
    part("limits-text").replaceChildren(...shown.limits.map((text) => make("p", {}, text)));
  }

  async function refresh() {
    const { value } = props;
    if (!value) return 300;
    const { run, source, tokens, interventions } = value;
    const { method, step, foil } = selected;
    const patch = method === "patching" && selected.position !== null ? { position: selected.position, replacement: selected.replacement } : {};
    const request = { run, source, tokens, ...interventions, method, step, foil, ...patch };
    const wanted = JSON.stringify([request, value.step]);
    if (wanted === key) {
      isAsked = false;
      return 300;
    }
    key = wanted;
    part("result").setAttribute("aria-busy", "true");
    const answer = await callServer(server, "why", request, WAIT_SECONDS);
    if (wanted !== key) return 0; // another explanation was requested in the meantime
    part("result").removeAttribute("aria-busy");
    if (!answer || answer.error) {
      if (!answer) key = "";
      shown = null;
      setText(part("say"), "");
      part("result").replaceChildren();
      setText(part("problem"), answer?.error ?? "The server did not answer; asking again.");
      return 1000;
    }
    shown = answer;
    if (isAsked) element.scrollIntoView(); // the page has moved meanwhile
    isAsked = false;
    if (answer.foil) selected.foil = answer.foil; // the piece of a typed word
    key = JSON.stringify([{ ...request, foil: selected.foil }, value.step]);
    draw();
    return 300;
  }

  part("foil").addEventListener("change", () => change({ foil: part("foil").value || null, position: null, replacement: null }));
  part("other").addEventListener("change", () => {
    const token = part("other").value.trim();
    if (token) change({ foil: token, position: null, replacement: null });
  });
  const refreshNow = pollWhileVisible(element, refresh);
  onWhyAsked(({ step, foil }) => {
    isAsked = true;
    change({ step, foil, method: "tokens", position: null, replacement: null });
    element.scrollIntoView();
  });
  onAppearanceChange(element, draw);
  show();
  watch("value", () => {
    show();
    refreshNow();
  });
}
