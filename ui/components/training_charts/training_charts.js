// The live training charts: fetches new metrics from the server and draws them.

const FINAL = ["finished", "failed", "stopped", "interrupted"];
const log = part("log");
const smoothing = part("smoothing");
const canvases = [...element.querySelectorAll(".chart")];

let run = null; // id of the displayed run
let metrics = emptyHistory();
let latest = null; // the last response, without its rows
let view = null; // [from, to] in steps while zoomed
let cursor = null; // the step under the pointer or the keyboard's cursor
let active = null; // the canvas of the cursor
let dragged = null; // { canvas, start, end } in steps while zooming with the pointer
const areaOf = new Map(); // canvas → its plot area

// ---- plots ----

function line(label, columns, name, style) {
  return { label, steps: columns.step, values: columns[name], color: COLORS.train, width: 2, ...style };
}

/** The lines and y axis of each chart, by its name in the template. */
const CHARTS = {
  loss: () => {
    const { points, evaluations } = metrics;
    const smoothed = +smoothing.value > 0;
    const raw = line(smoothed ? "train, per step" : "train", points, "loss",
      smoothed ? { width: 1, alpha: 0.45 } : {});
    const average = { ...line("train, smoothed", points, "loss"), values: smooth(points.loss, +smoothing.value) };
    const validation = line("validation", evaluations, "loss", { color: COLORS.validation, dots: true });
    const best = latest?.best_step;
    return {
      lines: [raw, ...(smoothed ? [average] : []), validation],
      log: log.checked,
      marks: best == null ? [] : [{ step: best, label: "best " + best }],
    };
  },
  accuracy: () => {
    const style = { color: COLORS.validation };
    return {
      lines: [
        line("free-running exact match", metrics.evaluations, "exact_match", { ...style, dots: true }),
        line("teacher-forced token accuracy", metrics.evaluations, "token_accuracy",
          { ...style, dash: [6, 4], width: 1.5 }),
      ],
      fixed: [0, 1],
      format: (fraction) => Math.round(100 * fraction) + " %",
    };
  },
  learning_rate: () => ({ lines: [line("learning rate", metrics.points, "learning_rate")] }),
  gradient_norm: () => ({ lines: [line("gradient norm", metrics.points, "gradient_norm", { width: 1 })] }),
};

/** The range of steps of all charts when not zoomed. */
function wholeRange() {
  const { points, evaluations } = metrics;
  return [0, Math.max(1, lastStep(points), lastStep(evaluations))];
}

function plotOf(name) {
  const [from, to] = view ?? wholeRange();
  const plot = { format: tickText, xTitle: "step", marks: [], from, to, zoomed: view !== null, ...CHARTS[name]() };
  if (plot.lines.every((each) => each.steps.length === 0)) {
    const awaited = name === "accuracy" ? "evaluation" : "step";
    plot.note = FINAL.includes(latest?.status) ? "no " + awaited + " recorded" : "waiting for the first " + awaited;
  }
  return plot;
}

// ---- drawing ----

function drawCharts() {
  const theme = themeColors();
  for (const canvas of canvases) {
    const width = canvas.parentElement.clientWidth;
    if (!width) continue; // hidden
    const plot = plotOf(canvas.dataset.chart);
    plot.cursor = cursor;
    if (dragged?.canvas === canvas) plot.selection = [dragged.start, dragged.end];
    canvas.style.height = "";
    const height = parseFloat(getComputedStyle(canvas).height);
    areaOf.set(canvas, drawPlot(prepareCanvas(canvas, width, height), width, height, plot, theme));
    showReadout(canvas);
  }
}

const redraw = inNextFrame(drawCharts);

/** Announce only the values at the keyboard's cursor: the latest values change twice a second. */
function showReadout(canvas) {
  const text = canvas.parentElement.querySelector(".readout");
  const isAnnounced = canvas === active && canvas === document.activeElement;
  text.setAttribute("aria-live", isAnnounced ? "polite" : "off");
  setText(text, readout(canvas));
}

/** "step 412: train 0.0213, validation 0.0198 (step 400)": at the cursor, else at the latest step. */
function readout(canvas) {
  const { points, evaluations } = metrics;
  const chosen = canvas === active ? cursor : null;
  const step = chosen ?? wholeRange()[1];
  const point = indexAtOrBefore(points.step, step);
  const evaluation = indexAtOrBefore(evaluations.step, step);
  const measured = evaluations.step[evaluation];
  const when = measured === step || measured == null ? "" : " (step " + measured + ")";
  const evaluated = (name, format) => format(evaluations[name][evaluation]);
  const texts = {
    loss: () => "train " + formatNumber(points.loss[point])
      + ", validation " + evaluated("loss", formatNumber) + when,
    accuracy: () => "exact match " + evaluated("exact_match", formatPercent)
      + ", token accuracy " + evaluated("token_accuracy", formatPercent) + when,
    learning_rate: () => "learning rate " + formatNumber(points.learning_rate[point]),
    gradient_norm: () => "gradient norm " + formatNumber(points.gradient_norm[point]),
  };
  if (point < 0 && evaluation < 0) return "";
  return (chosen == null ? "latest, " : "") + "step " + step + ": " + texts[canvas.dataset.chart]();
}

// ---- status and table ----

function statusNumbers(update) {
  const parts = [update.step + " / " + update.steps + " steps"];
  if (!FINAL.includes(update.status)) {
    const speed = update.steps_per_second;
    if (speed != null) parts.push((speed >= 10 ? Math.round(speed) : speed.toFixed(1)) + " steps/s");
    if (update.seconds_left != null) parts.push(formatSeconds(update.seconds_left) + " left");
  }
  return "· " + parts.join(" · ");
}

function showStatus() {
  setText(part("state"), latest?.status ?? "");
  setText(part("numbers"), latest ? statusNumbers(latest) : "");
  setText(part("message"), latest?.message ?? "");
  part("message").classList.toggle("bad", latest?.status === "failed");
  part("bar").max = Math.max(1, latest?.steps ?? 1);
  part("bar").value = latest?.step ?? 0;
}

function showTable() {
  if (!part("numbers-table").open) return;
  const rows = evaluationRows(metrics);
  const formats = [String, formatNumber, formatNumber, formatPercent, formatPercent, formatNumber, formatNumber];
  element.querySelector("tbody").replaceChildren(...rows.slice(-200).map((row) =>
    make("tr", {}, ...row.map((value, at) => make("td", {}, formats[at](value))))));
  setText(part("table-note"), rows.length > 200
    ? "The last 200 of " + rows.length + " evaluations; the CSV file contains all."
    : rows.length ? "" : "No evaluation yet.");
}

part("numbers-table").addEventListener("toggle", showTable);

// ---- downloads ----

/** Download a group of charts as PNG: light colors, double resolution. */
function savePicture(group) {
  const [width, height, gap, head] = [560, 300, 32, 56];
  const font = themeColors().font;
  const theme = { font, text: "#18181b", muted: "#52525b", line: "#e4e4e7", accent: COLORS.train };
  const shown = [...group.querySelectorAll(".chart")];
  const canvas = document.createElement("canvas");
  canvas.width = 2 * (shown.length * (width + gap) + gap);
  canvas.height = 2 * (height + head + gap / 2);
  const paper = canvas.getContext("2d");
  paper.fillStyle = "#ffffff";
  paper.fillRect(0, 0, canvas.width, canvas.height);
  shown.forEach((chart, at) => {
    const piece = document.createElement("canvas");
    const context = prepareCanvas(piece, width, height);
    context.canvas.width = 2 * width; // double resolution on any screen
    context.canvas.height = 2 * height;
    context.setTransform(2, 0, 0, 2, 0, 0);
    drawPlot(context, width, height, plotOf(chart.dataset.chart), theme);
    const left = 2 * (gap + at * (width + gap));
    paper.drawImage(piece, left, 2 * head);
    paper.fillStyle = theme.text;
    paper.font = "600 28px " + font;
    const title = chart.parentElement.querySelector("h3").textContent + " · " + run;
    paper.fillText(fitText(paper, title, 2 * width), left, 60);
  });
  canvas.toBlob((blob) => download(blob, fileName(run + "-" + shown[0].dataset.chart, "png")));
}

for (const files of element.querySelectorAll(".files")) {
  const group = files.closest("details")?.querySelector(".group") ?? part("main");
  files.append(
    make("button", { type: "button", title: "download these two charts as a picture", onclick: () => savePicture(group) }, "PNG"),
    make("button", {
      type: "button", title: "download all metrics of this run",
      onclick: () => downloadCsv(historyRows(metrics), fileName(run, "csv")),
    }, "CSV"));
}

// ---- polling ----

async function refresh() {
  if (run === null) return 300;
  const requested = run;
  const update = await callServer("progress", {
    run, since_step: lastStep(metrics.points), since_evaluation: lastStep(metrics.evaluations),
  });
  if (requested !== run) return 0; // another run was selected meanwhile
  if (!update || update.run !== run) {
    setText(part("message"), "connection lost, retrying; if the server was stopped, its runs are saved and can be resumed");
    return 1000;
  }
  applyUpdate(update);
  return FINAL.includes(update.status) ? 1000 : 500;
}

function applyUpdate(update) {
  const bestBefore = latest?.best_step;
  const { points, evaluations, ...rest } = update;
  latest = rest;
  if (update.restart) {
    metrics = emptyHistory();
    zoomTo(null);
  }
  const added = appendRows(metrics.points, points);
  const evaluated = appendRows(metrics.evaluations, evaluations);
  showStatus();
  if (evaluated || update.restart) showTable();
  if (added || evaluated || update.restart || bestBefore !== update.best_step) redraw();
}

function applyValue() {
  const wanted = props.value?.run ?? null;
  part("live").hidden = wanted === null;
  part("empty").hidden = wanted !== null;
  if (wanted === run) return;
  run = wanted;
  metrics = emptyHistory();
  latest = null;
  active = cursor = dragged = null;
  zoomTo(null);
  showStatus();
  showTable();
}

log.addEventListener("change", redraw);
smoothing.addEventListener("input", redraw);
part("reset").addEventListener("click", () => zoomTo(null));
part("more").addEventListener("toggle", redraw);
canvases.forEach(listenTo);
applyValue();
onAppearanceChange(redraw);
const refreshNow = pollWhileVisible(refresh);
watch("value", () => {
  applyValue();
  refreshNow();
});
