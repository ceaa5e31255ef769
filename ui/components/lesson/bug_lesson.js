// A lesson about a bug: a question, then the correct and the broken run side by side.

import { drawMap, drawRowNames, layoutMap, rowText } from "../../web/attention_map.js";
import { inNextFrame, onAppearanceChange, themeColors } from "../../web/canvas.js";
import { make, setText, uniqueName, partsOf } from "../../web/dom.js";
import { formatNumber, formatPercent, formatSeconds, headName } from "../../web/format.js";
import { makeLights } from "../../web/lights.js";
import { makeSeriesChart, sampleOf } from "../../web/series_chart.js";
import { paragraphs } from "./attention_lesson.js";

// Of the page, not of one mount: the component may be mounted again while a lesson is open.
const revealed = new Set(); // lessons with a shown answer
const guesses = new Map(); // the visitor's predictions, by lesson

/** Make it in the component's elements; `train(name)` is called to train a lesson's two runs. Returns { show(lesson) }. */
export function makeBugLesson(element, train) {
  const part = partsOf(element);

  const SIDES = ["right", "broken"];
  const SHOWN_TOKENS = 8;
  const LETTER = { right: "A", broken: "B" };
  const blockName = uniqueName("block");
  const stepGroup = uniqueName("by-step");
  let lesson = null;
  let charts = [];
  let block = null;

  const percentTick = (share) => Math.round(100 * share) + " %";

  // ---- text ----

  const fillText = (name, section) => part(name).replaceChildren(...paragraphs(lesson.text[section]));

  /** "A right", with a sample of its line. */
  const sideName = (side) => [sampleOf(SIDES.indexOf(side)), make("span", {}, LETTER[side] + "  " + side)];

  // ---- curves ----

  function seriesOf(read) {
    return SIDES.map((side) => {
      const [at, mean] = read(lesson.sides[side]);
      const known = mean.map((value, index) => [at[index], value]).filter(([, value]) => value != null);
      return { letter: LETTER[side], label: side, at: known.map(([step]) => step),
        mean: known.map(([, value]) => value), sd: known.map(() => null) };
    });
  }

  function chartsOf() {
    const byStep = { xTitle: "step", name: String, group: stepGroup };
    const number = { ...byStep, exact: formatNumber, log: true, canBeLog: true };
    const share = { ...byStep, format: percentTick, exact: (value) => formatPercent(value), fixed: [0, 1] };
    const curve = (name) => seriesOf((side) => [side.curve.step, side.curve[name]]);
    const evaluated = (name) => seriesOf((side) => [side.evaluations.step, side.evaluations[name]]);
    return [
      { ...number, title: "Training loss (nats per token)", series: curve("loss"), caption: "The loss that the run optimizes; lower is better." },
      { ...share, title: "Free-running exact match", series: evaluated("exact_match"), caption: "Whole outputs correct when decoding freely." },
      { ...share, title: "Teacher-forced accuracy", series: evaluated("token_accuracy"), caption: "Tokens predicted correctly when the decoder reads the target, as in training." },
      { ...number, title: "Gradient norm (all parameters)", series: curve("gradient_norm"), caption: "L2 norm before clipping." },
    ];
  }

  // ---- metrics ----

  const METRICS = [
    ["training loss, first", "first_loss", formatNumber],
    ["training loss, last", "train_loss", formatNumber],
    ["validation loss", "validation_loss", formatNumber],
    ["teacher-forced tokens", "token_accuracy", (value) => formatPercent(value)],
    ["exact match, in padded batches", "exact_match", (value) => formatPercent(value)],
    ["exact match, each input alone", "exact_match_unpadded", (value) => formatPercent(value)],
    ["step with the first 90 % exact match", "step_of_90_percent", (value) => (value == null ? "never" : String(value))],
  ];

  /** The first tokens of an output, as many as fit a column. */
  function firstTokens(answer) {
    const tokens = answer.split(" ");
    return tokens.length > SHOWN_TOKENS ? tokens.slice(0, SHOWN_TOKENS).join(" ") + " …" : answer;
  }

  function showMetrics() {
    const metrics = SIDES.map((side) => lesson.sides[side].figures);
    const { input, expected } = metrics[0];
    const row = (label, texts, kind) => make("tr", {}, make("th", { scope: "row" }, label),
      ...texts.map((text) => make("td", { class: kind }, text)));
    const answers = metrics.map(({ answer, stopped }) => firstTokens(answer || "(empty)") + (stopped ? "" : " (no <EOS>)"));
    part("metrics").replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "after " + metrics[0].steps.toLocaleString("en") + " steps"),
        ...SIDES.map((side) => make("th", { scope: "col", class: "number" }, LETTER[side] + "  " + side)))),
      make("tbody", {}, ...METRICS.map(([label, name, write]) => row(label, metrics.map((each) => write(each[name])), "number")),
        row("output for " + input, answers, "number answer")));
    setText(part("metrics-note"), "Exact match is free-running, on 500 test inputs. The correct output for " + input + " is " + expected + ".");
  }

  // ---- attention ----

  function makeMap(of, layer, head, room) {
    const value = { rows: of.rows, columns: of.columns, goldCells: [], row: null };
    const [names, map] = [make("canvas", { "aria-hidden": "true" }), make("canvas", { role: "img", "aria-label": "attention map" })];
    const layout = layoutMap(map.getContext("2d"), value, Math.min(room, 420));
    const theme = themeColors();
    drawRowNames(names, layout, value, of.rows.length, theme);
    drawMap(map, layout, value, of.maps[layer][head], { showGold: false, cursor: null, revealed: of.rows.length }, theme);
    const texts = of.maps[layer][head].map((row, at) => {
      const most = row.indexOf(Math.max(...row));
      return rowText(of.rows[at]) + ": " + of.columns[most] + " " + row[most].toFixed(2);
    });
    map.setAttribute("aria-label", "strongest weight of each row: " + texts.join("; "));
    return make("div", { class: "map" }, make("p", { class: "name" }, headName({ layer: layer + 1, head: head + 1 })),
      make("div", { class: "row" }, names, map));
  }

  function showMaps() {
    const box = part("maps");
    if (!box.clientWidth) return; // hidden
    const room = SIDES.length * 340 < box.clientWidth ? box.clientWidth / 2 - 20 : box.clientWidth;
    box.replaceChildren(...SIDES.map((side) => {
      const of = lesson.sides[side].attention[block];
      const last = of.maps.length - 1;
      return make("div", {}, make("h4", {}, ...sideName(side)), ...of.maps[last].map((_, head) => makeMap(of, last, head, room)));
    }));
  }

  function showBlocks() {
    part("blocks").querySelectorAll("label").forEach((label) => label.remove());
    for (const each of lesson.blocks) {
      const radio = make("input", { type: "radio", name: blockName, onchange: () => { block = each.block; showMaps(); } });
      radio.checked = each.block === block;
      part("blocks").append(make("label", {}, radio, each.name));
    }
    setText(part("maps-note"), "The same padded input for both, with teacher forcing as in training; last layer. Rows (queries): token to produce "
      + "← previous token. Columns (keys): attended tokens. A stronger color is more attention.");
  }

  // ---- lesson ----

  function showAnswer() {
    const open = revealed.has(lesson.name);
    part("revealed").hidden = !open;
    part("reveal").hidden = open;
    if (!open) return;
    fillText("happens", "What happens");
    fillText("away", "What gives it away");
    fillText("fix", "The fix");
    setText(part("train-note"), "Trains both runs here with the same seed and data. Recorded training time of both: " + formatSeconds(lesson.seconds) + ".");
    part("legend").replaceChildren(...SIDES.map((side) => make("li", {}, ...sideName(side))));
    for (const chart of charts) chart.destroy();
    charts = chartsOf().map(makeSeriesChart);
    part("charts").replaceChildren(...charts.map((chart) => chart.box));
    showMetrics();
    showBlocks();
    part("doctors").replaceChildren(...SIDES.map((side) => {
      const { doctor, titles } = lesson.sides[side];
      return make("div", {}, make("h4", {}, ...sideName(side)), makeLights({ ...doctor, titles }));
    }));
    redraw();
  }

  function show(next) {
    lesson = next;
    setText(element.querySelector(".lesson .title"), lesson.title); // the articles of other lessons have titles, too
    setText(part("breaks"), lesson.broken);
    fillText("question", "Predict");
    part("guess").value = guesses.get(lesson.name) ?? "";
    block = lesson.first_block in (lesson.sides?.right.attention ?? {}) ? lesson.first_block : lesson.blocks[0]?.block;
    showAnswer();
  }

  const redraw = inNextFrame(() => {
    if (lesson && revealed.has(lesson.name)) showMaps();
  });

  part("reveal").addEventListener("click", () => {
    revealed.add(lesson.name);
    showAnswer();
  });
  part("guess").addEventListener("input", () => guesses.set(lesson.name, part("guess").value));
  part("train").addEventListener("click", () => train(lesson.name));
  onAppearanceChange(element, redraw);
  return { show };
}
