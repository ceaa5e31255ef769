// The metrics of one run as rows of a table and of a CSV file; see history.js.

import { FURTHER, isMeasured, nearestIndex } from "./history.js";

/**
 * One row per evaluation of the charts with all metrics; per-step metrics are those of the nearest step. Those that
 * only some runs have follow the validation loss.
 */
export function evaluationRows({ points, evaluations }) {
  const further = FURTHER.filter((name) => isMeasured({ evaluations }, name));
  return evaluations.step.map((step, row) => {
    const near = nearestIndex(points.step, step);
    return [
      step,
      points.loss[near] ?? null,
      evaluations.loss[row],
      ...further.map((name) => evaluations[name][row]),
      evaluations.token_accuracy[row],
      evaluations.exact_match[row],
      points.learning_rate[near] ?? null,
      points.gradient_norm[near] ?? null,
    ];
  });
}

/** The metrics of the charts as rows of a CSV file, one per step; cells without a value are empty. */
export function historyRows({ points, evaluations }) {
  const further = FURTHER.filter((name) => isMeasured({ evaluations }, name));
  const head = ["step", "train_loss", "learning_rate", "gradient_norm",
    "validation_loss", "token_accuracy", "exact_match", ...further];
  const rowOfStep = new Map();
  const rowAt = (step) => rowOfStep.get(step) ?? rowOfStep.set(step, Array(head.length).fill(null)).get(step);
  const put = (columns, names, from) => columns.step.forEach((step, row) => {
    rowAt(step)[0] = step;
    names.forEach((name, at) => (rowAt(step)[from + at] = columns[name][row]));
  });
  put(points, ["loss", "learning_rate", "gradient_norm"], 1);
  put(evaluations, ["loss", "token_accuracy", "exact_match", ...further], 4);
  return [head, ...[...rowOfStep.values()].sort((a, b) => a[0] - b[0])];
}
