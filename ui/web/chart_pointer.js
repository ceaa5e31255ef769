// Pointer and keyboard on a chart: a cursor that reads values, a zoom, or the choice of an x.

import { stepX, zoomedRange } from "./chart_data.js";

const DRAG = 8; // pixels; shorter is a press
const FAR = 20; // points per key press with Shift

/**
 * Connect a chart's element. `chart` is { placeOf(event), xAt(place), xs(), cursor(), zoom(), whole(), moveCursor(x),
 * zoomTo(range), showSelection(from, to), pick }: places are pixels from the left end of the axis; pick is null or
 * called with the x that is pressed, and then zooming is off.
 */
export function listenTo(element, chart) {
  let start = null; // place where the pointer was pressed
  const nearest = (x) => stepX(chart.xs(), x, 0, chart.zoom() ?? chart.whole());

  function onDown(event) {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    start = chart.placeOf(event);
    onMove(event);
  }

  function onMove(event) {
    const place = chart.placeOf(event);
    const x = chart.xAt(place);
    chart.moveCursor(nearest(x));
    if (start === null) return;
    if (chart.pick) chart.pick(x);
    else if (Math.abs(place - start) > DRAG) chart.showSelection(Math.min(start, place), Math.max(start, place));
    else chart.showSelection(0, 0);
  }

  function onUp(event) {
    const place = chart.placeOf(event);
    const from = start;
    start = null;
    chart.showSelection(0, 0);
    if (from === null || chart.pick || Math.abs(place - from) <= DRAG) return;
    const range = [chart.xAt(Math.min(from, place)), chart.xAt(Math.max(from, place))];
    zoom(range);
  }

  function zoom(range) {
    const isWide = range === null || chart.xs().filter((x) => x >= range[0] && x <= range[1]).length >= 2;
    if (isWide) chart.zoomTo(range);
  }

  function leave() {
    if (start === null) chart.moveCursor(null);
  }

  /** Left and right move the cursor, plus and minus zoom around it, Escape resets the zoom. */
  function onKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    const shown = chart.zoom() ?? chart.whole();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (by) {
      const x = stepX(chart.xs(), chart.cursor(), event.shiftKey ? FAR * by : by, shown);
      chart.moveCursor(x);
      chart.announce();
      if (x !== null) chart.pick?.(x);
    } else if (factor && !chart.pick) {
      zoom(zoomedRange(shown, chart.whole(), chart.cursor() ?? (shown[0] + shown[1]) / 2, factor));
    } else if (event.key === "Escape" && chart.zoom()) chart.zoomTo(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  element.addEventListener("pointerdown", onDown);
  element.addEventListener("pointermove", onMove);
  element.addEventListener("pointerup", onUp);
  element.addEventListener("pointercancel", () => {
    start = null;
    chart.showSelection(0, 0);
  });
  element.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && leave());
  element.addEventListener("blur", leave);
  element.addEventListener("dblclick", () => !chart.pick && chart.zoomTo(null));
  element.addEventListener("keydown", onKey);
}
