// The attention viewer: every head of a layer as a thumbnail, one of them large with its numbers.
// Event: 'pick' {head} when the visitor chooses a head. (Not 'head': gr.HTML has an attribute of that name.)
// With the prop `compact` there are only thumbnails, and each is a button.

const compact = Boolean(props.compact);
const sides = { thumbnail: compact ? 128 : 88 };
const groupName = uniqueName("head");
const map = part("map");
const box = part("box");
const marked = part("marked");

let value = null; // what Python gave, null when there is nothing to show
let chosen = null; // number of the open head
let cursor = null; // { row, column } under the pointer or the keyboard's cursor
let layout = null;

const openHead = () => value.heads.find((each) => each.head === chosen);

// ---- thumbnails ----

function makeThumbnail(head) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  drawThumbnail(canvas, head.weights, sides.thumbnail);
  const score = head.label || (head.score == null ? "" : "score " + head.score.toFixed(2));
  const inside = [
    make("span", { class: "picture" }, canvas),
    make("span", { class: "head-label" }, "head " + head.head),
    score ? make("span", { class: "score" }, score) : null,
  ];
  if (compact) {
    return make("button", { type: "button", class: "thumbnail", onclick: () => trigger("pick", { head: head.head }) }, ...inside);
  }
  const radio = make("input", { type: "radio", name: groupName, value: head.head, onchange: () => pick(head.head) });
  radio.checked = head.head === chosen;
  return make("label", { class: "thumbnail" }, radio, ...inside);
}

/** Rebuild the thumbnails; if one had the keyboard's focus, the chosen one gets it back. */
function showThumbnails() {
  const thumbnails = part("thumbnails");
  const hadFocus = thumbnails.contains(document.activeElement);
  thumbnails.replaceChildren(...value.heads.map(makeThumbnail));
  if (hadFocus) thumbnails.querySelector("input:checked, button")?.focus({ preventScroll: true });
}

function pick(head) {
  chosen = head;
  showLarge();
  trigger("pick", { head });
}

// ---- the large map ----

function drawLarge() {
  if (compact || !value || !box.clientWidth) return;
  const head = openHead();
  const theme = themeLook();
  layout = layoutMap(map.getContext("2d"), value, box.clientWidth - 8);
  drawRowNames(part("names"), layout, value, theme);
  drawMap(map, layout, value, head.weights, { showMarked: marked.checked, cursor }, theme);
}

const redraw = inNextFrame(drawLarge);

/** "row 1 produced 9 (after reading <BOS>)", or "row 1, 4" where nothing is decoded. */
function rowSentence(row) {
  const { decoded, main, read } = rowParts(value.rows[row]);
  return "row " + (row + 1) + (decoded ? " produced " + main + " (after reading " + read + ")" : ", " + main);
}

function cellSentence(row, column) {
  return rowSentence(row) + " → column " + (column + 1) + ", " + visibleToken(value.columns[column])
    + ": " + openHead().weights[row][column].toFixed(3);
}

/** The text twin of what is outlined: the cell at the cursor, else the strongest cell of the marked row. */
function showReadout() {
  let text = "Point at a cell, or use the arrow keys, to read its weight.";
  if (cursor) text = cellSentence(cursor.row, cursor.column);
  else if (value.row != null && value.rows[value.row]) {
    const weights = openHead().weights[value.row];
    text = "Strongest: " + cellSentence(value.row, weights.indexOf(Math.max(...weights)));
  }
  setText(part("readout"), text);
}

function showLarge() {
  if (compact) return;
  const head = openHead();
  const name = "head " + head.head;
  setText(part("head-name"), name + (head.label ? ": " + head.label : ""));
  map.setAttribute("aria-label", value.title + ", " + name + ": " + value.rows.length + " rows by "
    + value.columns.length + " columns. Arrow keys read the cells; the Table button lists all numbers.");
  setText(part("trouble"), "");
  showReadout();
  showTable();
  redraw();
}

function moveCursor(next) {
  if (next?.row === cursor?.row && next?.column === cursor?.column) return;
  cursor = next;
  showReadout();
  redraw();
}

function cellAt(event) {
  if (!layout) return null;
  const row = Math.floor((event.offsetY - layout.head) / layout.cell);
  const column = Math.floor(event.offsetX / layout.cell);
  return value.rows[row] && column >= 0 && column < value.columns.length ? { row, column } : null;
}

function onKey(event) {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move || !value) return;
  event.preventDefault();
  const within = (place, count) => Math.max(0, Math.min(count - 1, place));
  moveCursor(cursor
    ? { row: within(cursor.row + move[0], value.rows.length), column: within(cursor.column + move[1], value.columns.length) }
    : { row: value.row ?? 0, column: 0 });
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
  const columnHeads = value.columns.map((token) => make("th", { scope: "col" }, visibleToken(token)));
  const rows = openHead().weights.map((weights, row) => {
    const { decoded, main, read } = rowParts(value.rows[row]);
    const name = make("th", { scope: "row" }, main, decoded ? make("span", { class: "read" }, " ← " + read) : null);
    return make("tr", {}, name, ...weights.map((weight) => make("td", {}, weight.toFixed(3))));
  });
  const corner = make("th", { scope: "col" }, rowParts(value.rows[0]).decoded ? "produced ← read" : "token");
  place.replaceChildren(make("table", {},
    make("caption", {}, value.title + ", head " + chosen),
    make("thead", {}, make("tr", {}, corner, ...columnHeads)),
    make("tbody", {}, ...rows)));
}

function toggleTable() {
  const place = part("table-box");
  place.hidden = !place.hidden;
  part("table-button").setAttribute("aria-expanded", String(!place.hidden));
  showTable();
}

const saveName = (ending) => fileName(value.title + " head " + chosen, ending);

function saveCsv() {
  const { decoded } = rowParts(value.rows[0]);
  const head = [...(decoded ? ["produced", "read"] : ["token"]), ...value.columns];
  const rows = openHead().weights.map((weights, row) => {
    const { produced, read, token } = value.rows[row];
    return [...(decoded ? [produced, read] : [token]), ...weights];
  });
  downloadCsv([head, ...rows], saveName("csv"));
}

/** The printed picture is drawn by the server, in the same style as the reports. */
async function savePicture() {
  const button = part("png-button");
  button.disabled = true;
  setText(part("trouble"), "");
  const name = saveName("png");
  const answer = await askServer("picture", {
    title: value.title + ", head " + chosen,
    rows: value.rows.map(rowText),
    columns: value.columns,
    weights: openHead().weights,
    marked: marked.checked ? value.marked ?? [] : [],
  });
  button.disabled = false;
  if (!answer?.png) return setText(part("trouble"), answer?.error || "No picture came back from the server.");
  const bytes = Uint8Array.from(atob(answer.png), (letter) => letter.charCodeAt(0));
  download(new Blob([bytes], { type: "image/png" }), name);
}

// ---- taking a value ----

function takeValue() {
  const given = props.value;
  value = given?.heads?.length && given.rows?.length && given.columns?.length ? given : null;
  part("empty").hidden = compact || value !== null; // the compact one stands beside an answer that says it
  part("shown").hidden = value === null;
  cursor = null;
  if (!value) return;
  const exists = (head) => value.heads.some((each) => each.head === head);
  if (exists(value.selected)) chosen = value.selected;
  else if (!exists(chosen)) chosen = value.heads[0].head;
  setText(part("title"), value.title ?? "");
  setText(part("caption"), value.caption ?? "");
  setText(part("uniform"), value.uniform == null ? "" : "Looking everywhere equally would score " + value.uniform.toFixed(2) + ".");
  part("marked-label").hidden = !value.marked?.length;
  showThumbnails();
  showLarge();
}

part("shown").classList.toggle("compact", compact);
part("thumbnails").setAttribute("role", compact ? "group" : "radiogroup");
part("thumbnails").setAttribute("aria-label", "Heads");
map.addEventListener("pointermove", (event) => moveCursor(cellAt(event)));
map.addEventListener("pointerdown", (event) => moveCursor(cellAt(event)));
map.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && moveCursor(null));
map.addEventListener("keydown", onKey);
marked.addEventListener("change", redraw);
part("table-button").addEventListener("click", toggleTable);
part("png-button").addEventListener("click", savePicture);
part("csv-button").addEventListener("click", saveCsv);
drawScale(part("scale-bar"));
takeValue();
onLookChange(redraw);
watch("value", takeValue);
