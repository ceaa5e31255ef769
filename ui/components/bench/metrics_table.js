// The metrics of each evaluation as a table.

import { make, setText } from "../../web/dom.js";
import { formatNumber, formatPercent } from "../../web/format.js";
import { FURTHER, isMeasured } from "../../web/history.js";
import { evaluationRows } from "../../web/history_rows.js";
import { feed } from "../../web/run_feed.js";

const SHARES = ["error_rate", "token_error_rate", "train_token_accuracy", "train_exact_match"];
const MAX_ROWS = 200;

/** Returns a function that shows the table while it is open. */
export function metricsTable(element, part) {
  let drawn = "";
  const show = () => {
    if (!part("numbers").open) return;
    const rows = evaluationRows(feed.metrics);
    const key = feed.run + " " + rows.length + " " + rows.at(-1)?.[0];
    if (key === drawn) return;
    drawn = key;
    const further = FURTHER.filter((name) => isMeasured(feed.metrics, name));
    for (const header of element.querySelectorAll("th[data-name]")) header.hidden = !further.includes(header.dataset.name);
    const formats = [String, formatNumber, formatNumber, ...further.map((name) => (SHARES.includes(name) ? formatPercent : formatNumber)),
      formatPercent, formatPercent, formatNumber, formatNumber];
    const notes = [feed.latest?.without_bleu];
    if (!rows.length) notes.push("No evaluation yet.");
    if (rows.length > MAX_ROWS) notes.push("The last " + MAX_ROWS + " of " + rows.length + " evaluations; the CSV file has all.");
    const term = (feed.latest?.watched ? "watched pairs" : "validation") + " loss";
    setText(part("evaluated-loss"), term);
    part("evaluated-loss").dataset.term = term;
    setText(part("table-note"), notes.filter(Boolean).join(" "));
    element.querySelector("tbody").replaceChildren(...rows.slice(-MAX_ROWS).map((row) =>
      make("tr", {}, ...row.map((value, at) => make("td", {}, formats[at](value))))));
  };
  part("numbers").addEventListener("toggle", show);
  return show;
}
