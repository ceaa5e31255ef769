// The charts of a replay: loss, what decides how good the run is, and the heads' scores, with a line at the shown training step.

import { makeChart } from "../../web/chart.js";
import { setText, uniqueName } from "../../web/dom.js";
import { formatFigure, formatNumber, formatPercent, headName } from "../../web/format.js";
import { indexAtOrBefore, isMeasured, lastStep, nearestIndex } from "../../web/history.js";

const TRAIN = { key: "train", label: "train", color: "--train", width: 1, alpha: 0.7 };
const VALIDATION = { key: "validation", label: "validation", color: "--validation", dash: [6, 3] };

/** A score of 0 to 100 as a share. */
const asShare = (score) => (score == null ? null : score / 100);

/** One line per scored head, the open one ({ layer, head } or null) on top, and the score of uniform attention, if known. */
function scoreSeries({ snapshots }, name, uniform, open) {
  const scores = snapshots.at(-1)?.[name] ?? [];
  const heads = scores.flatMap((each, layer) => each.map((_, head) => ({ layer: layer + 1, head: head + 1 })));
  const isOpen = (each) => open?.layer === each.layer && open?.head === each.head;
  const key = ({ layer, head }) => layer + "." + head;
  const others = heads.filter((each) => !isOpen(each));
  return [
    ...others.map((each, at) => ({
      key: key(each), label: at ? null : others.length < heads.length ? "other heads" : "heads", color: "--train", width: 1, alpha: 0.4,
    })),
    ...heads.filter(isOpen).map((each) => ({
      key: key(each), label: headName(each), color: "--train", width: 3,
    })),
    ...(uniform == null ? [] : [{ key: "uniform", label: "uniform", color: "--faint", width: 1.5, dash: [5, 4] }]),
  ];
}

/** The scores of each head by training step, for the keys of `scoreSeries`. */
function scoreLines({ snapshots }, name, uniform) {
  const x = snapshots.map((each) => each.step);
  const heads = (snapshots.at(-1)?.[name] ?? []).flatMap((each, layer) => each.map((_, head) => [
    layer + 1 + "." + (head + 1), { x, y: snapshots.map((snapshot) => snapshot[name]?.[layer]?.[head] ?? null) },
  ]));
  return Object.fromEntries([...heads, ["uniform", { x: [0, Math.max(1, ...x)], y: [uniform, uniform] }]]);
}

/** The first of the figures that decide that has a line on an axis from 0 to 1; exact match without any. */
const deciding = ({ latest, metrics }) =>
  (latest?.headline ?? []).find(({ measure }) => measure in metrics.evaluations && isMeasured(metrics, measure)) ?? { measure: "exact_match", name: "exact match" };

/** What evaluations are of: a validation set, or the pairs that a user's own loop watches. */
const evaluatedOn = (latest) => (latest?.watched ? "watched pairs" : "validation");

/** Make the charts in a viewer's elements; `pick(step)` is called with a pressed training step. Returns { show }. */
export function makeReplayCharts(element, pick) {
  const group = uniqueName("replay");
  const figureOf = (name) => element.querySelector("[data-chart=" + name + "]").closest("figure");
  const chart = (name, options) => makeChart(element.querySelector("[data-chart=" + name + "]"), {
    label: figureOf(name).querySelector("h3").textContent + " by training step", group, onPick: pick, ...options,
  });
  const charts = {
    loss: chart("loss", { series: [TRAIN, VALIDATION], log: true }),
    accuracy: chart("accuracy", {
      series: [VALIDATION], fixed: [0, 1], format: (share) => Math.round(100 * share) + " %", exact: (share) => formatPercent(share),
    }),
    scores: chart("scores", { series: [], fixed: [0, 1], exact: (score) => score.toFixed(2) }),
    induction: chart("induction", { series: [], fixed: [0, 1], exact: (score) => score.toFixed(2) }),
  };

  /** The values at a training step as text, by chart. */
  function figuresAt(step, { metrics, snapshots, facts, latest }, at, open, measure) {
    const { points, evaluations } = metrics;
    const trained = points.loss[nearestIndex(points.step, step)];
    const evaluated = indexAtOrBefore(evaluations.step, step);
    const scoreOf = (name) => open && snapshots[at][name]?.[open.layer - 1]?.[open.head - 1];
    const [mass, induction] = [scoreOf("attention_mass"), scoreOf("induction")];
    const head = open && headName(open) + ": ";
    return {
      loss: "train " + formatNumber(trained) + ", " + evaluatedOn(latest) + " " + formatNumber(evaluations.loss[evaluated]),
      accuracy: formatFigure({ measure, value: evaluations[measure][evaluated] })
        + (latest?.watched ? " on watched pairs" : measure === "exact_match" ? " of validation answers" : " on validation inputs"),
      scores: mass == null ? "" : head + mass.toFixed(2) + ", uniform attention: " + facts.uniform_mass.toFixed(2),
      induction: induction == null ? "" : head + induction.toFixed(2),
    };
  }

  return {
    /** Show a replay at one of its snapshots; `open` is the scored head { layer, head } that is shown large, or null. */
    show(replay, at, open) {
      const { metrics, snapshots, facts } = replay;
      const { points, evaluations } = metrics;
      const { step } = snapshots[at];
      const { measure, name } = deciding(replay);
      setText(figureOf("accuracy").querySelector("h3"), name[0].toUpperCase() + name.slice(1));
      const lines = {
        loss: { train: { x: points.step, y: points.loss }, validation: { x: evaluations.step, y: evaluations.loss } },
        accuracy: { validation: { x: evaluations.step, y: measure === "bleu" ? evaluations.bleu.map(asShare) : evaluations[measure] } },
        scores: scoreLines(replay, "attention_mass", facts.uniform_mass),
        induction: scoreLines(replay, "induction", null),
      };
      const evaluated = { ...VALIDATION, label: evaluatedOn(replay.latest) };
      charts.loss.setSeries([TRAIN, evaluated]);
      charts.accuracy.setSeries([evaluated]);
      charts.scores.setSeries(scoreSeries(replay, "attention_mass", facts.uniform_mass, open));
      charts.induction.setSeries(scoreSeries(replay, "induction", null, open));
      const shared = {
        from: 0, to: Math.max(1, lastStep(points), lastStep(evaluations)), cursor: step, stops: snapshots.map((each) => each.step),
      };
      const figures = figuresAt(step, replay, at, open, measure);
      for (const [name, each] of Object.entries(charts)) {
        const isEmpty = Object.values(lines[name]).every(({ x }) => x.length === 0);
        each.setData({ ...shared, lines: lines[name], note: isEmpty ? "no data yet" : "" });
        setText(figureOf(name).querySelector(".figures"), figures[name]);
      }
      figureOf("scores").hidden = !facts.scored_block;
      figureOf("induction").hidden = !snapshots.at(-1).induction;
    },
  };
}
