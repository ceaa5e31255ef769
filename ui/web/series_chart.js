// A chart of several series, each a mean with a standard deviation: legend, bands, table and downloads around a plot.
//
// A series is { letter, label, n, at, mean, sd }: sd is null for a single run. A chart is
// { title, caption, xTitle, series, format, fixed, log, shade }: shade is { from, to, label }.

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2], [2, 6], [8, 3, 2, 3, 2, 3]];

/** Marker shapes: series differ in more than color. */
const MARKERS = [
  dot,
  polygon([[-1, -1], [1, -1], [1, 1], [-1, 1]], 2.6),
  polygon([[0, -1.3], [1.2, 0.9], [-1.2, 0.9]], 3),
  polygon([[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]], 2.9),
  polygon([[-1.2, -0.9], [1.2, -0.9], [0, 1.3]], 3),
  polygon([[-0.4, -1.3], [0.4, -1.3], [0.4, -0.4], [1.3, -0.4], [1.3, 0.4], [0.4, 0.4], [0.4, 1.3], [-0.4, 1.3],
    [-0.4, 0.4], [-1.3, 0.4], [-1.3, -0.4], [-0.4, -0.4]], 2.9),
];

function polygon(corners, size) {
  return (context, x, y, color) => {
    context.fillStyle = color;
    context.beginPath();
    corners.forEach(([right, down], at) => context[at ? "lineTo" : "moveTo"](x + size * right, y + size * down));
    context.closePath();
    context.fill();
  };
}

/** Color, dash pattern and marker of the series with an index. */
const styleOf = (index) => ({
  color: COLORS.series[index % COLORS.series.length],
  dash: DASHES[index % DASHES.length],
  marker: MARKERS[index % MARKERS.length],
  width: 2,
  dots: true,
});

/** A sample of a series' line for the legend. */
function sampleOf(index) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const context = prepareCanvas(canvas, 34, 12);
  const style = styleOf(index);
  strokeAs(context, style);
  context.beginPath();
  context.moveTo(0, 6);
  context.lineTo(34, 6);
  context.stroke();
  unstroke(context);
  style.marker(context, 17, 6, style.color);
  return canvas;
}

// ---- decorations ----

/** A band of one standard deviation around the mean. */
function drawBand(context, series, style, plot, area, toX, toY) {
  const inside = (value) => (plot.log && value <= 0 ? area.bottom : toY(value));
  const known = series.at.map((_, at) => at).filter((at) => series.sd[at] != null && series.mean[at] != null);
  if (known.length < 2) return;
  context.beginPath();
  for (const at of known) context.lineTo(toX(series.at[at]), inside(series.mean[at] + series.sd[at]));
  for (const at of known.reverse()) context.lineTo(toX(series.at[at]), inside(series.mean[at] - series.sd[at]));
  context.closePath();
  context.globalAlpha = 0.18;
  context.fillStyle = style.color;
  context.fill();
  context.globalAlpha = 1;
}

/** A shaded range of the x axis with its label. */
function drawShade(context, shade, area, toX, theme) {
  const [left, right] = [toX(shade.from), toX(shade.to)];
  context.globalAlpha = 0.1;
  context.fillStyle = theme.text;
  context.fillRect(left, area.top - 4, right - left, area.bottom - area.top + 4);
  context.globalAlpha = 1;
  context.fillStyle = theme.muted;
  context.textAlign = "center";
  context.fillText(fitText(context, shade.label, right - left), (left + right) / 2, area.bottom - 9);
  context.textAlign = "left";
}

/** Each series' letter at its right end, spread so that letters do not overlap. */
function drawLetters(context, chart, plot, area, toX, toY) {
  const ends = chart.series.map((series, index) => {
    const at = series.mean.length - 1;
    if (at < 0 || (plot.log && series.mean[at] <= 0)) return null;
    return { letter: series.letter, x: toX(series.at[at]) + 7, y: toY(series.mean[at]), color: styleOf(index).color };
  }).filter(Boolean).sort((one, other) => one.y - other.y);
  const apart = 13;
  ends.forEach((end, at) => {
    const above = ends.slice(0, at).filter((each) => Math.abs(each.x - end.x) < 12).at(-1);
    if (above) end.y = Math.max(end.y, above.y + apart);
  });
  const over = (ends.at(-1)?.y ?? 0) - area.bottom;
  for (const end of ends) {
    context.font = "600 12px " + themeColors().font;
    context.fillStyle = end.color;
    context.fillText(end.letter, end.x, over > 0 ? end.y - over : end.y);
  }
}

/** The plot of a chart, for drawPlot. */
function plotFor(chart, cursor = null) {
  const xs = chart.series.flatMap((series) => series.at);
  const from = chart.from ?? Math.min(0, ...xs);
  const to = Math.max(from + 1, ...xs);
  const plot = {
    lines: chart.series.map((series, index) => ({
      ...styleOf(index), label: series.letter, steps: series.at, values: series.mean,
    })),
    from, to, cursor,
    log: chart.log, fixed: chart.fixed ?? null, format: chart.format, xTitle: chart.xTitle, marks: [], margin: 26,
    note: xs.length ? "" : "no data",
  };
  plot.drawBelow = (context, area, toX, toY, theme) => {
    if (chart.shade) drawShade(context, chart.shade, area, toX, theme);
    chart.series.forEach((series, index) => drawBand(context, series, styleOf(index), plot, area, toX, toY));
  };
  plot.drawAbove = (context, area, toX, toY) => drawLetters(context, chart, plot, area, toX, toY);
  return plot;
}

// ---- chart ----

const valueText = (series, at, format) =>
  format(series.mean[at]) + (series.sd[at] == null ? "" : " ± " + format(series.sd[at]));

/** [x, index in each series (-1 if missing)] for all x values of a chart, in order. */
function rowsOf(chart) {
  const xs = [...new Set(chart.series.flatMap((series) => series.at))].sort((one, other) => one - other);
  return xs.map((x) => [x, ...chart.series.map((series) => series.at.indexOf(x))]);
}

function tableOf(chart) {
  const head = make("tr", {}, make("th", { scope: "col" }, chart.xTitle),
    ...chart.series.map((series) => make("th", { scope: "col", class: "number" }, series.letter + " " + series.label)));
  const rows = rowsOf(chart).map(([x, ...ats]) => make("tr", {}, make("th", { scope: "row" }, chart.name(x)),
    ...ats.map((at, which) => make("td", { class: "number" },
      at < 0 ? "–" : valueText(chart.series[which], at, chart.exact)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function saveCsv(chart) {
  const head = [chart.xTitle, ...chart.series.flatMap(({ label }) => [label + ", mean", label + ", standard deviation"])];
  const rows = rowsOf(chart).map(([x, ...ats]) => [x, ...ats.flatMap((at, which) =>
    at < 0 ? [null, null] : [chart.series[which].mean[at], chart.series[which].sd[at]])]);
  downloadCsv([head, ...rows], fileName(chart.title, "csv"));
}

/** Download the chart as PNG: light colors, double resolution, with title and legend. */
function savePng(chart) {
  const [width, height, head] = [640, 340, 34];
  const legend = chart.series.map((series) => series.letter + " " + series.label);
  const foot = 20 * legend.length + 10;
  const font = themeColors().font;
  const theme = { font, text: "#18181b", muted: "#52525b", line: "#e4e4e7", accent: COLORS.train };
  const piece = document.createElement("canvas");
  const paper = document.createElement("canvas");
  const context = prepareCanvas(piece, width, height);
  piece.width = 2 * width;
  piece.height = 2 * height;
  context.setTransform(2, 0, 0, 2, 0, 0);
  drawPlot(context, width, height, plotFor(chart), theme);
  paper.width = 2 * (width + 24);
  paper.height = 2 * (height + head + foot);
  const page = paper.getContext("2d");
  page.fillStyle = "#ffffff";
  page.fillRect(0, 0, paper.width, paper.height);
  page.drawImage(piece, 24, 2 * head);
  page.fillStyle = theme.text;
  page.font = "600 28px " + font;
  page.fillText(fitText(page, chart.title + " (" + chart.xTitle + ")", 2 * width), 24, 46);
  page.font = "24px " + font;
  legend.forEach((text, at) => page.fillText(fitText(page, text, 2 * width), 24, 2 * (head + height + 20 * (at + 1))));
  paper.toBlob((blob) => download(blob, fileName(chart.title, "png")));
}

/** Make a chart: plot, cursor readout, caption, downloads and table. Returns { box, draw }. */
function makeChart(chart) {
  let cursor = null;
  let area = null;
  const canvas = make("canvas", {
    class: "chart", tabindex: "0", role: "img",
    "aria-label": chart.title + ". Left and right arrow keys move a cursor; the table below has all values.",
  });
  const readout = make("p", { class: "readout muted", "aria-live": "polite" });
  const xs = () => rowsOf(chart).map(([x]) => x);
  const tools = make("div", { class: "tools" },
    make("button", { type: "button", title: "download this chart as a picture", onclick: () => savePng(chart) }, "PNG"),
    make("button", { type: "button", title: "download the values of this chart", onclick: () => saveCsv(chart) }, "CSV"));
  const box = make("figure", {}, make("h3", {}, chart.title), canvas, readout,
    make("p", { class: "muted" }, chart.caption), tools,
    make("details", { class: "chart-table" }, make("summary", {}, "Show as table"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": chart.title }, tableOf(chart))));
  if (chart.canBeLog) {
    const tick = make("input", { type: "checkbox", onchange: () => { chart.log = tick.checked; draw(); } });
    tick.checked = chart.log;
    tools.append(make("label", {}, tick, "log scale"));
  }

  function draw() {
    const width = box.clientWidth;
    if (!width) return; // the tab is not open
    canvas.style.height = "";
    const height = parseFloat(getComputedStyle(canvas).height);
    area = drawPlot(prepareCanvas(canvas, width, height), width, height, plotFor(chart, cursor), themeColors());
    const row = rowsOf(chart).find(([x]) => x === cursor);
    setText(readout, row ? chart.xTitle + " " + chart.name(cursor) + ": " + row.slice(1).map((at, which) =>
      chart.series[which].letter + " " + (at < 0 ? "–" : valueText(chart.series[which], at, chart.exact))).join(" · ") : "");
  }

  function moveTo(x) {
    cursor = x;
    draw();
  }
  const nearest = (wanted) => xs()[nearestIndex(xs(), wanted)] ?? null;
  canvas.addEventListener("pointermove", (event) => area && moveTo(nearest(area.toStep(event.offsetX))));
  canvas.addEventListener("pointerleave", () => moveTo(null));
  canvas.addEventListener("blur", () => moveTo(null));
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = xs();
    const at = cursor === null ? (by > 0 ? 0 : all.length - 1) : all.indexOf(cursor) + by;
    if (all[at] !== undefined) moveTo(all[at]);
  });
  return { box, draw };
}
