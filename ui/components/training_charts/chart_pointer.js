// Pointer and keyboard on the charts: a cursor that reads values, and a zoom shared by all charts.
// Uses the state of training_charts.js: view, cursor, active, dragged.

/** The nearest step with a value in this chart. */
function nearestStep(canvas, wanted) {
  const columns = canvas.dataset.chart === "accuracy" ? metrics.evaluations : metrics.points;
  return columns.step[nearestIndex(columns.step, wanted)] ?? null;
}

function zoomTo(range) {
  const [least, most] = wholeRange();
  if (range) {
    const from = Math.max(least, Math.round(range[0]));
    const to = Math.min(most, Math.round(range[1]));
    if (to - from < 2) return;
    view = [from, to];
  } else view = null;
  part("reset").hidden = view === null;
  redraw();
}

function moveCursor(canvas, step) {
  active = canvas;
  cursor = step;
  redraw();
}

const stepAt = (canvas, event) => areaOf.get(canvas)?.toStep(event.offsetX) ?? 0;

function onPointerDown(event) {
  const canvas = event.currentTarget;
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  const step = stepAt(canvas, event);
  dragged = { canvas, start: step, end: step, x: event.offsetX };
  moveCursor(canvas, nearestStep(canvas, step));
}

function onPointerMove(event) {
  const canvas = event.currentTarget;
  const step = stepAt(canvas, event);
  if (dragged) dragged.end = step;
  moveCursor(canvas, nearestStep(canvas, step));
}

function onPointerUp(event) {
  const drag = dragged;
  dragged = null;
  if (drag && Math.abs(event.offsetX - drag.x) > 8) {
    zoomTo([Math.min(drag.start, drag.end), Math.max(drag.start, drag.end)]);
  } else redraw();
}

/** Left and right move the cursor, plus and minus zoom around it, Escape resets the zoom. */
function onKey(event) {
  const canvas = event.currentTarget;
  const [from, to] = view ?? wholeRange();
  const steps = (canvas.dataset.chart === "accuracy" ? metrics.evaluations : metrics.points).step;
  const at = nearestIndex(steps, active === canvas && cursor != null ? cursor : to);
  if (at < 0) return;
  const stride = event.shiftKey ? Math.max(1, Math.round(steps.length / 20)) : 1;
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const step = steps[at + (event.key === "ArrowLeft" ? -stride : stride)];
    if (step >= from && step <= to) moveCursor(canvas, step);
  } else if (event.key === "+" || event.key === "-") {
    const half = ((to - from) / 2) * (event.key === "+" ? 0.5 : 2);
    const all = half * 2 >= wholeRange()[1];
    zoomTo(all ? null : [steps[at] - half, steps[at] + half]);
  } else if (event.key === "Escape") zoomTo(null);
  else return;
  event.preventDefault();
}

function leave(canvas) {
  if (active === canvas && !dragged) moveCursor(null, null);
}

/** Connect a chart to pointer and keyboard. */
function listenTo(canvas) {
  const title = canvas.parentElement.querySelector("h3").textContent;
  canvas.setAttribute("aria-label", title + " by training step. Arrow keys move a cursor, plus and minus zoom.");
  canvas.addEventListener("pointerdown", onPointerDown);
  canvas.addEventListener("pointermove", onPointerMove);
  canvas.addEventListener("pointerup", onPointerUp);
  canvas.addEventListener("pointercancel", () => { dragged = null; redraw(); });
  canvas.addEventListener("pointerleave", () => leave(canvas));
  canvas.addEventListener("dblclick", () => zoomTo(null));
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("blur", () => leave(canvas));
}
