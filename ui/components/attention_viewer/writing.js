// The answer token by token: each marks its row of the map, and a button writes them one after another.

const WRITING_MS = 700; // a step
let written = null; // rows revealed so far while writing, null: all of them
let writingTimer = 0;
const tiles = [];

const isWriting = () => writingTimer !== 0;

/** Show the answer's tokens, those not written yet as gaps; hidden where the rows are not steps of writing. */
function showWriting(view, told) {
  part("writing").hidden = view.block === "encoder";
  while (tiles.length < told.tokens.length) {
    const step = tiles.length;
    tiles.push(make("button", { type: "button", class: "tile", onclick: () => markRow(step) }));
    part("tiles").append(tiles.at(-1));
  }
  tiles.forEach((tile, step) => {
    tile.hidden = step >= told.tokens.length;
    if (tile.hidden) return;
    const token = visibleToken(told.tokens[step]);
    setText(tile, token);
    tile.setAttribute("aria-pressed", String(looked.row === step));
    tile.setAttribute("aria-label", "step " + (step + 1) + ", " + token);
    tile.classList.toggle("unwritten", written !== null && step >= written);
  });
  const said = written === null || written >= told.tokens.length ? verdict(told) : "";
  setText(part("verdict"), said);
  part("verdict").classList.toggle("good", said.startsWith("✓"));
  part("verdict").classList.toggle("bad", said.startsWith("✗"));
  setText(part("write-button"), isWriting() ? "❚❚ Pause" : "▶ Step by step");
}

function verdict({ tokens, expected }) {
  if (!expected) return "";
  const right = tokens.length === expected.length && tokens.every((token, step) => token === expected[step]);
  return right ? "✓ correct" : "✗ expected " + expected.map(visibleToken).join(" ");
}

/** Mark one row, or, if it is marked already, none. */
function markRow(step) {
  endWriting();
  looked.row = looked.row === step ? null : step;
  showView();
}

function writeNext() {
  const steps = drawn?.rows.length ?? 0;
  if (written === null || written >= steps) return endWriting();
  written += 1;
  looked.row = written - 1;
  writingTimer = setTimeout(writeNext, WRITING_MS);
  showView();
}

/** Start, pause or go on. */
function toggleWriting() {
  if (isWriting()) {
    clearTimeout(writingTimer);
    writingTimer = 0;
    return showView();
  }
  stopPlaying();
  if (written === null || written >= drawn.rows.length) written = 0;
  writeNext();
}

/** Reveal everything; what was marked while writing is no longer. */
function endWriting() {
  if (written === null) return;
  clearTimeout(writingTimer);
  writingTimer = 0;
  written = looked.row = null;
  showView();
}

part("write-button").addEventListener("click", toggleWriting);
