import assert from "node:assert/strict";
import test from "node:test";

import { emptyHistory, isMeasured, mergeHistory } from "../../ui/web/history.js";
import { evaluationRows, historyRows } from "../../ui/web/history_rows.js";

const points = { width: 1, from: 0, columns: { step: [1, 2], loss: [3, 2], learning_rate: [0.1, 0.2], gradient_norm: [5, 6] } };
const evaluated = { step: [0, 2], loss: [1, 0.5], token_accuracy: [0.2, 0.4], exact_match: [0, 0.3] };

function history(further) {
  const made = emptyHistory();
  mergeHistory(made, { points, evaluations: { width: 1, from: 0, columns: { ...evaluated, ...further } } });
  return made;
}

test("a run without a free-running loss has no column of it", () => {
  const made = history({});
  assert.equal(isMeasured(made, "free_running_loss"), false);
  assert.deepEqual(evaluationRows(made).at(-1), [2, 2, 0.5, 0.4, 0.3, 0.2, 6]);
  assert.equal(historyRows(made)[0].length, 7);
});

test("a measured free-running loss is in the table after the validation loss, and in the CSV file at the end", () => {
  const made = history({ free_running_loss: [null, 0.7] });
  assert.equal(isMeasured(made, "free_running_loss"), true);
  assert.deepEqual(evaluationRows(made), [[0, 3, 1, null, 0.2, 0, 0.1, 5], [2, 2, 0.5, 0.7, 0.4, 0.3, 0.2, 6]]);
  const [head, ...rows] = historyRows(made);
  assert.equal(head.at(-1), "free_running_loss");
  assert.deepEqual(rows.map((row) => row.at(-1)), [null, null, 0.7]);
});

test("BLEU and chrF of a translation follow the losses in the table, and end the CSV file", () => {
  const made = history({ bleu: [0.4, 23.6], chrf: [8, 51.6] });
  assert.equal(isMeasured(made, "bleu"), true);
  assert.equal(isMeasured(made, "free_running_loss"), false);
  assert.deepEqual(evaluationRows(made).at(-1), [2, 2, 0.5, 23.6, 51.6, 0.4, 0.3, 0.2, 6]);
  const [head, ...rows] = historyRows(made);
  assert.deepEqual(head.slice(-2), ["bleu", "chrf"]);
  assert.deepEqual(rows.at(-1).slice(-2), [23.6, 51.6]);
});
