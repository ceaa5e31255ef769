// All heads of the current decode or of a training replay; the selected one large, with its weights.

import { onAppearanceChange } from "../../web/canvas.js";
import { showChoice } from "../../web/choice.js";
import { partsOf, setText } from "../../web/dom.js";
import { isolated, visibleToken } from "../../web/format.js";
import { bestHead, viewOf } from "../../web/maps.js";
import { linkToTab } from "../../web/address.js";
import { onHeadOpened } from "../../web/navigation.js";
import { ribbon } from "../../web/ribbon.js";
import { callServer, pollWhileVisible } from "../../web/server.js";
import { uniformSentence } from "../../web/thumbnails.js";
import { strongestPiece, viewByWord, wordsBegun } from "../../web/words.js";
import { makeHeadsGrid } from "./heads_grid.js";
import { makeLargeMap } from "./large_map.js";
import { makeModelMap } from "./model_map.js";
import { makePanel } from "./panel.js";
import { makePlayback } from "./playback.js";
import { applyUpdate, emptyReplay, emptyText, hasEnded, recordAt, requestFor, reserveFor, snapshotAt } from "./replay.js";
import { makeReplayCharts } from "./replay_charts.js";
import { makeReplayPlayer } from "./replay_player.js";
import { lockedHead, makeSelection } from "./selection.js";

const UNITS = [["pieces", "pieces"], ["words", "words"]];
const MOST_FRAMES = 600; // to wait for the map of a head that was opened elsewhere
const MODES = [["decode", "current decode"], ["replay", "training replay"]];

export function mount({ element, props, server, watch }) {
  const part = partsOf(element);
  const isVisible = () => element.isConnected && element.offsetParent !== null;
  const selection = makeSelection();
  const { selected } = selection;
  let value = null; // the value from Python
  let replay = emptyReplay(null);
  let snapshot = -1; // index of the shown one
  let recordNow = null; // of the decode or of the snapshot, see maps.js
  let view = null; // the shown attention block, see maps.js
  let drawn = null; // the same by piece or by word, as the maps show it
  let preview = null; // { layer, head } under the pointer

  const showRibbon = ribbon(part("lines"), { follows: true });
  const grid = makeHeadsGrid(part("head-grid"), { lock: lockHead, preview: previewHead });
  const panel = makePanel(part, { ask: (name, argument) => callServer(server, name, argument), jump: compareAt });
  const modelMap = makeModelMap(part, openPart);
  let model = null; // { run, size, parts }
  const map = makeLargeMap(part, { picture: (request) => callServer(server, "picture", request), pick: pickCell });
  const charts = makeReplayCharts(element, (step) => jumpTo(snapshotAt(replay, step)));
  const playback = makePlayback(part, {
    isVisible,
    onStart: () => player.stop(),
    onReveal(row) {
      selected.row = row;
      show();
      map.follow(row);
    },
    onPick(row) {
      endPlayback();
      selected.row = selected.row === row ? null : row;
      show();
    },
  });
  const player = makeReplayPlayer(part, {
    isVisible,
    onStart: playback.pause, // one thing moves at a time
    onSnapshot: showSnapshot,
    onInput: (input) => select({ input }),
    onStop: show,
  });

  // ---- selecting ----

  const openHead = () => preview ?? lockedHead(selected, view);

  function lockHead(head) {
    preview = null;
    selected.heads[view.block] = head;
    selected.part = null;
    show();
    refreshNow();
  }

  const isByWord = () => selected.by === "words" && Boolean(view.words);

  /** Open the arithmetic of a cell of the large map; of a cell of words, its strongest piece. */
  function pickCell(cell) {
    const { layer, head } = lockedHead(selected, view);
    const { weights } = view.heads.find((each) => each.layer === layer && each.head === head);
    preview = null;
    Object.assign(selected, { cell: isByWord() ? strongestPiece(weights, view.words, cell) : cell, part: null });
    show();
    openPanel();
  }

  /** Open a part of the model: the heads of an attention block, or what another part computes. */
  function openPart(each) {
    if (each.kind !== "attention") {
      selected.part = each.name;
      show();
      return openPanel();
    }
    // of a replay the last one, or the best head would change from step to step
    const record = isReplaying() ? recordAt(replay, replay.snapshots.length - 1, selected.input) : value.decode;
    selected.heads[each.block] = bestHead(viewOf(record, each.block), each.layer);
    select({ block: each.block });
  }

  function openPanel() {
    refreshNow();
    if (innerWidth < 1000) part("story").scrollIntoView({ block: "start" }); // it is below the map
  }

  /** Request the parts of the run's model, and the panel's content if it has changed. */
  async function refreshPanel() {
    if (value?.run && model?.run !== value.run) {
      const answer = await callServer(server, "parts", { run: value.run });
      if (answer?.parts) model = answer;
      show();
    }
    if (view) await panel.refresh({ view, decode: openDecode(), head: lockedHead(selected, view), part: selected.part });
  }

  /** What the panel is about, see panel.js. */
  function openDecode() {
    if (!isReplaying()) return value.decode;
    const { source, tokens, words, step } = recordAt(replay, snapshot, selected.input);
    const withoutModel = Boolean(value.only_replay);
    return { name: replay.run, source, tokens, words, step, when: view.when, weightsSteps: replay.weightsSteps, withoutModel };
  }

  function previewHead(head) {
    if (!view || (head === null && preview === null)) return;
    preview = head;
    showHead();
  }

  /** End the playback of the output, which marked its row. */
  function endPlayback() {
    if (playback.end()) selected.row = null;
  }

  /** Change the selection. A playback continues in another block; its row stays marked. */
  function select(change) {
    Object.assign(selected, change);
    player.stop();
    preview = null;
    if ("mode" in change || "input" in change) endPlayback(); // another decode
    if (!playback.isActive()) selected.row = null;
    selected.cell = selected.part = null;
    show();
    refreshNow();
  }

  /** Show a snapshot; the last one stays the latest while training continues. */
  function showSnapshot(at) {
    selected.step = at >= replay.snapshots.length - 1 ? null : replay.snapshots[Math.max(0, at)].step;
    show();
    refreshPanel();
  }

  function jumpTo(at) {
    player.stop();
    if (at >= 0) showSnapshot(at);
  }

  /** Show the same cell or part at another training step. */
  function compareAt(step) {
    if (!selected.part) selected.cell = view.cell; // or the strongest one of that step would be shown
    jumpTo(snapshotAt(replay, step));
  }

  /** Copy the address; if the browser forbids it, show it for copying by hand. */
  async function copyLink() {
    selection.save(view);
    const link = part("link");
    link.value = linkToTab();
    try {
      await navigator.clipboard.writeText(link.value);
      setText(part("copied"), "Link copied");
      setTimeout(() => setText(part("copied"), ""), 3000);
    } catch {
      link.hidden = false;
      link.focus();
      link.select();
      setText(part("copied"), "Copy this link:");
    }
  }

  // ---- showing ----

  const isReplaying = () => selected.mode === "replay";
  const tokensText = (tokens) => isolated(tokens.map(visibleToken).join(" "));

  /** "4 8 2 9 → 9 2 8 4". */
  function pairOf(record) {
    if (record.texts) return isolated(record.texts.source) + " → " + isolated(record.texts.output);
    const output = record.tokens.filter((token, step) => step < record.tokens.length - 1 || token !== record.source.at(-1));
    if (record.read) return tokensText(record.source.length ? record.source : record.read) + " → " + tokensText(record.tokens);
    return tokensText(record.source.slice(1, -1)) + " → " + tokensText(output);
  }

  const runTitle = () => replay.latest?.title ?? replay.run;

  /** "4 8 2 9 → 9 2 8 4 · decoded by digits-reversal 3 after 400 steps". */
  function headingOf(record) {
    const model = isReplaying() ? runTitle() + " after " + record.step.toLocaleString("en") + (replay.latest.steps ? " of " + replay.latest.steps.toLocaleString("en") : "") + " training steps" : record.model;
    return pairOf(record) + " · " + (record.read ? "predicted (teacher-forced) by " : isReplaying() ? "answered by " : "decoded by ") + model;
  }

  /** The view of a record: the selected attention block, or the first if the model does not have it. */
  function viewNow(record) {
    const blocks = record.blocks.map((each) => each.block);
    const block = blocks.includes(selected.block) ? selected.block : blocks[0];
    const now = viewOf(record, block);
    now.row = block !== "encoder" && selected.row !== null && selected.row < now.rows.length ? selected.row : null;
    now.cell = cellOf(now, lockedHead(selected, now));
    now.pair = pairOf(record);
    now.model = isReplaying() ? runTitle() : record.model; // with what is switched off
    if (isReplaying()) {
      now.when = "training step " + record.step.toLocaleString("en");
      now.reserve = reserveFor(replay, selected.input, block);
      // or the best head would change from step to step
      selected.heads[block] ??= bestHead(viewOf(recordAt(replay, replay.snapshots.length - 1, selected.input), block));
    }
    return now;
  }

  const isOpenPart = (each) => (each.kind === "attention"
    ? !selected.part && each.block === view.block && each.layer === lockedHead(selected, view).layer
    : each.name === selected.part);

  /** The selected cell of a head's map; without one, the strongest of the marked or the first row. */
  function cellOf(view, { weights }) {
    const { cell } = selected;
    if (cell && cell.row < view.rows.length && cell.column < view.columns.length) return cell;
    const row = view.row ?? 0;
    return { row, column: weights[row].indexOf(Math.max(...weights[row])) };
  }

  function show() {
    snapshot = snapshotAt(replay, selected.step);
    const record = isReplaying() ? recordAt(replay, snapshot, selected.input) : value?.decode ?? null;
    recordNow = record;
    showChoice(part("modes"), value?.only_replay ? MODES.filter(([mode]) => mode === "replay") : MODES, selected.mode, (mode) => select({ mode }));
    part("blocks").hidden = part("shown").hidden = !record;
    part("empty").hidden = Boolean(record);
    setText(part("empty"), isReplaying() ? emptyText(replay) : value?.problem || "Nothing decoded yet. Enter an input above.");
    setText(part("heading"), record ? headingOf(record) : "");
    part("heading").title = part("heading").textContent;
    view = record && viewNow(record);
    if (view) {
      showChoice(part("blocks"), record.blocks.map(({ block, name }) => [block, name]), view.block, (block) => select({ block }));
      showChoice(part("units"), UNITS, isByWord() ? "words" : "pieces", (by) => {
        selected.by = by === "words" ? by : null;
        show();
      });
      drawn = isByWord() ? viewByWord(view) : view;
      grid.show(drawn, lockedHead(selected, view));
      const where = part("head-grid").classList.contains("dense") ? "Pointing at a head shows its" : "Under each head:";
      setText(part("uniform"), view.uniformMass === null ? "" : where + " attention on the correct source token, "
        + view.scoredOn + ". " + uniformSentence(view.uniformMass));
      playback.show(record, view);
    }
    part("units").hidden = !view?.words;
    part("replay").hidden = part("small-charts").hidden = !isReplaying() || replay.snapshots.length === 0;
    if (!part("replay").hidden) player.show(replay, snapshot, selected);
    modelMap.show(record && model?.run === value.run && model.parts.length ? model : null, isOpenPart);
    showHead();
    selection.saveSoon(view);
  }

  /** Show the open head: large, and in the charts of a replay. */
  function showHead() {
    const revealed = view && playback.revealedRows(view);
    const words = view?.words ? wordsBegun(view.words, revealed) : revealed;
    const isExplained = !isReplaying() || replay.weightsSteps.length > 0;
    if (view) map.show(drawn, openHead(), isByWord() ? words : revealed, isExplained);
    const isScored = view?.block === replay.facts.scored_block;
    if (!part("replay").hidden) charts.show(replay, snapshot, view && isScored ? openHead() : null);
    showRibbon(view?.readsSource ? recordNow : null, { head: view && openHead(), count: playback.isActive() ? words : null });
  }

  // ---- the replay's data ----

  async function refresh() {
    await refreshPanel();
    if (!isReplaying() || replay.run === null) return 300;
    const requested = replay;
    const update = await callServer(server, "replay", requestFor(replay));
    if (requested !== replay) return 0; // another run was selected meanwhile
    const isAnswer = update?.run === replay.run;
    setText(part("replay-message"), isAnswer ? "" : update?.error ?? "connection lost, retrying");
    if (!isAnswer) return 1000;
    if (applyUpdate(replay, update)) {
      show();
      refreshPanel();
    }
    return hasEnded(update.status) ? 2000 : 1000;
  }

  function followRun(run) {
    if (run === replay.run) return;
    replay = emptyReplay(run);
    player.stop();
    if (isReplaying()) endPlayback();
  }

  // ---- values from Python ----

  /** A key that identifies what is decoded. The same input decoded again, by newer weights or without a head, has the same. */
  const decodeKey = (given) => JSON.stringify([given?.run, given?.decode?.source]);

  /** Show a head that was opened elsewhere on the page. */
  function openView({ mode, block, layer, head, row = null, input = 0, step = null }) {
    if (!selection.isRead()) selection.read();
    endPlayback();
    preview = null;
    Object.assign(selected, { mode, block, row, input, step, cell: null, part: null });
    selected.heads[block] = { layer, head };
    show();
    refreshNow();
    focusMap();
  }

  /** Move the focus to the large map, once it is there, from the small one that was pressed and is hidden now. */
  function focusMap(frames = MOST_FRAMES) {
    const isLeft = document.activeElement === document.body || document.activeElement.offsetParent === null;
    if (isVisible() && !part("shown").hidden) return isLeft && part("map").focus({ preventScroll: true });
    return frames && requestAnimationFrame(() => focusMap(frames - 1));
  }

  function applyValue() {
    const before = value;
    value = props.value ?? null;
    if (!value?.run) return show();
    const isFirst = !selection.isRead();
    if (isFirst) selection.read();
    else if (value.run !== before?.run) selected.heads = {};
    const { at, block, layer, head, row } = value.selection ?? {};
    if (at && at !== before?.selection?.at) {
      endPlayback();
      preview = null;
      Object.assign(selected, { mode: "decode", block, row: row ?? null, cell: null, part: null });
      const hasLayer = layer && value.decode?.maps[block]?.shape[0] >= layer;
      const best = hasLayer ? bestHead(viewOf(value.decode, block), layer) : null;
      selected.heads[block] = head ? { layer, head } : best;
    } else if (!isFirst && !isReplaying() && decodeKey(value) !== decodeKey(before)) {
      endPlayback();
      preview = selected.row = selected.cell = null;
    }
    if (value.only_replay) selected.mode = "replay";
    else if (value.asked && value.asked !== before?.asked && isReplaying() && !isFirst) select({ mode: "decode" });
    followRun(value.run);
    show();
    refreshNow();
  }

  part("link-button").addEventListener("click", copyLink);
  onAppearanceChange(element, () => {
    if (view) grid.show(drawn, lockedHead(selected, view));
    map.redraw();
    panel.redraw();
  });
  const refreshNow = pollWhileVisible(element, refresh);
  applyValue();
  onHeadOpened(openView);
  watch("value", applyValue);
}
