// The charts of a replay: loss, exact match and the heads' scores, with a cursor at the displayed step.

const smallCharts = [...element.querySelectorAll(".chart")];
const chartAreas = new Map(); // canvas → where its axes were last shownView

const curve = (label, columns, name, style) => ({ label, steps: columns.step, values: columns[name], width: 2, ...style });

/** The plot of each chart, by its name in the template. */
const SMALL_CHARTS = {
  loss: () => ({
    lines: [
      curve("train", metrics.points, "loss", { color: COLORS.train, width: 1, alpha: 0.6 }),
      curve("validation", metrics.evaluations, "loss", { color: COLORS.validation }),
    ],
    log: true,
  }),
  accuracy: () => ({
    lines: [curve("validation", metrics.evaluations, "exact_match", { color: COLORS.validation })],
    fixed: [0, 1],
    format: (share) => Math.round(100 * share) + " %",
  }),
  scores: () => ({ lines: scoreLines(), fixed: [0, 1] }),
};

/** One line per scored head, the selected one on top, and the score of uniform attention. */
function scoreLines() {
  const steps = snapshots.map((each) => each.step);
  const scored = snapshots.at(-1)?.attention_mass ?? [];
  const open = shownView && shownView.block === facts.scored_block ? openHead() : null;
  const lines = [];
  scored.forEach((heads, layer) => heads.forEach((_, head) => {
    const isOpen = open?.layer === layer + 1 && open?.head === head + 1;
    lines.push({
      label: isOpen ? "layer " + (layer + 1) + " head " + (head + 1) : null,
      steps,
      values: snapshots.map((each) => each.attention_mass?.[layer]?.[head] ?? null),
      color: COLORS.train,
      width: isOpen ? 3 : 1,
      alpha: isOpen ? 1 : 0.4,
    });
  }));
  lines.sort((one, other) => one.width - other.width); // the last line is drawn on top
  const others = lines.find((each) => !each.label);
  if (others) others.label = open && lines.length > 1 ? "other heads" : "heads";
  if (facts.uniform_mass !== null && facts.uniform_mass !== undefined) {
    const flat = { steps: [0, Math.max(1, ...steps)], values: [facts.uniform_mass, facts.uniform_mass] };
    lines.push({ label: "uniform", ...flat, color: COLORS.validation, width: 1.5, dash: [5, 4] });
  }
  return lines;
}

function drawSmallCharts() {
  const theme = themeColors();
  const last = Math.max(1, lastStep(metrics.points), lastStep(metrics.evaluations));
  for (const canvas of smallCharts) {
    const width = canvas.parentElement.clientWidth;
    if (!width) continue;
    const plot = { format: tickText, from: 0, to: last, cursor: snapshots[shown]?.step, ...SMALL_CHARTS[canvas.dataset.chart]() };
    if (plot.lines.every((each) => each.steps.length === 0)) plot.note = "no data yet";
    const height = parseFloat(getComputedStyle(canvas).height);
    chartAreas.set(canvas, drawPlot(prepareCanvas(canvas, width, height), width, height, plot, theme));
  }
}

const redrawCharts = inNextFrame(drawSmallCharts);

/** Show the values at the displayed step under each chart's title. */
function showFigures() {
  const step = snapshots[shown]?.step;
  const { points, evaluations } = metrics;
  const trained = points.loss[nearestIndex(points.step, step ?? 0)];
  const evaluated = indexAtOrBefore(evaluations.step, step ?? -1);
  const open = shownView && shownView.block === facts.scored_block ? openHead() : null;
  const mass = open ? snapshots[shown]?.attention_mass?.[open.layer - 1]?.[open.head - 1] : null;
  const texts = {
    loss: "train " + formatNumber(trained) + ", validation " + formatNumber(evaluations.loss[evaluated]),
    accuracy: formatPercent(evaluations.exact_match[evaluated]) + " of validation answers",
    scores: mass == null ? "" : "layer " + open.layer + " head " + open.head + ": " + mass.toFixed(2)
      + ", uniform attention: " + facts.uniform_mass.toFixed(2),
  };
  for (const canvas of smallCharts) {
    const figure = canvas.parentElement;
    setText(figure.querySelector(".figures"), step == null ? "" : texts[canvas.dataset.chart]);
    const title = figure.querySelector("h3").textContent;
    canvas.setAttribute("aria-label", title + " by training step, at step " + step + ": " + texts[canvas.dataset.chart]);
  }
  part("scores-figure").hidden = !facts.scored_block;
  redrawCharts();
}

/** Pressing or dragging on a chart selects that training step. */
function enableScrubbing(canvas) {
  const go = (event) => {
    const area = chartAreas.get(canvas);
    if (area && event.buttons & 1) jumpTo(nearestIndex(snapshots.map((each) => each.step), area.toStep(event.offsetX)));
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", go);
}

smallCharts.forEach(enableScrubbing);
