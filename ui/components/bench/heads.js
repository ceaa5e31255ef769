// The attention heads of the shown snapshot as small maps, and the slider and the replay over all snapshots.

import { inNextFrame, onAppearanceChange } from "../../web/canvas.js";
import { make, setText } from "../../web/dom.js";
import { BLOCK_NAMES, headName, isolated, visibleToken } from "../../web/format.js";
import { MARKS } from "../../web/head_marks.js";
import { laterStyles } from "../../web/later_styles.js";
import { headsOf, sourceBlock } from "../../web/maps.js";
import { openHead } from "../../web/navigation.js";
import { feed, isActive, select, selection, shownStep } from "../../web/run_feed.js";
import { drawThumbnail } from "../../web/small_map.js";

const SIDE = { least: 26, most: 280 }; // pixels of a map
const LAYER_NAME = 64; // pixels beside a layer's maps
const CELL = { more: 14, least: 64, long: 92 }; // pixels: around a map; before the layer wraps; for "head 1 · 0.97" in its name
const LABEL_HEIGHT = 28; // pixels of a head's name with its margins
const MARK_HEIGHT = 15; // of the word under it
const REPLAY_MS = { all: 8000, least: 120, most: 400 };

const AXES = {
  cross: "row: output token · column: input token",
  decoder: "row: output token · column: tokens before it",
  encoder: "row: input token · column: input token it attends to",
};

const tokensText = (tokens) => tokens.map(visibleToken).join(" ");
const sourceText = ({ texts, source }) => texts?.source ?? tokensText(source);
const outputText = ({ texts, tokens }) => texts?.output ?? tokensText(tokens.filter((token) => token !== "<EOS>"));

/** Replace a select's options [[value, text]] only if they differ, which keeps it open. */
function setOptions(node, options, chosen) {
  const key = JSON.stringify(options);
  if (node.dataset.key !== key) {
    node.dataset.key = key;
    node.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  }
  node.value = String(chosen);
  node.hidden = options.length < 2;
}

export function headsPanel(element, part) {
  let layer = "all";
  let drawing = null; // the visitor's choice: "maps", or "lines" between words
  let showRibbon = null; // its script loads with the first lines
  let grid = { key: "", maps: [] };
  let drawn = null;
  let timer = 0; // of the replay

  // ---- the maps ----

  /** The shown layers: [{ block, layer, heads }], with their maps. */
  function rowsOf(snapshot) {
    const all = Object.entries(snapshot.maps).flatMap(([block, packed]) => {
      const heads = headsOf(packed);
      return Array.from({ length: packed.shape[0] }, (_, at) =>
        ({ block, layer: at + 1, heads: heads.filter((head) => head.layer === at + 1) }));
    });
    const chosen = all.filter((row) => layer === "all" || row.layer === Number(layer));
    return chosen.length ? chosen : all;
  }

  function scoreOf(snapshot, { block, layer: number }, head) {
    return block === snapshot.scored_block ? snapshot.attention_mass?.[number - 1]?.[head - 1] ?? null : null;
  }

  /** "uniform", "collapsed" or "dead", or "". */
  const markOf = (snapshot, { block, layer: number }, head) => snapshot.marks?.[block]?.[number - 1]?.[head - 1] ?? "";

  function makeGrid(rows, manyBlocks) {
    const maps = [];
    part("maps").replaceChildren(...rows.map((row) => make("div", { class: "layer-row" },
      make("span", { class: "layer-name" }, (manyBlocks ? row.block + ", " : "") + "layer " + row.layer),
      make("div", { class: "layer-heads" }, ...row.heads.map(({ head }) => {
        const canvas = make("canvas", { "aria-hidden": "true" });
        const name = make("span", { class: "name" });
        const mark = make("span", { class: "mark-word" });
        const open = () => openHead({ mode: "replay", block: row.block, layer: row.layer, head, input: selection.input, step: selection.step });
        const button = make("button", { type: "button", class: "map", onclick: open }, canvas, name, mark);
        maps.push({ row, head, canvas, name, mark, button });
        return button;
      })))));
    return maps;
  }

  /** The largest maps that fit: in one or two columns of layers, { side, columns, perRow: heads in a row, cell: its width }. */
  function sizesOf(rows) {
    const box = part("maps");
    const most = Math.max(...rows.map(({ heads }) => heads.length));
    const grows = getComputedStyle(box).overflowY === "visible"; // the page scrolls, not the maps
    const beside = grows && innerWidth <= 700 ? 0 : LAYER_NAME;
    const isMarked = rows.some((row) => row.heads.some(({ head }) => markOf(feed.shown, row, head)));
    const label = LABEL_HEIGHT + (isMarked ? MARK_HEIGHT : 0);
    const sizes = [1, 2].map((columns) => {
      const wide = (box.clientWidth - 6 * (columns - 1)) / columns - beside;
      let perRow = most;
      while (perRow > 2 && wide / perRow < CELL.least) perRow = Math.ceil(perRow / 2);
      const lines = Math.ceil(rows.length / columns) * Math.ceil(most / perRow);
      const high = grows ? SIDE.most : (box.clientHeight - 8) / lines - label - 8;
      const side = Math.floor(Math.max(SIDE.least, Math.min(SIDE.most, wide / perRow - CELL.more, high)));
      return { side, columns, perRow, cell: wide / perRow };
    });
    return rows.length > 1 && sizes[1].side > sizes[0].side ? sizes[1] : sizes[0];
  }

  function drawMaps() {
    const snapshot = feed.shown;
    if (!snapshot?.blocks.length || !part("maps").clientWidth) return;
    const rows = rowsOf(snapshot);
    const manyBlocks = Object.keys(snapshot.maps).length > 1;
    const key = rows.map((row) => [row.block, row.layer, row.heads.length]).join(" ") + manyBlocks;
    if (grid.key !== key) grid = { key, maps: makeGrid(rows, manyBlocks) };
    const { side, columns, perRow, cell } = sizesOf(rows);
    part("maps").classList.toggle("two-columns", columns === 2);
    part("maps").style.setProperty("--columns", perRow);
    const scored = rows.flatMap((row) => row.heads.map(({ head }) => scoreOf(snapshot, row, head))).filter((score) => score !== null);
    const best = scored.length > 1 ? Math.max(...scored) : null;
    for (const map of grid.maps) {
      const row = rows.find((each) => each.block === map.row.block && each.layer === map.row.layer);
      const { weights } = row.heads.find((each) => each.head === map.head);
      const score = scoreOf(snapshot, row, map.head);
      drawThumbnail(map.canvas, weights, side);
      setText(map.name, (cell < CELL.long ? String(map.head) : "head " + map.head) + (score === null ? "" : " · " + score.toFixed(2)));
      const mark = markOf(snapshot, row, map.head);
      setText(map.mark, mark);
      map.mark.hidden = !mark;
      map.button.title = (MARKS[mark] ? MARKS[mark] + ". " : "") + "Open this head";
      map.button.classList.toggle("best", best !== null && score === best);
      map.button.setAttribute("aria-label", BLOCK_NAMES[row.block] + ", " + headName({ layer: row.layer, head: map.head })
        + (score === null ? "" : ", " + score.toFixed(2) + " on the correct token")
        + (mark ? ", " + mark : "") + ": open");
    }
  }

  const redraw = inNextFrame(drawMaps);

  // ---- the lines ----

  /** The lines are first where there are words; where the maps are not of the source, there are none. */
  const drawsLines = (snapshot) => Boolean(sourceBlock(snapshot)) && (drawing ?? (snapshot.words ? "lines" : "maps")) === "lines";

  /** A snapshot's answer as a record, see maps.js. */
  function recordOf(snapshot) {
    const { source, tokens } = snapshot.answers[snapshot.input];
    const about = { axes: "", caption: "" };
    return (snapshot.record ??= { ...snapshot, source: snapshot.source ?? ["<BOS>", ...source, "<EOS>"], tokens, gold_cells: [], ablated: [], scored_on: "",
      blocks: snapshot.blocks.map((each) => ({ ...each, ...about })), model: feed.latest?.title + " after " + snapshot.step.toLocaleString("en") + " steps" });
  }

  async function drawLines() {
    if (!showRibbon) {
      showRibbon = () => {}; // until the script has come
      const [{ ribbon }] = await Promise.all([import("../../web/ribbon.js"), laterStyles()]);
      showRibbon = ribbon(part("lines"));
    }
    const snapshot = feed.shown;
    if (snapshot && drawsLines(snapshot)) showRibbon(recordOf(snapshot));
  }

  // ---- texts and selects ----

  function showSelects(snapshot) {
    const blocks = snapshot.blocks;
    const shown = Object.keys(snapshot.maps);
    const options = blocks.map(({ block, name }) => [block, name]);
    setOptions(part("block"), options.length > 1 ? [...options, ["all", "all blocks"]] : options, shown.length > 1 ? "all" : shown[0]);
    const layers = Math.max(...blocks.filter(({ block }) => shown.includes(block)).map((each) => each.layers));
    if (layer !== "all" && Number(layer) > layers) layer = "all";
    const numbers = Array.from({ length: layers }, (_, at) => [String(at + 1), "layer " + (at + 1)]);
    setOptions(part("layer"), layers > 1 ? [["all", "all layers"], ...numbers] : [["all", "layer 1"]], layer);
    const isRibbon = drawsLines(snapshot);
    setOptions(part("drawing"), sourceBlock(snapshot) ? [["maps", "maps"], ["lines", "lines"]] : [["maps", "maps"]], isRibbon ? "lines" : "maps");
    if (isRibbon) part("block").hidden = part("layer").hidden = true;
    setOptions(part("input"), snapshot.answers.map((answer, at) => [String(at), sourceText(answer)]), snapshot.input);
  }

  function legendText(snapshot) {
    const shown = Object.keys(snapshot.maps);
    const axes = shown.length === 1 ? AXES[shown[0]] : "row: token that attends · column: token attended to";
    if (!snapshot.attention_mass || !shown.includes(snapshot.scored_block)) return axes + " · stronger color: more attention";
    return axes + " · stronger color: more attention · number: attention on the correct input token, mean of "
      + snapshot.num_scored + " inputs" + (snapshot.uniform_mass == null ? "" : " (spread evenly: " + snapshot.uniform_mass.toFixed(2) + ")")
      + " · framed: the highest";
  }

  function emptyText(snapshot) {
    if (snapshot && feed.latest?.watched) return "No attention was seen; the line under the bar at the top says why.";
    if (snapshot) return "The maps of this model are too large to save at every evaluation. Open “Look inside” for those of one input.";
    if (feed.loading) return "Loading …";
    if (feed.run === null) return "The attention heads appear here while the model learns.";
    if (!feed.latest) return "Loading …";
    return isActive() ? "The first maps appear with the first evaluation." : "This run has no saved attention maps.";
  }

  function showScrubber() {
    const at = feed.steps.indexOf(shownStep());
    const scrubber = part("scrubber");
    part("scrub").hidden = feed.steps.length < 2;
    scrubber.max = Math.max(0, feed.steps.length - 1);
    scrubber.value = Math.max(0, at);
    const text = "step " + (shownStep() ?? 0).toLocaleString("en");
    scrubber.setAttribute("aria-valuetext", text);
    setText(part("when"), text + (selection.step === null && isActive() ? ", latest" : ""));
    setText(part("replay"), timer ? "❚❚ Pause" : "▶ Replay");
  }

  // ---- replay ----

  function go(at) {
    const last = feed.steps.length - 1;
    select({ step: at >= last ? null : feed.steps[at] });
  }

  function stopReplay() {
    clearTimeout(timer);
    timer = 0;
  }

  function next() {
    const at = feed.steps.indexOf(shownStep());
    if (!element.isConnected || element.offsetParent === null || at >= feed.steps.length - 1) {
      stopReplay();
      return showScrubber();
    }
    timer = setTimeout(next, Math.max(REPLAY_MS.least, Math.min(REPLAY_MS.most, REPLAY_MS.all / feed.steps.length)));
    return go(at + 1);
  }

  function toggleReplay() {
    if (timer) {
      stopReplay();
      return showScrubber();
    }
    if (selection.step === null || shownStep() === feed.steps.at(-1)) go(0);
    timer = setTimeout(next, REPLAY_MS.most);
    return showScrubber();
  }

  part("block").addEventListener("change", () => { layer = "all"; select({ block: part("block").value }); });
  part("layer").addEventListener("change", () => { layer = part("layer").value; redraw(); });
  part("drawing").addEventListener("change", () => {
    drawing = part("drawing").value;
    drawn = null;
    show();
  });
  part("input").addEventListener("change", () => select({ input: Number(part("input").value) }));
  part("scrubber").addEventListener("input", () => { stopReplay(); go(Number(part("scrubber").value)); });
  part("replay").addEventListener("click", toggleReplay);
  onAppearanceChange(part("maps"), redraw);

  function show() {
    const snapshot = feed.shown;
    const hasMaps = Boolean(snapshot?.blocks.length);
    part("heads-hint").hidden = hasMaps;
    const isRibbon = hasMaps && drawsLines(snapshot);
    part("maps").hidden = part("legend").hidden = !hasMaps || isRibbon;
    part("lines").hidden = !isRibbon;
    part("selects").hidden = part("pair").hidden = !hasMaps;
    setText(part("heads-hint"), hasMaps ? "" : emptyText(snapshot));
    showScrubber();
    if (!hasMaps) return undefined;
    const answer = snapshot.answers[snapshot.input];
    setText(part("pair-text"), (snapshot.answers.length < 2 ? isolated(sourceText(answer)) + " " : "") + "→ " + isolated(outputText(answer)));
    setText(part("legend"), legendText(snapshot));
    showSelects(snapshot);
    if (drawn === snapshot) return undefined;
    drawn = snapshot;
    return isRibbon ? drawLines() : redraw();
  }

  return show;
}
