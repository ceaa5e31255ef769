// The selected head, large: its map with a cursor, readout, table and downloads.

import { drawMap, drawRowNames, drawScale, layoutMap, rowParts, rowText } from "../../web/attention_map.js";
import { inNextFrame, themeColors } from "../../web/canvas.js";
import { make, setText } from "../../web/dom.js";
import { download, downloadCsv, fileName } from "../../web/files.js";
import { isolated, visibleToken } from "../../web/format.js";

const MAX_PAIR = 40; // characters of input and output in a file's name
const MAX_TITLE = 200; // characters of a picture's title
const TOUCH = matchMedia("(hover: none)").matches; // words for fingers where there is no pointer

/** The title of a head's map: "Cross-attention, layer 2 of 2, head 4, training step 250". */
function titleOf(view, { layer, head }) {
  const { ablated } = view.heads.find((each) => each.layer === layer && each.head === head);
  const parts = [view.name[0].toUpperCase() + view.name.slice(1), "layer " + layer + " of " + view.layers, "head " + head];
  return [...parts, ...(ablated ? ["ablated"] : []), ...(view.byWord ? ["by word"] : []), ...(view.when ? [view.when] : [])].join(", ");
}

/**
 * Make the large map in a viewer's elements. `picture(request)` asks the server for a PNG; `pick({ row, column })` is
 * called for a pressed cell. Returns { show(view, head, revealed, isExplained), redraw, follow(row) }: `revealed` is the
 * number of rows shown, `isExplained` whether a pressed cell shows its arithmetic.
 */
export function makeLargeMap(part, { picture, pick }) {
  const map = part("map");
  const box = part("box");
  const gold = part("gold");
  let shown = null; // { view, head, weights, revealed, isExplained }
  let cursor = null; // { row, column } under the pointer or the keyboard's cursor
  let layout = null;

  const title = () => titleOf(shown.view, shown.head);
  const fileTitle = () => shown.view.model + " " + shown.view.pair.slice(0, MAX_PAIR) + " " + title();

  // ---- the map ----

  function draw() {
    if (!shown || !box.clientWidth) return;
    const { view, weights, revealed } = shown;
    const theme = themeColors();
    drawScale(part("scale-bar"));
    layout = layoutMap(map.getContext("2d"), view, box.clientWidth - 8);
    drawRowNames(part("names"), layout, view, revealed, theme);
    drawMap(map, layout, view, weights, { showGold: gold.checked, cursor, revealed }, theme);
    box.style.minHeight = view.reserve ? layout.reserved + 9 + "px" : "";
  }

  const redraw = inNextFrame(draw);

  /** Scroll the page so that a row is in view, above the output tokens; null: nothing. */
  function follow(row) {
    if (row === null || !layout) return;
    const bottom = map.getBoundingClientRect().top + layout.head + (row + 1) * layout.cell;
    scrollBy({ top: Math.max(0, bottom + part("playback").offsetHeight + 8 - innerHeight), behavior: "instant" });
  }

  /** "row 1 produced 9 (after <BOS>)", or "row 1, 4" in encoder maps. */
  function rowSentence(row) {
    const { decoded, main, read } = rowParts(shown.view.rows[row]);
    return "row " + (row + 1) + (decoded ? " produced " + isolated(main) + " (after " + isolated(read) + ")" : ", " + isolated(main));
  }

  function cellSentence(row, column) {
    return rowSentence(row) + " → column " + (column + 1) + ", " + isolated(visibleToken(shown.view.columns[column]))
      + ": " + shown.weights[row][column].toFixed(3);
  }

  /** Show the cell at the cursor as text, or the strongest cell of the marked row. */
  function showReadout() {
    const { view, weights, isExplained } = shown;
    let text = TOUCH ? "Tap a cell to read its weight." : "Point at a cell to read its weight.";
    if (isExplained) text = TOUCH ? "Tap a cell to see how its weight came about." : "Point at a cell to read its weight; press it to see how it came about.";
    if (cursor) text = cellSentence(cursor.row, cursor.column);
    else if (view.row !== null) {
      text = "Strongest: " + cellSentence(view.row, weights[view.row].indexOf(Math.max(...weights[view.row])));
    }
    setText(part("readout"), text);
  }

  function show(view, head, revealed, isExplained) {
    const { weights, label } = view.heads.find((each) => each.layer === head.layer && each.head === head.head);
    shown = { view, head, weights, revealed, isExplained };
    if (cursor && !(cursor.row < revealed && cursor.column < view.columns.length)) cursor = null;
    setText(part("title"), title());
    setText(part("head-score"), label ? label + " on the correct source token, " + view.scoredOn : "");
    setText(part("axes"), view.axes);
    setText(part("caption"), view.caption + (view.when ? " Replayed weights are rounded to 0.002." : ""));
    part("gold-label").hidden = !view.goldCells.length;
    map.setAttribute("aria-label", title() + ": " + view.rows.length + " rows by " + view.columns.length
      + " columns. Arrow keys move a cursor; the Table button lists all weights.");
    setText(part("error"), "");
    showReadout();
    showTable();
    redraw();
  }

  // ---- the cursor ----

  function moveCursor(next) {
    if (next?.row === cursor?.row && next?.column === cursor?.column) return;
    cursor = next;
    showReadout();
    redraw();
  }

  function cellAt(event) {
    if (!layout || !shown) return null;
    const row = Math.floor((event.offsetY - layout.head) / layout.cell);
    const column = Math.floor(event.offsetX / layout.cell);
    const isInside = row >= 0 && row < shown.revealed && column >= 0 && column < shown.view.columns.length;
    return isInside ? { row, column } : null;
  }

  function onKey(event) {
    if (cursor && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      return pick(cursor);
    }
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || !shown?.revealed) return;
    event.preventDefault();
    const clamp = (index, count) => Math.max(0, Math.min(count - 1, index));
    const from = cursor ?? shown.view.cell;
    moveCursor({ row: clamp(from.row + move[0], shown.revealed), column: clamp(from.column + move[1], shown.view.columns.length) });
    revealCursor();
  }

  /** Scroll the cell at the cursor into view; the row labels cover the left edge. */
  function revealCursor() {
    const left = cursor.column * layout.cell;
    const visible = box.clientWidth - layout.names;
    if (left < box.scrollLeft) box.scrollLeft = left;
    if (left + layout.cell > box.scrollLeft + visible) box.scrollLeft = left + layout.cell - visible + 8;
  }

  // ---- table and downloads ----

  /** List the weights of the revealed rows. */
  function showTable() {
    const box = part("table-box");
    if (box.hidden) return;
    const { view, weights, revealed } = shown;
    const columnHeads = view.columns.map((token) => make("th", { scope: "col" }, visibleToken(token)));
    const rows = weights.slice(0, revealed).map((each, row) => {
      const { decoded, main, read } = rowParts(view.rows[row]);
      const name = make("th", { scope: "row" }, main, decoded ? make("span", { class: "read" }, " ← " + read) : null);
      return make("tr", {}, name, ...each.map((weight) => make("td", {}, weight.toFixed(3))));
    });
    const corner = make("th", { scope: "col" }, rowParts(view.rows[0]).decoded ? "produced ← previous" : "token");
    box.replaceChildren(make("table", {},
      make("caption", {}, title()),
      make("thead", {}, make("tr", {}, corner, ...columnHeads)),
      make("tbody", {}, ...rows)));
  }

  function toggleTable() {
    const box = part("table-box");
    box.hidden = !box.hidden;
    part("table-button").setAttribute("aria-expanded", String(!box.hidden));
    showTable();
  }

  function saveCsv() {
    const { view, weights } = shown;
    const { decoded } = rowParts(view.rows[0]);
    const head = [...(decoded ? ["produced", "previous"] : ["token"]), ...view.columns];
    const rows = weights.map((each, row) => {
      const { produced, read, token } = view.rows[row];
      return [...(decoded ? [produced, read] : [token]), ...each];
    });
    downloadCsv([head, ...rows], fileName(fileTitle(), "csv"));
  }

  /** Download the map as PNG, drawn by the server in the style of the reports. */
  async function savePicture() {
    const { view, weights } = shown;
    const button = part("png-button");
    button.disabled = true;
    setText(part("error"), "");
    const name = fileName(fileTitle(), "png");
    const answer = await picture({
      title: (title() + "\n" + view.pair).slice(0, MAX_TITLE),
      rows: view.rows.map(rowText),
      columns: view.columns,
      weights,
      marked: gold.checked ? view.goldCells : [],
    });
    button.disabled = false;
    if (!answer?.png) return setText(part("error"), answer?.error || "The server did not return a picture.");
    const bytes = Uint8Array.from(atob(answer.png), (letter) => letter.charCodeAt(0));
    download(new Blob([bytes], { type: "image/png" }), name);
  }

  map.addEventListener("pointermove", (event) => moveCursor(cellAt(event)));
  map.addEventListener("pointerdown", (event) => moveCursor(cellAt(event)));
  map.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) pick(cell);
  });
  map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && moveCursor(null));
  map.addEventListener("keydown", onKey);
  gold.addEventListener("change", redraw);
  part("table-button").addEventListener("click", toggleTable);
  part("png-button").addEventListener("click", savePicture);
  part("csv-button").addEventListener("click", saveCsv);
  return { show, redraw, follow };
}
