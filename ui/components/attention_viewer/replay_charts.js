// The small charts of a replay: loss, exact match and the heads' scores, each with a cursor at the training step on show.

const smallCharts = [...element.querySelectorAll(".chart")];
const chartAreas = new Map(); // canvas → where its axes were last drawn

const curve = (label, columns, name, look) => ({ label, steps: columns.step, values: columns[name], width: 2, ...look });

/** What each chart draws, by its name in the template. */
const SMALL_CHARTS = {
  loss: () => ({
    lines: [
      curve("train", held.points, "loss", { colour: COLORS.train, width: 1, alpha: 0.6 }),
      curve("validation", held.evaluations, "loss", { colour: COLORS.validation }),
    ],
    log: true,
  }),
  accuracy: () => ({
    lines: [curve("validation", held.evaluations, "exact_match", { colour: COLORS.validation })],
    fixed: [0, 1],
    format: (share) => Math.round(100 * share) + " %",
  }),
  scores: () => ({ lines: scoreLines(), fixed: [0, 1] }),
};

/** A line for every head that looks at the input, the open one before the others, and what means nothing. */
function scoreLines() {
  const steps = snapshots.map((each) => each.step);
  const scored = snapshots.at(-1)?.attention_mass ?? [];
  const open = drawn && drawn.block === facts.scored ? openHead() : null;
  const lines = [];
  scored.forEach((heads, layer) => heads.forEach((_, head) => {
    const isOpen = open?.layer === layer + 1 && open?.head === head + 1;
    lines.push({
      label: isOpen ? "layer " + (layer + 1) + " head " + (head + 1) : null,
      steps,
      values: snapshots.map((each) => each.attention_mass?.[layer]?.[head] ?? null),
      colour: COLORS.train,
      width: isOpen ? 3 : 1,
      alpha: isOpen ? 1 : 0.4,
    });
  }));
  lines.sort((one, other) => one.width - other.width); // what is drawn last lies on top
  const others = lines.find((each) => !each.label);
  if (others) others.label = open && lines.length > 1 ? "other heads" : "heads";
  if (facts.uniform_mass !== null && facts.uniform_mass !== undefined) {
    const flat = { steps: [0, Math.max(1, ...steps)], values: [facts.uniform_mass, facts.uniform_mass] };
    lines.push({ label: "uniform", ...flat, colour: COLORS.validation, width: 1.5, dash: [5, 4] });
  }
  return lines;
}

function drawSmallCharts() {
  const theme = themeLook();
  const last = Math.max(1, lastStep(held.points), lastStep(held.evaluations));
  for (const canvas of smallCharts) {
    const width = canvas.parentElement.clientWidth;
    if (!width) continue;
    const plot = { format: tickText, from: 0, to: last, cursor: snapshots[place]?.step, ...SMALL_CHARTS[canvas.dataset.chart]() };
    if (plot.lines.every((each) => each.steps.length === 0)) plot.note = "nothing yet";
    const height = parseFloat(getComputedStyle(canvas).height);
    chartAreas.set(canvas, drawPlot(prepareCanvas(canvas, width, height), width, height, plot, theme));
  }
}

const redrawCharts = inNextFrame(drawSmallCharts);

/** Say under each chart's name what it has at the step on show. */
function showFigures() {
  const step = snapshots[place]?.step;
  const { points, evaluations } = held;
  const trained = points.loss[placeNearest(points.step, step ?? 0)];
  const evaluated = placeAtOrBefore(evaluations.step, step ?? -1);
  const open = drawn && drawn.block === facts.scored ? openHead() : null;
  const mass = open ? snapshots[place]?.attention_mass?.[open.layer - 1]?.[open.head - 1] : null;
  const told = {
    loss: "train " + formatNumber(trained) + ", validation " + formatNumber(evaluations.loss[evaluated]),
    accuracy: formatPercent(evaluations.exact_match[evaluated]) + " of validation answers",
    scores: mass == null ? "" : "layer " + open.layer + " head " + open.head + ": " + mass.toFixed(2)
      + ", looking everywhere equally: " + facts.uniform_mass.toFixed(2),
  };
  for (const canvas of smallCharts) {
    const figure = canvas.parentElement;
    setText(figure.querySelector(".figures"), step == null ? "" : told[canvas.dataset.chart]);
    const title = figure.querySelector("h3").textContent;
    canvas.setAttribute("aria-label", title + " by training step, at step " + step + ": " + told[canvas.dataset.chart]);
  }
  part("scores-figure").hidden = !facts.scored;
  redrawCharts();
}

/** Pressing or dragging on a chart goes to that training step. */
function scrubOn(canvas) {
  const go = (event) => {
    const area = chartAreas.get(canvas);
    if (area && event.buttons & 1) scrubTo(placeNearest(snapshots.map((each) => each.step), area.toStep(event.offsetX)));
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", go);
}

smallCharts.forEach(scrubOn);
