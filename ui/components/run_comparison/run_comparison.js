// Several runs compared: paired wins, metrics, differing settings, and curves by step and by length.

import { make, setText, partsOf, uniqueName } from "../../web/dom.js";
import { formatNumber, formatPercent } from "../../web/format.js";
import { makeSeriesChart, sampleOf } from "../../web/series_chart.js";

export function mount({ element, props, watch }) {
  const part = partsOf(element);

  const FEW_SETTINGS = 6; // more are folded: a Transformer and a GRU differ in fourteen
  const FEW_PAIRS = 3;
  const LETTERS = "ABCDEFGHIJKLMNOPQRST";
  let charts = [];

  const counted = (number) => number.toLocaleString("en");
  const titleOf = (value, name) => value.runs.find((run) => run.run === name).title;
  const groupName = (group) => group.label + (group.n > 1 ? " (" + group.n + " seeds)" : "");

  // ---- tables ----

  function fill(table, head, rows) {
    const cell = (text, at, tag) => make(tag, { scope: tag === "td" ? false : "col", class: at ? "number" : false }, text);
    table.replaceChildren(
      make("thead", {}, make("tr", {}, ...head.map((text, at) => cell(text, at, "th")))),
      make("tbody", {}, ...rows.map(([kind, first, ...rest]) => make("tr", { class: kind },
        make("th", { scope: "row" }, first), ...rest.map((text, at) => cell(text, at + 1, "td"))))));
  }

  const points = (sd) => (100 * sd).toFixed(2);
  const share = ({ mean, sd }) => formatPercent(mean, 2) + (sd == null ? "" : " ± " + points(sd));
  const plain = (digits) => ({ mean, sd }) => mean.toFixed(digits) + (sd == null ? "" : " ± " + sd.toFixed(digits));
  const METRICS = [
    ["exact match", "exact_match", share],
    ["free-running tokens", "token_accuracy_free_running", share],
    ["teacher-forced tokens", "token_accuracy", share],
    ["loss", "loss", plain(4)],
    ["training time, s", "seconds", ({ mean, sd }) => (mean ? plain(1)({ mean, sd }) : "–")], // imported ones have none
  ];
  const WRITE = { bleu: plain(2), perplexity: plain(4) }; // all others that can decide are shares
  /** The metrics of all runs: what decides comes first, chrF after BLEU. */
  function metricsOf({ headline: { measures } }) {
    const first = measures.flatMap(({ measure, name }) => [[name, measure, WRITE[measure] ?? share], ...(measure === "bleu" ? [["chrF", "chrf", plain(2)]] : [])]);
    return [...first, ...METRICS.filter(([, key]) => !first.some(([, other]) => other === key))];
  }

  const quality = ({ copying }) => "The sources themselves have " + copying.bleu_name + " " + copying.bleu.toFixed(2) + " and chrF "
    + copying.chrf.toFixed(2) + ". sacreBLEU signatures: " + copying.bleu_signature + " and " + copying.chrf_signature + ".";

  function metricRows(value) {
    const measured = metricsOf(value);
    return value.groups.flatMap((group, index) => {
      const members = value.runs.filter((run) => group.runs.includes(run.run));
      const of = (run, name) => [
        ...measured.map(([, key, write]) => write({ mean: run[key], sd: null })),
        counted(run.parameters), run.weights + ", step " + counted(run.step),
      ];
      if (group.n === 1) return [["", LETTERS[index] + "  " + group.label, ...of(members[0])]];
      const metrics = measured.map(([, key, write]) => write(group.figures[key]));
      const parameters = counted(members[0].parameters);
      return [["group", LETTERS[index] + "  " + groupName(group), ...metrics, parameters, ""],
        ...members.map((run) => ["member", run.title, ...of(run)])];
    });
  }

  function showSettings(value) {
    const rows = Object.entries(value.settings).map(([key, values]) => ["", key, ...values.map((each) => each ?? "–").map(String)]);
    part("differing").hidden = rows.length === 0;
    part("differing").open = rows.length <= FEW_SETTINGS;
    setText(element.querySelector(".differing > summary"), "Settings that differ: " + rows.length);
    fill(part("settings"), ["setting", ...value.groups.map((group, index) => LETTERS[index] + "  " + group.label)], rows);
    setText(part("same"), rows.length ? "" : "No setting differs" + (value.groups.length === 1 ? " except the seed." : "."));
  }

  /** One sentence per pair of runs; with more than a few pairs, one sentence and a folded table. */
  function showVerdict(value) {
    const { groups, pairs, headline: { measures: [deciding] } } = value;
    if (pairs.length <= FEW_PAIRS) return part("verdict").replaceChildren(...pairs.map((pair) => make("p", {}, pair.in_words)));
    const table = make("table");
    if (deciding.measure === "bleu") return showBleuTable(value, table);
    fill(table, ["first run", "second run", "only first correct", "only second correct", "ties", "difference (points)", "95 % interval", "p"],
      pairs.map((pair) => ["", titleOf(value, pair.first), titleOf(value, pair.second),
        ...[pair.wins, pair.losses, pair.ties].map(counted), ...pair.points, pair.p.replace("p = ", "")]));
    const parts = groups.map((group) => groupName(group) + " " + (WRITE[deciding.measure] ?? share)(group.figures[deciding.measure]));
    showTable(capitalized(deciding.name) + ": " + parts.join(", ") + ".", pairs, table,
      "Counts are inputs that only one of the two runs answers exactly. p is the p-value of the exact McNemar test: "
      + "the probability of a split at least as uneven if both runs were equally accurate.");
  }

  /** The same for translations: differences in BLEU and chrF. */
  function showBleuTable(value, table) {
    const { groups, pairs, translation: { copying, resamples, seed } } = value;
    fill(table, ["first run", "second run", copying.bleu_name, "95 % interval", "p", "chrF", "95 % interval", "p"],
      pairs.map((pair) => ["", titleOf(value, pair.first), titleOf(value, pair.second),
        ...["bleu", "chrf"].flatMap((name) => [...pair.quality[name].points, pair.quality[name].p.replace("p = ", "")])]));
    const parts = groups.map((group) => groupName(group) + " " + plain(1)(group.figures.bleu));
    showTable(copying.bleu_name + ": " + parts.join(", ") + ".", pairs, table,
      "Differences between the first run and the second, by paired bootstrap resampling of the test pairs: "
      + counted(resamples) + " resamples, seed " + seed + ".");
  }

  function showTable(verdict, pairs, table, explanation) {
    part("verdict").replaceChildren(
      make("p", {}, verdict),
      make("details", {}, make("summary", {}, "Pairwise comparison: " + pairs.length + " pairs of runs"),
        make("p", {}, explanation),
        make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "pairwise comparison of the runs" }, table)));
  }

  // ---- charts ----

  const named = (value, curves) => value.groups.map((group, index) => ({
    letter: LETTERS[index], label: groupName(group), ...curves(group, index),
  }));
  const percentTick = (share) => Math.round(100 * share) + " %";
  const capitalized = (text) => text[0].toUpperCase() + text.slice(1);
  const percentExact = (share) => formatPercent(share);
  const stepGroup = uniqueName("by-step");
  const lengthGroup = uniqueName("by-length");

  function chartsOf(value) {
    const band = value.groups.some((group) => group.n > 1)
      ? " Bands: ± one standard deviation over the seeds." : "";
    const [deciding] = value.headline.measures;
    const byStep = { xTitle: "step", name: String, group: stepGroup };
    const charts = [
      {
        ...byStep, title: "Validation loss", series: named(value, (group) => group.by_step.validation_loss),
        log: true, canBeLog: true, exact: formatNumber,
        caption: "By training step, in nats per token; lower is better." + band,
      },
      deciding.measure === "bleu" ? {
        ...byStep, title: deciding.name + " while training", series: named(value, (group) => group.by_step.bleu),
        exact: formatNumber, caption: "By training step, on validation inputs, decoded greedily." + band,
      } : deciding.measure.endsWith("error_rate") ? {
        ...byStep, title: deciding.name + " while training", series: named(value, (group) => group.by_step[deciding.measure]),
        format: percentTick, exact: percentExact, fixed: [0, 1],
        caption: "By training step, on validation inputs, free-running; lower is better." + band,
      } : {
        ...byStep, title: "Exact match while training", series: named(value, (group) => group.by_step.exact_match),
        format: percentTick, exact: percentExact, fixed: [0, 1],
        caption: "By training step: whole outputs correct on validation inputs, free-running." + band,
      },
    ];
    const { lengths } = value;
    if (!lengths) return charts;
    const [first, last] = lengths.trained;
    const limits = Object.entries(lengths.limits).map(([run, limit]) => " " + titleOf(value, run) + " stops earlier: " + limit + ".").join("");
    const byLength = {
      group: lengthGroup, xTitle: lengths.unit, name: (length) => length + (length < first || length > last ? " (not in training)" : ""),
      format: percentTick, exact: percentExact, fixed: [0, 1], from: 0.5,
      shade: { from: first - 0.5, to: last + 0.5, label: "trained lengths" },
    };
    return [...charts,
      {
        ...byLength, title: "Exact match by length", series: named(value, (_, index) => lengths.groups[index].exact_match),
        caption: "By " + lengths.unit + ", up to " + Math.max(...lengths.inputs) + " held-out inputs each; shaded: the trained lengths." + limits,
      },
      {
        ...byLength, title: "Token accuracy by length", series: named(value, (_, index) => lengths.groups[index].token_accuracy),
        caption: "Free-running: fraction of the expected tokens, EOS included, that were produced at the correct position.",
      }];
  }

  // ---- comparison ----

  function show() {
    const value = props.value;
    const hasResult = Boolean(value?.runs);
    part("result").hidden = !hasResult;
    part("working").hidden = !value?.progress;
    part("empty").hidden = Boolean(value);
    if (value?.progress) {
      part("bar").value = value.progress.done;
      setText(part("progress-text"), "Measuring " + value.progress.run + " … " + Math.round(100 * value.progress.done) + " %");
    }
    if (!hasResult) return;
    setText(part("heading"), value.task + ": " + counted(value.sequences) + " held-out inputs, the same for all runs");
    part("legend").replaceChildren(...value.groups.map((group, index) =>
      make("li", {}, sampleOf(index), make("span", {}, LETTERS[index] + "  " + groupName(group)))));
    showVerdict(value);
    setText(part("cautions"), value.cautions.join(" "));
    fill(part("metrics"), ["run", ...metricsOf(value).map(([label]) => label), "parameters", "weights"], metricRows(value));
    setText(part("metrics-note"), "Free-running: the decoder reads its own output; teacher-forced: the decoder reads the target."
      + (value.translation ? " " + quality(value.translation) : value.headline.without_bleu && " " + value.headline.without_bleu)
      + (value.groups.some((group) => group.n > 1) ? " ±: standard deviation over the seeds, in percentage points for percentages." : ""));
    showSettings(value);
    for (const chart of charts) chart.destroy();
    charts = chartsOf(value).map(makeSeriesChart);
    part("charts").replaceChildren(...charts.map((chart) => chart.box));
  }

  show();
  watch("value", show);
}
