// The Train tab's live charts: asks the server for what is new, keeps it, draws it.

const FINAL = ["finished", "failed", "stopped", "interrupted"];
const log = part("log");
const smoothing = part("smoothing");
const canvases = [...element.querySelectorAll(".chart")];

let run = null; // id of the run on show
let held = emptyHistory();
let latest = null; // the server's last answer, without its rows
let view = null; // [from, to] in steps while zoomed; new points leave it alone
let cursor = null; // the step under the pointer or the keyboard's cursor
let active = null; // the canvas the cursor belongs to
let dragged = null; // { canvas, start, end } in steps while zooming with the pointer
const areaOf = new Map(); // canvas → where its axes were last drawn

// ---- what each chart shows ----

function line(label, columns, name, look) {
  return { label, steps: columns.step, values: columns[name], colour: COLORS.train, width: 2, ...look };
}

/** The lines and vertical axis of each chart, by its name in the template. */
const CHARTS = {
  loss: () => {
    const { points, evaluations } = held;
    const smoothed = +smoothing.value > 0;
    const raw = line(smoothed ? "train, each step" : "train", points, "loss",
      smoothed ? { width: 1, alpha: 0.45 } : {});
    const average = { ...line("train, smoothed", points, "loss"), values: smooth(points.loss, +smoothing.value) };
    const validation = line("validation", evaluations, "loss", { colour: COLORS.validation, dots: true });
    const best = latest?.best_step;
    return {
      lines: [raw, ...(smoothed ? [average] : []), validation],
      log: log.checked,
      marks: best == null ? [] : [{ step: best, label: "best " + best }],
    };
  },
  accuracy: () => {
    const look = { colour: COLORS.validation };
    return {
      lines: [
        line("free-running exact match", held.evaluations, "exact_match", { ...look, dots: true }),
        line("teacher-forced token accuracy", held.evaluations, "token_accuracy",
          { ...look, dash: [6, 4], width: 1.5 }),
      ],
      fixed: [0, 1],
      format: (share) => Math.round(100 * share) + " %",
    };
  },
  learning_rate: () => ({ lines: [line("learning rate", held.points, "learning_rate")] }),
  gradient_norm: () => ({ lines: [line("gradient norm", held.points, "gradient_norm", { width: 1 })] }),
};

/** The steps at the left and right edge of all charts when not zoomed. */
function wholeRange() {
  const { points, evaluations } = held;
  return [0, Math.max(1, lastStep(points), lastStep(evaluations))];
}

function plotOf(name) {
  const [from, to] = view ?? wholeRange();
  const plot = { format: tickText, across: "step", marks: [], from, to, zoomed: view !== null, ...CHARTS[name]() };
  if (plot.lines.every((each) => each.steps.length === 0)) {
    const awaited = name === "accuracy" ? "evaluation" : "step";
    plot.note = FINAL.includes(latest?.status) ? "no figures of any " + awaited : "waiting for the first " + awaited;
  }
  return plot;
}

// ---- drawing ----

function drawCharts() {
  const theme = themeLook();
  for (const canvas of canvases) {
    const width = canvas.parentElement.clientWidth;
    if (!width) continue; // folded away
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

/** Read aloud what the keyboard's cursor finds, and only that: the latest numbers change twice a second. */
function showReadout(canvas) {
  const place = canvas.parentElement.querySelector(".readout");
  const aloud = canvas === active && canvas === document.activeElement;
  place.setAttribute("aria-live", aloud ? "polite" : "off");
  setText(place, readout(canvas));
}

/** "step 412: train 0.0213, validation 0.0198 (step 400)": at the cursor, else the latest. */
function readout(canvas) {
  const { points, evaluations } = held;
  const chosen = canvas === active ? cursor : null;
  const step = chosen ?? wholeRange()[1];
  const point = placeAtOrBefore(points.step, step);
  const evaluation = placeAtOrBefore(evaluations.step, step);
  const measured = evaluations.step[evaluation];
  const when = measured === step || measured == null ? "" : " (step " + measured + ")";
  const evaluated = (name, format) => format(evaluations[name][evaluation]);
  const told = {
    loss: () => "train " + formatNumber(points.loss[point])
      + ", validation " + evaluated("loss", formatNumber) + when,
    accuracy: () => "exact match " + evaluated("exact_match", formatPercent)
      + ", token accuracy " + evaluated("token_accuracy", formatPercent) + when,
    learning_rate: () => "learning rate " + formatNumber(points.learning_rate[point]),
    gradient_norm: () => "gradient norm " + formatNumber(points.gradient_norm[point]),
  };
  if (point < 0 && evaluation < 0) return "";
  return (chosen == null ? "latest, " : "") + "step " + step + ": " + told[canvas.dataset.chart]();
}

// ---- status line and table ----

function statusNumbers(news) {
  const parts = [news.step + " / " + news.steps + " steps"];
  if (!FINAL.includes(news.status)) {
    const speed = news.steps_per_second;
    if (speed != null) parts.push((speed >= 10 ? Math.round(speed) : speed.toFixed(1)) + " steps/s");
    if (news.seconds_left != null) parts.push(formatSeconds(news.seconds_left) + " left");
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
  const rows = evaluationRows(held);
  const formats = [String, formatNumber, formatNumber, formatPercent, formatPercent, formatNumber, formatNumber];
  element.querySelector("tbody").replaceChildren(...rows.slice(-200).map((row) =>
    make("tr", {}, ...row.map((value, at) => make("td", {}, formats[at](value))))));
  setText(part("table-note"), rows.length > 200
    ? "The last 200 of " + rows.length + " evaluations; the CSV file has all."
    : rows.length ? "" : "No evaluation yet.");
}

part("numbers-table").addEventListener("toggle", showTable);

// ---- files ----

/** A group of charts side by side in print colours, twice as fine as a screen. */
function savePicture(group) {
  const [width, height, gap, head] = [560, 300, 32, 56];
  const font = themeLook().font;
  const theme = { font, text: "#18181b", quiet: "#52525b", line: "#e4e4e7", accent: COLORS.train };
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
    context.canvas.width = 2 * width; // two pixels a point, whatever this screen has
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
    make("button", { type: "button", title: "these two charts as a picture", onclick: () => savePicture(group) }, "PNG"),
    make("button", {
      type: "button", title: "all numbers of this run",
      onclick: () => downloadCsv(historyRows(held), fileName(run, "csv")),
    }, "CSV"));
}

// ---- asking the server ----

async function refresh() {
  if (run === null) return 300;
  const asked = run;
  const news = await askServer("progress", {
    run, since_step: lastStep(held.points), since_evaluation: lastStep(held.evaluations),
  });
  if (asked !== run) return 0; // the visitor went to another run meanwhile
  if (!news || news.run !== run) {
    setText(part("message"), "connection lost, retrying; a server that is stopped saves what trains, to be resumed");
    return 1000;
  }
  takeNews(news);
  return FINAL.includes(news.status) ? 1000 : 500;
}

function takeNews(news) {
  const bestBefore = latest?.best_step;
  const { points, evaluations, ...rest } = news;
  latest = rest;
  if (news.restart) {
    held = emptyHistory();
    zoomTo(null);
  }
  const added = appendRows(held.points, points);
  const evaluated = appendRows(held.evaluations, evaluations);
  showStatus();
  if (evaluated || news.restart) showTable();
  if (added || evaluated || news.restart || bestBefore !== news.best_step) redraw();
}

function takeValue() {
  const wanted = props.value?.run ?? null;
  part("live").hidden = wanted === null;
  part("empty").hidden = wanted !== null;
  if (wanted === run) return;
  run = wanted;
  held = emptyHistory();
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
takeValue();
onLookChange(redraw);
const refreshNow = keepAsking(refresh);
watch("value", () => {
  takeValue();
  refreshNow();
});
