// The selected head, large: its map with a cursor, readout, table and downloads.

const map = part("map");
const box = part("box");
const gold = part("gold");
let cursor = null; // { row, column } under the pointer or the keyboard's cursor
let layout = null;

const openHead = () => preview ?? lockedHead(shownView);
const weightsOf = ({ layer, head }) => shownView.heads.find((each) => each.layer === layer && each.head === head).weights;
const openWeights = () => weightsOf(openHead());
const revealedRows = () => revealedSteps ?? shownView.rows.length;

/** The title of the map: "Cross-attention, layer 2 of 2, head 4, training step 250". */
function mapTitle() {
  const { layer, head } = openHead();
  const parts = [shownView.name[0].toUpperCase() + shownView.name.slice(1), "layer " + layer + " of " + shownView.layers, "head " + head];
  return [...parts, ...(shownView.when ? [shownView.when] : [])].join(", ");
}

// ---- the map ----

function drawLarge() {
  if (!shownView || !box.clientWidth) return;
  const theme = themeColors();
  layout = layoutMap(map.getContext("2d"), shownView, box.clientWidth - 8);
  const revealed = revealedRows();
  drawRowNames(part("names"), layout, shownView, revealed, theme);
  drawMap(map, layout, shownView, openWeights(), { showGold: gold.checked, cursor, revealed }, theme);
  box.style.minHeight = shownView.reserve ? layout.reserved + 9 + "px" : "";
}

const redrawLarge = inNextFrame(drawLarge);

/** "row 1 produced 9 (after reading <BOS>)", or "row 1, 4" in encoder maps. */
function rowSentence(row) {
  const { decoded, main, read } = rowParts(shownView.rows[row]);
  return "row " + (row + 1) + (decoded ? " produced " + main + " (after reading " + read + ")" : ", " + main);
}

function cellSentence(row, column) {
  return rowSentence(row) + " → column " + (column + 1) + ", " + visibleToken(shownView.columns[column])
    + ": " + openWeights()[row][column].toFixed(3);
}

/** Show the cell at the cursor as text, else the strongest cell of the marked row. */
function showReadout() {
  let text = "Point at a cell or use the arrow keys to read its weight.";
  if (cursor) text = cellSentence(cursor.row, cursor.column);
  else if (shownView.row !== null) {
    const weights = openWeights()[shownView.row];
    text = "Strongest: " + cellSentence(shownView.row, weights.indexOf(Math.max(...weights)));
  }
  setText(part("readout"), text);
}

/** Show the selected head. */
function showLarge() {
  if (cursor && !(shownView.rows[cursor.row] && cursor.column < shownView.columns.length)) cursor = null;
  const { label } = shownView.heads.find(({ layer, head }) => layer === openHead().layer && head === openHead().head);
  setText(part("title"), mapTitle());
  setText(part("head-score"), label ? label + " on the correct source token, " + shownView.scoredOn : "");
  setText(part("axes"), shownView.axes);
  setText(part("caption"), shownView.caption + (shownView.when ? " Replayed weights are rounded to 0.002." : ""));
  part("gold-label").hidden = !shownView.goldCells.length;
  map.setAttribute("aria-label", mapTitle() + ": " + shownView.rows.length + " rows by "
    + shownView.columns.length + " columns. Arrow keys move a cursor; the Table button lists all weights.");
  setText(part("error"), "");
  showReadout();
  showTable();
  redrawLarge();
}

// ---- the cursor ----

function moveCursor(next) {
  if (next?.row === cursor?.row && next?.column === cursor?.column) return;
  cursor = next;
  showReadout();
  redrawLarge();
}

function cellAt(event) {
  if (!layout || !shownView) return null;
  const row = Math.floor((event.offsetY - layout.head) / layout.cell);
  const column = Math.floor(event.offsetX / layout.cell);
  return row < revealedRows() && shownView.rows[row] && column >= 0 && column < shownView.columns.length ? { row, column } : null;
}

function onMapKey(event) {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move || !shownView) return;
  event.preventDefault();
  const clamp = (index, count) => Math.max(0, Math.min(count - 1, index));
  moveCursor(cursor
    ? { row: clamp(cursor.row + move[0], revealedRows()), column: clamp(cursor.column + move[1], shownView.columns.length) }
    : { row: shownView.row ?? 0, column: 0 });
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

function showTable() {
  const box = part("table-box");
  if (box.hidden) return;
  const columnHeads = shownView.columns.map((token) => make("th", { scope: "col" }, visibleToken(token)));
  const rows = openWeights().map((weights, row) => {
    const { decoded, main, read } = rowParts(shownView.rows[row]);
    const name = make("th", { scope: "row" }, main, decoded ? make("span", { class: "read" }, " ← " + read) : null);
    return make("tr", {}, name, ...weights.map((weight) => make("td", {}, weight.toFixed(3))));
  });
  const corner = make("th", { scope: "col" }, rowParts(shownView.rows[0]).decoded ? "produced ← read" : "token");
  box.replaceChildren(make("table", {},
    make("caption", {}, mapTitle()),
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
  const { decoded } = rowParts(shownView.rows[0]);
  const head = [...(decoded ? ["produced", "read"] : ["token"]), ...shownView.columns];
  const rows = openWeights().map((weights, row) => {
    const { produced, read, token } = shownView.rows[row];
    return [...(decoded ? [produced, read] : [token]), ...weights];
  });
  downloadCsv([head, ...rows], fileName(mapTitle(), "csv"));
}

/** Download the map as PNG, drawn by the server in the style of the reports. */
async function savePicture() {
  const button = part("png-button");
  button.disabled = true;
  setText(part("error"), "");
  const name = fileName(mapTitle(), "png");
  const answer = await callServer("picture", {
    title: mapTitle(),
    rows: shownView.rows.map(rowText),
    columns: shownView.columns,
    weights: openWeights(),
    marked: gold.checked ? shownView.goldCells : [],
  });
  button.disabled = false;
  if (!answer?.png) return setText(part("error"), answer?.error || "The server did not return a picture.");
  const bytes = Uint8Array.from(atob(answer.png), (letter) => letter.charCodeAt(0));
  download(new Blob([bytes], { type: "image/png" }), name);
}

map.addEventListener("pointermove", (event) => moveCursor(cellAt(event)));
map.addEventListener("pointerdown", (event) => moveCursor(cellAt(event)));
map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && moveCursor(null));
map.addEventListener("keydown", onMapKey);
gold.addEventListener("change", redrawLarge);
part("table-button").addEventListener("click", toggleTable);
part("png-button").addEventListener("click", savePicture);
part("csv-button").addEventListener("click", saveCsv);
drawScale(part("scale-bar"));
