// The output token by token: each marks its row of the map, and a button reveals them one after another.

import { make, setText } from "../../web/dom.js";
import { isolated, tokenNamer, visibleToken } from "../../web/format.js";

const STEP_MS = 700; // per step

function verdictOf({ tokens, expected, texts }) {
  if (!expected) return "";
  if (texts) return texts.output === texts.expected ? "✓ as the reference" : "reference: " + isolated(texts.expected);
  const right = tokens.length === expected.length && tokens.every((token, step) => token === expected[step]);
  return right ? "✓ correct" : "✗ expected " + isolated(expected.map(visibleToken).join(" "));
}

/**
 * Make the playback in a viewer's elements. It continues, or stays paused, whatever else is shown, until `end` is called.
 *
 * isVisible()    whether the viewer is; while it is not, nothing is revealed
 * onStart()      before the rows are revealed one after another
 * onReveal(row)  a row was revealed; null: the playback ended, and all are
 * onPick(row)    the visitor pressed an output token
 */
export function makePlayback(part, { isVisible, onStart, onReveal, onPick }) {
  const tiles = [];
  let steps = 0; // of the shown record
  let revealed = null; // number of revealed steps; null: all, without a playback
  let timer = 0; // while the playback runs

  function pause() {
    clearTimeout(timer);
    timer = 0;
  }

  /** End the playback; returns whether there was one. */
  function end() {
    const wasActive = revealed !== null;
    pause();
    revealed = null;
    return wasActive;
  }

  function revealNext() {
    timer = setTimeout(revealNext, STEP_MS);
    if (!isVisible()) return;
    if (revealed >= steps) {
      end();
      return onReveal(null);
    }
    revealed += 1;
    onReveal(revealed - 1);
  }

  /** Start, pause or resume. */
  function toggle() {
    if (timer) {
      pause();
      return showButtons();
    }
    onStart();
    if (revealed === null || revealed >= steps) revealed = 0;
    revealNext();
  }

  /** Scroll the output, of which a long one shows a few lines, and not the page. */
  function keepInView(tile) {
    const [box, line] = [part("tiles").getBoundingClientRect(), tile.getBoundingClientRect()];
    if (line.top < box.top || line.bottom > box.bottom) part("tiles").scrollTop += line.top - box.top;
  }

  function showButtons() {
    setText(part("playback-button"), timer ? "❚❚ Pause" : "▶ Step by step");
    part("stop-button").style.visibility = revealed === null ? "hidden" : ""; // its place stays, so that nothing moves
  }

  part("playback-button").addEventListener("click", toggle);
  part("stop-button").addEventListener("click", () => {
    end();
    onReveal(null);
    part("playback-button").focus(); // the pressed button is hidden now
  });

  return {
    pause,
    end,
    isActive: () => revealed !== null,
    /** The number of rows of a view that are shown; the rows of encoder maps are not steps. */
    revealedRows: (view) => (view.block === "encoder" ? view.rows.length : Math.min(revealed ?? Infinity, view.rows.length)),
    /** Show the output tokens, with gaps for those not revealed yet; hidden for encoder maps. */
    show(record, view) {
      steps = record.tokens.length;
      part("playback").hidden = view.block === "encoder";
      while (tiles.length < steps) {
        const step = tiles.length;
        tiles.push(make("button", { type: "button", class: "tile", onclick: () => onPick(step) }));
        part("tiles").append(tiles.at(-1));
      }
      tiles.forEach((tile, step) => {
        tile.hidden = step >= steps;
        tile.classList.toggle("not-revealed", revealed !== null && step >= revealed);
        if (tile.hidden) return;
        const token = tokenNamer(record.words)(record.tokens[step]);
        setText(tile, token);
        tile.setAttribute("aria-pressed", String(view.row === step));
        tile.setAttribute("aria-label", "step " + (step + 1) + ", " + token);
      });
      if (view.row !== null && !part("playback").hidden) keepInView(tiles[view.row]);
      const text = revealed === null || revealed >= steps ? verdictOf(record) : "";
      setText(part("verdict"), text);
      part("verdict").classList.toggle("good", text.startsWith("✓"));
      part("verdict").classList.toggle("bad", text.startsWith("✗"));
      showButtons();
    },
  };
}
