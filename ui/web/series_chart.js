// A chart of several series, each a mean with a standard deviation, with its values as a table and as downloads.
//
// A series is { letter, label, at, mean, sd }: columns of equal length; sd is null for a single run. A chart is
// { title, caption, xTitle, name, series, format, exact, fixed, from, log, canBeLog, shade, group }: name(x) is an x as
// text, canBeLog whether the visitor chooses the scale; the others are those of chart.js.

import { makeChart } from "./chart.js";
import { allX } from "./chart_data.js";
import { DOT } from "./chart_drawing.js";
import { lineSample } from "./chart_legend.js";
import { make, setText } from "./dom.js";
import { download, downloadCsv, fileName } from "./files.js";

const COLORS = 8; // --series-1 … in series_chart.css
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2], [2, 6], [8, 3, 2, 3, 2, 3]];
const MARKERS = [
  DOT,
  "M-2.6-2.6H2.6V2.6H-2.6Z", // square
  "M0-3.9L3.6 2.7H-3.6Z", // triangle
  "M0-4L4 0L0 4L-4 0Z", // diamond
  "M-3.6-2.7H3.6L0 3.9Z", // triangle, point down
  "M-1.2-3.8H1.2V-1.2H3.8V1.2H1.2V3.8H-1.2V1.2H-3.8V-1.2H-1.2Z", // plus
];
const PICTURE = { width: 664, height: 400 }; // pixels

/** The look of the series with an index: series differ in more than color. */
const styleOf = (index) => ({
  color: "--series-" + ((index % COLORS) + 1),
  dash: DASHES[index % DASHES.length],
  marker: MARKERS[index % MARKERS.length],
  points: true,
  band: true,
});

/** A sample of a series' line for a legend. */
export const sampleOf = (index) => lineSample(styleOf(index));

// ---- data ----

function lineOf({ at, mean, sd }) {
  const edge = (sign) => mean.map((value, index) => (sd[index] == null || value == null ? null : value + sign * sd[index]));
  return { x: at, y: mean, low: edge(-1), high: edge(1) };
}

function dataOf({ series, from, shade = null }) {
  const xs = series.flatMap(({ at }) => at);
  const start = from ?? Math.min(0, ...xs);
  return {
    from: start, to: Math.max(start + 1, ...xs), shade, note: xs.length ? "" : "no data",
    lines: Object.fromEntries(series.map((each) => [each.letter, lineOf(each)])),
  };
}

const valueText = ({ mean, sd }, at, format) => (at < 0 ? "–" : format(mean[at]) + (sd[at] == null ? "" : " ± " + format(sd[at])));

/** [x, index in each series (-1 if missing)] for all x values of a chart, in order. */
const rowsOf = ({ series }) => allX(series.map(({ at }) => ({ x: at }))).map((x) => [x, ...series.map(({ at }) => at.indexOf(x))]);

function tableOf(chart) {
  const head = make("tr", {}, make("th", { scope: "col" }, chart.xTitle),
    ...chart.series.map((series) => make("th", { scope: "col", class: "number" }, series.letter + " " + series.label)));
  const rows = rowsOf(chart).map(([x, ...ats]) => make("tr", {}, make("th", { scope: "row" }, chart.name(x)),
    ...ats.map((at, which) => make("td", { class: "number" }, valueText(chart.series[which], at, chart.exact)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function saveCsv(chart) {
  const head = [chart.xTitle, ...chart.series.flatMap(({ label }) => [label + ", mean", label + ", standard deviation"])];
  const rows = rowsOf(chart).map(([x, ...ats]) => [x, ...ats.flatMap((at, which) =>
    at < 0 ? [null, null] : [chart.series[which].mean[at], chart.series[which].sd[at]])]);
  downloadCsv([head, ...rows], fileName(chart.title, "csv"));
}

/** "step 400: A 0.0213 ± 0.001 · B –" */
function readoutAt(chart, x) {
  const values = chart.series.map((series) => series.letter + " " + valueText(series, series.at.indexOf(x), chart.exact));
  return chart.xTitle + " " + chart.name(x) + ": " + values.join(" · ");
}

// ---- chart ----

/** Make a chart: lines, readout, caption, downloads and table. Returns { box, destroy }. */
export function makeSeriesChart(chart) {
  const place = make("div", { class: "chart" });
  const readout = make("p", { class: "readout muted" });
  const reset = make("button", { type: "button", hidden: true, onclick: () => lines.resetZoom() }, "reset zoom");
  const lines = makeChart(place, {
    label: chart.title + ". The table below has all values",
    series: chart.series.map(({ letter, label }, index) => ({ ...styleOf(index), key: letter, label: letter + "  " + label, endLabel: letter })),
    xLabel: chart.xTitle, format: chart.format, exact: chart.exact, fixed: chart.fixed ?? null, log: chart.log ?? false,
    group: chart.group,
    onCursor: (x) => setText(readout, x === null ? "" : readoutAt(chart, x)),
    onZoom: (range) => { reset.hidden = range === null; },
  });
  const savePng = async () => (await lines.toCanvas({ title: chart.title, ...PICTURE }))
    .toBlob((blob) => download(blob, fileName(chart.title, "png")));
  const tools = make("div", { class: "tools" },
    make("button", { type: "button", title: "download this chart as a picture", onclick: savePng }, "PNG"),
    make("button", { type: "button", title: "download the values of this chart", onclick: () => saveCsv(chart) }, "CSV"));
  if (chart.canBeLog) {
    const tick = make("input", { type: "checkbox", onchange: () => lines.setLog(tick.checked) });
    tick.checked = chart.log;
    tools.append(make("label", {}, tick, "log scale"));
  }
  tools.append(reset);
  lines.setData(dataOf(chart));
  const box = make("figure", {}, make("h3", {}, chart.title), place, readout,
    make("p", { class: "muted" }, chart.caption), tools,
    make("details", { class: "chart-table" }, make("summary", {}, "Show as table"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": chart.title }, tableOf(chart))));
  return { box, destroy: lines.destroy };
}
