// The output token by token: each marks its row of the map, and a button reveals them one after another.

const STEP_MS = 700; // per step
let revealedSteps = null; // number of revealed rows during playback; null: all
let playbackTimer = 0;
const tiles = [];

const isPlayingBack = () => playbackTimer !== 0;

/** Show the output tokens, with gaps for those not revealed yet; hidden for encoder maps. */
function showPlayback(view, record) {
  part("playback").hidden = view.block === "encoder";
  while (tiles.length < record.tokens.length) {
    const step = tiles.length;
    tiles.push(make("button", { type: "button", class: "tile", onclick: () => markRow(step) }));
    part("tiles").append(tiles.at(-1));
  }
  tiles.forEach((tile, step) => {
    tile.hidden = step >= record.tokens.length;
    if (tile.hidden) return;
    const token = visibleToken(record.tokens[step]);
    setText(tile, token);
    tile.setAttribute("aria-pressed", String(selected.row === step));
    tile.setAttribute("aria-label", "step " + (step + 1) + ", " + token);
    tile.classList.toggle("not-revealed", revealedSteps !== null && step >= revealedSteps);
  });
  const text = revealedSteps === null || revealedSteps >= record.tokens.length ? verdict(record) : "";
  setText(part("verdict"), text);
  part("verdict").classList.toggle("good", text.startsWith("✓"));
  part("verdict").classList.toggle("bad", text.startsWith("✗"));
  setText(part("playback-button"), isPlayingBack() ? "❚❚ Pause" : "▶ Step by step");
}

function verdict({ tokens, expected }) {
  if (!expected) return "";
  const right = tokens.length === expected.length && tokens.every((token, step) => token === expected[step]);
  return right ? "✓ correct" : "✗ expected " + expected.map(visibleToken).join(" ");
}

/** Mark a row, or unmark it. */
function markRow(step) {
  endPlayback();
  selected.row = selected.row === step ? null : step;
  showView();
}

function revealNext() {
  const steps = shownView?.rows.length ?? 0;
  if (revealedSteps === null || revealedSteps >= steps) return endPlayback();
  revealedSteps += 1;
  selected.row = revealedSteps - 1;
  playbackTimer = setTimeout(revealNext, STEP_MS);
  showView();
}

/** Start, pause or resume. */
function togglePlayback() {
  if (isPlayingBack()) {
    clearTimeout(playbackTimer);
    playbackTimer = 0;
    return showView();
  }
  stopReplay();
  if (revealedSteps === null || revealedSteps >= shownView.rows.length) revealedSteps = 0;
  revealNext();
}

/** Reveal all rows and unmark the current one. */
function endPlayback() {
  if (revealedSteps === null) return;
  clearTimeout(playbackTimer);
  playbackTimer = 0;
  revealedSteps = selected.row = null;
  showView();
}

part("playback-button").addEventListener("click", togglePlayback);
