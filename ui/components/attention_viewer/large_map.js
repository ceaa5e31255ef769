// The head that is open, large: its map with a cursor, what it says in words, its table and its files.

const map = part("map");
const box = part("box");
const marked = part("marked");
let cursor = null; // { row, column } under the pointer or the keyboard's cursor
let layout = null;

const openHead = () => preview ?? lockedHead(drawn);
const weightsOf = ({ layer, head }) => drawn.heads.find((each) => each.layer === layer && each.head === head).weights;
const openWeights = () => weightsOf(openHead());
const revealedRows = () => written ?? drawn.rows.length;

/** "Cross-attention, layer 2 of 2, head 4, training step 250": what the open map is, in full. */
function mapTitle() {
  const { layer, head } = openHead();
  const parts = [drawn.name[0].toUpperCase() + drawn.name.slice(1), "layer " + layer + " of " + drawn.layers, "head " + head];
  return [...parts, ...(drawn.when ? [drawn.when] : [])].join(", ");
}

// ---- the map ----

function drawLarge() {
  if (!drawn || !box.clientWidth) return;
  const theme = themeLook();
  layout = layoutMap(map.getContext("2d"), drawn, box.clientWidth - 8);
  const revealed = revealedRows();
  drawRowNames(part("names"), layout, drawn, revealed, theme);
  drawMap(map, layout, drawn, openWeights(), { showMarked: marked.checked, cursor, revealed }, theme);
  box.style.minHeight = drawn.reserve ? layout.reserved + 9 + "px" : "";
}

const redrawLarge = inNextFrame(drawLarge);

/** "row 1 produced 9 (after reading <BOS>)", or "row 1, 4" where nothing is decoded. */
function rowSentence(row) {
  const { decoded, main, read } = rowParts(drawn.rows[row]);
  return "row " + (row + 1) + (decoded ? " produced " + main + " (after reading " + read + ")" : ", " + main);
}

function cellSentence(row, column) {
  return rowSentence(row) + " → column " + (column + 1) + ", " + visibleToken(drawn.columns[column])
    + ": " + openWeights()[row][column].toFixed(3);
}

/** The text twin of what is outlined: the cell at the cursor, else the strongest cell of the marked row. */
function showReadout() {
  let text = "Point at a cell, or use the arrow keys, to read its weight.";
  if (cursor) text = cellSentence(cursor.row, cursor.column);
  else if (drawn.row !== null) {
    const weights = openWeights()[drawn.row];
    text = "Strongest: " + cellSentence(drawn.row, weights.indexOf(Math.max(...weights)));
  }
  setText(part("readout"), text);
}

/** Show the open head of what is drawn. */
function showLarge() {
  if (cursor && !(drawn.rows[cursor.row] && cursor.column < drawn.columns.length)) cursor = null;
  const { label } = drawn.heads.find(({ layer, head }) => layer === openHead().layer && head === openHead().head);
  setText(part("title"), mapTitle());
  setText(part("head-score"), label ? label + " on the true token, " + drawn.scoredOn : "");
  setText(part("axes"), drawn.axes);
  setText(part("caption"), drawn.caption + (drawn.when ? " Weights of a replay are kept to within 0.002." : ""));
  part("marked-label").hidden = !drawn.marked.length;
  map.setAttribute("aria-label", mapTitle() + ": " + drawn.rows.length + " rows by "
    + drawn.columns.length + " columns. Arrow keys read the cells; the Table button lists all numbers.");
  setText(part("trouble"), "");
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
  if (!layout || !drawn) return null;
  const row = Math.floor((event.offsetY - layout.head) / layout.cell);
  const column = Math.floor(event.offsetX / layout.cell);
  return row < revealedRows() && drawn.rows[row] && column >= 0 && column < drawn.columns.length ? { row, column } : null;
}

function onMapKey(event) {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move || !drawn) return;
  event.preventDefault();
  const within = (place, count) => Math.max(0, Math.min(count - 1, place));
  moveCursor(cursor
    ? { row: within(cursor.row + move[0], revealedRows()), column: within(cursor.column + move[1], drawn.columns.length) }
    : { row: drawn.row ?? 0, column: 0 });
  revealCursor();
}

/** Scroll the cell at the cursor into the box's sight; the row names cover its left edge. */
function revealCursor() {
  const left = cursor.column * layout.cell;
  const seen = box.clientWidth - layout.names;
  if (left < box.scrollLeft) box.scrollLeft = left;
  if (left + layout.cell > box.scrollLeft + seen) box.scrollLeft = left + layout.cell - seen + 8;
}

// ---- table and files ----

function showTable() {
  const place = part("table-box");
  if (place.hidden) return;
  const columnHeads = drawn.columns.map((token) => make("th", { scope: "col" }, visibleToken(token)));
  const rows = openWeights().map((weights, row) => {
    const { decoded, main, read } = rowParts(drawn.rows[row]);
    const name = make("th", { scope: "row" }, main, decoded ? make("span", { class: "read" }, " ← " + read) : null);
    return make("tr", {}, name, ...weights.map((weight) => make("td", {}, weight.toFixed(3))));
  });
  const corner = make("th", { scope: "col" }, rowParts(drawn.rows[0]).decoded ? "produced ← read" : "token");
  place.replaceChildren(make("table", {},
    make("caption", {}, mapTitle()),
    make("thead", {}, make("tr", {}, corner, ...columnHeads)),
    make("tbody", {}, ...rows)));
}

function toggleTable() {
  const place = part("table-box");
  place.hidden = !place.hidden;
  part("table-button").setAttribute("aria-expanded", String(!place.hidden));
  showTable();
}

function saveCsv() {
  const { decoded } = rowParts(drawn.rows[0]);
  const head = [...(decoded ? ["produced", "read"] : ["token"]), ...drawn.columns];
  const rows = openWeights().map((weights, row) => {
    const { produced, read, token } = drawn.rows[row];
    return [...(decoded ? [produced, read] : [token]), ...weights];
  });
  downloadCsv([head, ...rows], fileName(mapTitle(), "csv"));
}

/** The printed picture is drawn by the server, in the same style as the reports. */
async function savePicture() {
  const button = part("png-button");
  button.disabled = true;
  setText(part("trouble"), "");
  const name = fileName(mapTitle(), "png");
  const answer = await askServer("picture", {
    title: mapTitle(),
    rows: drawn.rows.map(rowText),
    columns: drawn.columns,
    weights: openWeights(),
    marked: marked.checked ? drawn.marked : [],
  });
  button.disabled = false;
  if (!answer?.png) return setText(part("trouble"), answer?.error || "No picture came back from the server.");
  const bytes = Uint8Array.from(atob(answer.png), (letter) => letter.charCodeAt(0));
  download(new Blob([bytes], { type: "image/png" }), name);
}

map.addEventListener("pointermove", (event) => moveCursor(cellAt(event)));
map.addEventListener("pointerdown", (event) => moveCursor(cellAt(event)));
map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && moveCursor(null));
map.addEventListener("keydown", onMapKey);
marked.addEventListener("change", redrawLarge);
part("table-button").addEventListener("click", toggleTable);
part("png-button").addEventListener("click", savePicture);
part("csv-button").addEventListener("click", saveCsv);
drawScale(part("scale-bar"));
