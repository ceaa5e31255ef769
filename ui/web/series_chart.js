// A chart of several series along one axis, each a mean with its spread; plot.js draws it, this adds what is around it.
//
// A series is { letter, label, n, at, mean, sd }: sd holds null where there is a single run. A chart is
// { title, caption, across, series, format, fixed, log, shade }: shade is { from, to, label }.

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2], [2, 6], [8, 3, 2, 3, 2, 3]];

/** The shapes that tell the points of series apart without colour. */
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
  return (context, x, y, colour) => {
    context.fillStyle = colour;
    context.beginPath();
    corners.forEach(([right, down], at) => context[at ? "lineTo" : "moveTo"](x + size * right, y + size * down));
    context.closePath();
    context.fill();
  };
}

/** How the series of a place is drawn everywhere: colour, dash and shape all say which it is. */
const lookOf = (place) => ({
  colour: COLORS.series[place % COLORS.series.length],
  dash: DASHES[place % DASHES.length],
  marker: MARKERS[place % MARKERS.length],
  width: 2,
  dots: true,
});

/** A sample of a series' stroke, for a legend. */
function sampleOf(place) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const context = prepareCanvas(canvas, 34, 12);
  const look = lookOf(place);
  strokeAs(context, look);
  context.beginPath();
  context.moveTo(0, 6);
  context.lineTo(34, 6);
  context.stroke();
  unstroke(context);
  look.marker(context, 17, 6, look.colour);
  return canvas;
}

// ---- around the lines ----

/** One standard deviation to either side of a mean, as a pale band. */
function drawBand(context, series, look, plot, area, toX, toY) {
  const inside = (value) => (plot.log && value <= 0 ? area.bottom : toY(value));
  const places = series.at.map((_, at) => at).filter((at) => series.sd[at] != null && series.mean[at] != null);
  if (places.length < 2) return;
  context.beginPath();
  for (const at of places) context.lineTo(toX(series.at[at]), inside(series.mean[at] + series.sd[at]));
  for (const at of places.reverse()) context.lineTo(toX(series.at[at]), inside(series.mean[at] - series.sd[at]));
  context.closePath();
  context.globalAlpha = 0.18;
  context.fillStyle = look.colour;
  context.fill();
  context.globalAlpha = 1;
}

/** A stretch of the axis across, shaded, with its label at the foot. */
function drawShade(context, shade, area, toX, theme) {
  const [left, right] = [toX(shade.from), toX(shade.to)];
  context.globalAlpha = 0.1;
  context.fillStyle = theme.text;
  context.fillRect(left, area.top - 4, right - left, area.bottom - area.top + 4);
  context.globalAlpha = 1;
  context.fillStyle = theme.quiet;
  context.textAlign = "center";
  context.fillText(fitText(context, shade.label, right - left), (left + right) / 2, area.bottom - 9);
  context.textAlign = "left";
}

/** Each series' letter at its right end, moved apart where they would overlap. */
function drawLetters(context, chart, plot, area, toX, toY) {
  const ends = chart.series.map((series, place) => {
    const at = series.mean.length - 1;
    if (at < 0 || (plot.log && series.mean[at] <= 0)) return null;
    return { letter: series.letter, x: toX(series.at[at]) + 7, y: toY(series.mean[at]), colour: lookOf(place).colour };
  }).filter(Boolean).sort((one, other) => one.y - other.y);
  const apart = 13;
  ends.forEach((end, at) => {
    const above = ends.slice(0, at).filter((each) => Math.abs(each.x - end.x) < 12).at(-1);
    if (above) end.y = Math.max(end.y, above.y + apart);
  });
  const over = (ends.at(-1)?.y ?? 0) - area.bottom;
  for (const end of ends) {
    context.font = "600 12px " + themeLook().font;
    context.fillStyle = end.colour;
    context.fillText(end.letter, end.x, over > 0 ? end.y - over : end.y);
  }
}

/** The plot of a chart, for drawPlot. */
function plotFor(chart, cursor = null) {
  const places = chart.series.flatMap((series) => series.at);
  const from = chart.from ?? Math.min(0, ...places);
  const to = Math.max(from + 1, ...places);
  const plot = {
    lines: chart.series.map((series, place) => ({
      ...lookOf(place), label: series.letter, steps: series.at, values: series.mean,
    })),
    from, to, cursor,
    log: chart.log, fixed: chart.fixed ?? null, format: chart.format, across: chart.across, marks: [], margin: 26,
    note: places.length ? "" : "no figures",
  };
  plot.behind = (context, area, toX, toY, theme) => {
    if (chart.shade) drawShade(context, chart.shade, area, toX, theme);
    chart.series.forEach((series, place) => drawBand(context, series, lookOf(place), plot, area, toX, toY));
  };
  plot.above = (context, area, toX, toY) => drawLetters(context, chart, plot, area, toX, toY);
  return plot;
}

// ---- a chart on the page ----

const valueText = (series, at, format) =>
  format(series.mean[at]) + (series.sd[at] == null ? "" : " ± " + format(series.sd[at]));

/** All places of a chart, in order, with each series' place in it, -1 where it has none. */
function rowsOf(chart) {
  const places = [...new Set(chart.series.flatMap((series) => series.at))].sort((one, other) => one - other);
  return places.map((place) => [place, ...chart.series.map((series) => series.at.indexOf(place))]);
}

function tableOf(chart) {
  const head = make("tr", {}, make("th", { scope: "col" }, chart.across),
    ...chart.series.map((series) => make("th", { scope: "col", class: "number" }, series.letter + " " + series.label)));
  const rows = rowsOf(chart).map(([place, ...ats]) => make("tr", {}, make("th", { scope: "row" }, chart.name(place)),
    ...ats.map((at, which) => make("td", { class: "number" },
      at < 0 ? "–" : valueText(chart.series[which], at, chart.exact)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function saveCsv(chart) {
  const head = [chart.across, ...chart.series.flatMap(({ label }) => [label + ", mean", label + ", standard deviation"])];
  const rows = rowsOf(chart).map(([place, ...ats]) => [place, ...ats.flatMap((at, which) =>
    at < 0 ? [null, null] : [chart.series[which].mean[at], chart.series[which].sd[at]])]);
  downloadCsv([head, ...rows], fileName(chart.title, "csv"));
}

/** The chart in print colours, twice as fine as a screen, with its title and what the letters mean. */
function savePng(chart) {
  const [width, height, head] = [640, 340, 34];
  const legend = chart.series.map((series) => series.letter + " " + series.label);
  const foot = 20 * legend.length + 10;
  const font = themeLook().font;
  const theme = { font, text: "#18181b", quiet: "#52525b", line: "#e4e4e7", accent: COLORS.train };
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
  page.fillText(fitText(page, chart.title + " (" + chart.across + ")", 2 * width), 24, 46);
  page.font = "24px " + font;
  legend.forEach((text, at) => page.fillText(fitText(page, text, 2 * width), 24, 2 * (head + height + 20 * (at + 1))));
  paper.toBlob((blob) => download(blob, fileName(chart.title, "png")));
}

/** Make a chart: picture, what the cursor reads, caption, files and table. Returns its element and how to draw it. */
function makeChart(chart) {
  let cursor = null;
  let area = null;
  const canvas = make("canvas", {
    class: "chart", tabindex: "0", role: "img",
    "aria-label": chart.title + ". Left and right arrow keys read its values; the table below has them all.",
  });
  const readout = make("p", { class: "readout quiet", "aria-live": "polite" });
  const places = () => rowsOf(chart).map(([place]) => place);
  const tools = make("div", { class: "tools" },
    make("button", { type: "button", title: "this chart as a picture", onclick: () => savePng(chart) }, "PNG"),
    make("button", { type: "button", title: "the numbers of this chart", onclick: () => saveCsv(chart) }, "CSV"));
  const box = make("figure", {}, make("h3", {}, chart.title), canvas, readout,
    make("p", { class: "quiet" }, chart.caption), tools,
    make("details", { class: "twin" }, make("summary", {}, "as a table"),
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
    area = drawPlot(prepareCanvas(canvas, width, height), width, height, plotFor(chart, cursor), themeLook());
    const row = rowsOf(chart).find(([place]) => place === cursor);
    setText(readout, row ? chart.across + " " + chart.name(cursor) + ": " + row.slice(1).map((at, which) =>
      chart.series[which].letter + " " + (at < 0 ? "–" : valueText(chart.series[which], at, chart.exact))).join(" · ") : "");
  }

  function moveTo(place) {
    cursor = place;
    draw();
  }
  const nearest = (wanted) => places()[placeNearest(places(), wanted)] ?? null;
  canvas.addEventListener("pointermove", (event) => area && moveTo(nearest(area.toStep(event.offsetX))));
  canvas.addEventListener("pointerleave", () => moveTo(null));
  canvas.addEventListener("blur", () => moveTo(null));
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = places();
    const at = cursor === null ? (by > 0 ? 0 : all.length - 1) : all.indexOf(cursor) + by;
    if (all[at] !== undefined) moveTo(all[at]);
  });
  return { box, draw };
}
