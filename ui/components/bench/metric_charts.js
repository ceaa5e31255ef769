// The charts of the bench: loss, accuracy, learning rate and gradient norm by training step.

import { makeChart } from "../../web/chart.js";
import { setText } from "../../web/dom.js";
import { formatFigure, formatNumber, formatPercent } from "../../web/format.js";
import { indexAtOrBefore, isMeasured, lastStep, smooth } from "../../web/history.js";
import { tickText } from "../../web/ticks.js";
import { feed, isActive, selection, shownStep } from "../../web/run_feed.js";

const percentTick = (fraction) => Math.round(100 * fraction) + " %";
const GROUP = "training"; // the charts share cursor and zoom
const LOSS_SERIES = [
  { key: "raw", label: "train, per step", color: "--train", width: 1, alpha: 0.35 },
  { key: "train", label: "train", color: "--train", width: 2 },
  { key: "validation", label: "validation", color: "--validation", width: 2.2 },
];
const TOKENS = { key: "tokens", label: "tokens, teacher-forced", color: "--faint", width: 1.6, dash: [5, 4] };
const FIRST = { color: "--validation", width: 2.4 };
const ON_TRAINING = { key: "train", color: "--train", width: 1.4, alpha: 0.6 };
const SECOND = { color: "--train", width: 1.6 };
const CHRF = { measure: "chrf", name: "chrF" };
const EXACT_MATCH = { measure: "exact_match", name: "exact match" };
const SCORES = ["bleu", "chrf"]; // of 0 to 100
const TITLES = { bleu: "Translation quality", error_rate: "Error rate", token_error_rate: "Error rate" };
const TERMS = { token_accuracy: "token accuracy", exact_match: "exact match", error_rate: "error rate", token_error_rate: "token error rate" }; // in the glossary
const isShare = ({ measure }) => measure !== "perplexity" // which has no place on an axis from 0 to 1
  && measure !== "token_accuracy"; // which has a line of its own
const LABELS = { exact_match: "whole answers" }; // of other measures their name
const OWN_LOSS = { key: "own", label: "validation, own output", color: "--validation", width: 1.6, dash: [5, 4] };

/** The last step of the axis: the planned one, or a half, a quarter … of it while little has been trained. */
function axisEnd(done, planned) {
  let end = Math.max(planned, done, 1);
  while (isActive() && end / 2 >= Math.max(10, 1.15 * done)) end /= 2;
  return Math.ceil(end);
}

/** Scores of 0 to 100 as fractions, for the same axis as the accuracy of tokens. */
const asShares = (scores) => scores.map((score) => (score == null ? null : score / 100));
const scoreText = (share) => (share == null ? "–" : (100 * share).toFixed(1));

export function metricCharts(element, part) {
  let showsTraining = true; // whether the line of training pairs is shown
  let shown = [EXACT_MATCH]; // the figures that decide, the first of them in large
  const chart = (name, options) => {
    const box = part(name + "-plot");
    const reading = box.parentElement.querySelector(".reading");
    return makeChart(box, {
      group: GROUP, legend: false, xLabel: "training step", format: tickText,
      onCursor: (step, values) => setText(reading, step == null ? "" : "step " + step.toLocaleString("en") + ": " + readText(name, values)),
      ...options,
    });
  };
  const charts = {
    loss: chart("loss", {
      label: "Loss by training step",
      series: LOSS_SERIES,
    }),
    accuracy: chart("accuracy", {
      label: "Accuracy by training step", format: (share) => (shown[0].measure === "bleu" ? String(Math.round(100 * share)) : percentTick(share)),
      fixed: [0, 1], series: [TOKENS, { ...FIRST, key: "exact_match", label: LABELS.exact_match }],
    }),
    rate: chart("rate", { label: "Learning rate by training step", series: [{ key: "rate", label: "learning rate", color: "--train" }] }),
    norm: chart("norm", { label: "Gradient norm by training step", series: [{ key: "norm", label: "gradient norm", color: "--train", width: 1 }] }),
  };

  /** What evaluations are of: a validation set, or the pairs that a user's own loop watches. */
  const evaluatedOn = () => (feed.latest?.watched ? "watched pairs" : "validation");
  const lossSeries = () => LOSS_SERIES.map((each) => (each.key === "validation" ? { ...each, label: evaluatedOn() } : each));

  function readText(name, values) {
    const number = (key) => formatNumber(values[key]);
    const texts = {
      loss: () => "train " + number("raw") + ", " + evaluatedOn() + " " + number("validation")
        + (values.own == null ? "" : ", own output " + number("own")),
      accuracy: () => [...shown.filter(isShare).map(({ measure, name }) => (LABELS[measure] ?? name) + " "
        + (SCORES.includes(measure) ? scoreText(values[measure]) : formatPercent(values[measure]))), "tokens " + formatPercent(values.tokens),
        ...(values.train == null ? [] : ["training pairs " + formatPercent(values.train)])].join(", "),
      rate: () => number("rate"),
      norm: () => number("norm"),
    };
    return texts[name]();
  }

  /** The metric of an evaluation at the shown step, or the latest one. */
  function evaluated(name) {
    const { evaluations } = feed.metrics;
    const at = selection.step === null ? evaluations.step.length - 1 : indexAtOrBefore(evaluations.step, shownStep() ?? 0);
    return evaluations[name][at];
  }

  /** Show the figures that decide beside the accuracy of tokens; chrF beside BLEU, if there is no other. */
  function showMeasures(headline) {
    const measured = headline.filter(({ measure }) => measure === "perplexity" || isMeasured(feed.metrics, measure));
    shown = measured.length ? measured : [EXACT_MATCH];
    if (shown.length === 1 && shown[0].measure === "bleu") shown = [shown[0], CHRF];
    const lines = shown.filter(isShare);
    const series = lines.map(({ measure, name }, at) => ({ ...(at ? SECOND : FIRST), key: measure, label: LABELS[measure] ?? name }));
    const hasTraining = isMeasured(feed.metrics, trainingColumn());
    part("train-key").hidden = !hasTraining;
    const onTraining = hasTraining && showsTraining ? [{ ...ON_TRAINING, label: "training pairs" }] : [];
    charts.accuracy.setSeries([TOKENS, ...onTraining, ...series.reverse()]);
    const [{ measure, name }, second] = shown;
    setText(part("accuracy-title"), TITLES[measure] ?? "Accuracy");
    setText(part("quality-key"), LABELS[measure] ?? name);
    part("first-key").hidden = !lines.length;
    part("second-key").hidden = !second;
    setText(part("second-name"), second ? LABELS[second.measure] ?? second.name : "");
    part("accuracy-now").dataset.term = part("quality-key").dataset.term = TERMS[measure] ?? name;
    if (second) part("second-name").dataset.term = TERMS[second.measure] ?? second.name;
    for (const each of shown) {
      const header = { bleu: "bleu-name", error_rate: "error-name", token_error_rate: "token-error-name" }[each.measure];
      if (header) setText(part(header), each.name);
    }
  }

  /** The accuracy on training pairs to compare with what is shown: of whole answers, or else of tokens. */
  const trainingColumn = () => (shown[0].measure === "exact_match" ? "train_exact_match" : "train_token_accuracy");

  /** The first of the figures that decide at the shown step, as text. */
  function decidingText() {
    const [{ measure }] = shown;
    const loss = evaluated("loss");
    return formatFigure({ measure, value: measure !== "perplexity" ? evaluated(measure) : loss == null ? null : Math.exp(loss) });
  }

  function show() {
    const { points, evaluations } = feed.metrics;
    const weight = Number(part("smoothing").value);
    const range = { from: 0, to: axisEnd(Math.max(lastStep(points), lastStep(evaluations)), feed.latest?.steps ?? 1) };
    const line = (x, y) => ({ x, y });
    const cursor = selection.step === null ? null : shownStep();
    const best = feed.latest?.best_step;
    const waiting = feed.loading ? "loading" : feed.run === null ? "no run is chosen" : isActive() ? "waiting for the first step" : "nothing recorded";
    const empty = (columns) => (columns.step.length ? "" : waiting);
    const hasOwnLoss = isMeasured(feed.metrics, "free_running_loss");
    charts.loss.setSeries(hasOwnLoss ? [...lossSeries(), OWN_LOSS] : lossSeries());
    setText(part("validation-name"), evaluatedOn());
    part("loss-now").dataset.term = evaluatedOn() + " loss";
    part("own-loss-key").hidden = !hasOwnLoss;
    charts.loss.setData({
      ...range, cursor, note: empty(points), marks: best == null ? [] : [{ x: best, label: "best" }],
      lines: {
        raw: line(points.step, points.loss), train: line(points.step, weight ? smooth(points.loss, weight) : points.loss),
        validation: line(evaluations.step, evaluations.loss), own: line(evaluations.step, evaluations.free_running_loss),
      },
    });
    showMeasures(feed.latest?.headline ?? []);
    const answers = { tokens: evaluations.token_accuracy, train: evaluations[trainingColumn()] };
    for (const { measure } of shown.filter(isShare)) {
      answers[measure] = SCORES.includes(measure) ? asShares(evaluations[measure]) : evaluations[measure];
    }
    charts.accuracy.setData({
      ...range, cursor, note: empty(evaluations), marks: [],
      lines: Object.fromEntries(Object.entries(answers).map(([key, y]) => [key, line(evaluations.step, y)])),
    });
    if (part("rates").open) {
      setText(part("norm-when"), feed.latest?.watched ? "when the step was recorded" : "before clipping");
      charts.rate.setData({ ...range, cursor, note: empty(points), marks: [], lines: { rate: line(points.step, points.learning_rate) } });
      charts.norm.setData({ ...range, cursor, note: empty(points), marks: [], lines: { norm: line(points.step, points.gradient_norm) } });
    }
    part("overfitting").hidden = !feed.latest?.overfitting;
    setText(part("overfitting"), feed.latest?.overfitting ?? "");
    setText(part("loss-now"), formatNumber(evaluated("loss") ?? points.loss.at(-1)));
    setText(part("accuracy-now"), decidingText());
  }

  part("train-key").addEventListener("click", () => {
    showsTraining = !showsTraining;
    part("train-key").setAttribute("aria-pressed", String(showsTraining));
    show();
  });
  part("log").addEventListener("change", () => charts.loss.setLog(part("log").checked));
  part("smoothing").addEventListener("input", show);
  part("rates").addEventListener("toggle", show);
  const files = () => import("./metric_files.js");
  part("png").addEventListener("click", async () => (await files()).savePictures(charts, part("rates").open));
  part("csv").addEventListener("click", async () => (await files()).saveTable());
  return show;
}
