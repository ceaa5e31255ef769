// All heads of the current decode or of a training replay; the selected one large, with its weights.

import { onAppearanceChange } from "../../web/canvas.js";
import { showChoice } from "../../web/choice.js";
import { partsOf, setText } from "../../web/dom.js";
import { visibleToken } from "../../web/format.js";
import { bestHead, viewOf } from "../../web/maps.js";
import { onHeadOpened } from "../../web/navigation.js";
import { callServer, pollWhileVisible } from "../../web/server.js";
import { uniformSentence } from "../../web/thumbnails.js";
import { makeHeadsGrid } from "./heads_grid.js";
import { makeLargeMap } from "./large_map.js";
import { makePlayback } from "./playback.js";
import { applyUpdate, emptyReplay, emptyText, hasEnded, recordAt, requestFor, reserveFor, snapshotAt } from "./replay.js";
import { makeReplayCharts } from "./replay_charts.js";
import { makeReplayPlayer } from "./replay_player.js";
import { lockedHead, makeSelection } from "./selection.js";

const MODES = [["decode", "current decode"], ["replay", "training replay"]];

export function mount({ element, props, server, watch }) {
  const part = partsOf(element);
  const isVisible = () => element.isConnected && element.offsetParent !== null;
  const selection = makeSelection();
  const { selected } = selection;
  let value = null; // the value from Python
  let replay = emptyReplay(null);
  let snapshot = -1; // index of the shown one
  let view = null; // the shown attention block, see maps.js
  let preview = null; // { layer, head } under the pointer

  const grid = makeHeadsGrid(part("head-grid"), { lock: lockHead, preview: previewHead });
  const map = makeLargeMap(part, (request) => callServer(server, "picture", request));
  const charts = makeReplayCharts(element, (step) => jumpTo(snapshotAt(replay, step)));
  const playback = makePlayback(part, {
    isVisible,
    onStart: () => player.stop(),
    onReveal(row) {
      selected.row = row;
      show();
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
    show();
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

  /** Change the selection. A playback goes on in another block; its row stays marked. */
  function select(change) {
    Object.assign(selected, change);
    player.stop();
    preview = null;
    if ("mode" in change || "input" in change) endPlayback(); // another decode
    if (!playback.isActive()) selected.row = null;
    show();
    refreshNow();
  }

  /** Show a snapshot; the last one stays the latest while training continues. */
  function showSnapshot(at) {
    selected.step = at >= replay.snapshots.length - 1 ? null : replay.snapshots[Math.max(0, at)].step;
    show();
  }

  function jumpTo(at) {
    player.stop();
    if (at >= 0) showSnapshot(at);
  }

  /** Copy the address; if the browser forbids it, show it for copying by hand. */
  async function copyLink() {
    selection.save(view);
    const link = part("link");
    link.value = window.location.href;
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
  const tokensText = (tokens) => tokens.map(visibleToken).join(" ");

  /** "4 8 2 9 → 9 2 8 4, decoded by digits-reversal 3 after 400 steps". */
  function headingOf(record) {
    const output = record.tokens.filter((token, step) => step < record.tokens.length - 1 || token !== record.source.at(-1));
    const model = isReplaying() ? (replay.latest.title ?? replay.run) + " after " + record.step + " of " + replay.latest.steps + " training steps" : record.model;
    return tokensText(record.source.slice(1, -1)) + " → " + tokensText(output) + ", decoded by " + model;
  }

  /** The view of a record: the selected attention block, or the first if the model does not have it. */
  function viewNow(record) {
    const blocks = record.blocks.map((each) => each.block);
    const block = blocks.includes(selected.block) ? selected.block : blocks[0];
    const now = viewOf(record, block);
    now.row = block !== "encoder" && selected.row !== null && selected.row < now.rows.length ? selected.row : null;
    if (isReplaying()) {
      now.when = "training step " + record.step;
      now.reserve = reserveFor(replay, selected.input, block);
      // or the best head would change from step to step
      selected.heads[block] ??= bestHead(viewOf(recordAt(replay, replay.snapshots.length - 1, selected.input), block));
    }
    return now;
  }

  function show() {
    snapshot = snapshotAt(replay, selected.step);
    const record = isReplaying() ? recordAt(replay, snapshot, selected.input) : value?.decode ?? null;
    showChoice(part("modes"), MODES, selected.mode, (mode) => select({ mode }));
    part("blocks").hidden = part("shown").hidden = !record;
    part("empty").hidden = Boolean(record);
    setText(part("empty"), isReplaying() ? emptyText(replay) : value?.problem || "Nothing decoded yet. Enter an input above.");
    setText(part("heading"), record ? headingOf(record) : "");
    view = record && viewNow(record);
    if (view) {
      showChoice(part("blocks"), record.blocks.map(({ block, name }) => [block, name]), view.block, (block) => select({ block }));
      grid.show(view, lockedHead(selected, view));
      setText(part("uniform"), view.uniformMass === null ? "" : "Under each head: attention on the correct source token, "
        + view.scoredOn + ". " + uniformSentence(view.uniformMass));
      playback.show(record, view);
    }
    part("replay").hidden = !isReplaying() || replay.snapshots.length === 0;
    if (!part("replay").hidden) player.show(replay, snapshot, selected);
    showHead();
    selection.saveSoon(view);
  }

  /** Show the open head: large, and in the charts of a replay. */
  function showHead() {
    if (view) map.show(view, openHead(), playback.revealedRows(view));
    const isScored = view?.block === replay.facts.scored_block;
    if (!part("replay").hidden) charts.show(replay, snapshot, view && isScored ? openHead() : null);
  }

  // ---- the replay's data ----

  async function refresh() {
    if (!isReplaying() || replay.run === null) return 300;
    const requested = replay;
    const update = await callServer(server, "replay", requestFor(replay));
    if (requested !== replay) return 0; // another run was selected meanwhile
    const isAnswer = update?.run === replay.run;
    setText(part("replay-message"), isAnswer ? "" : update?.error ?? "connection lost, retrying");
    if (!isAnswer) return 1000;
    if (applyUpdate(replay, update)) show();
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
    Object.assign(selected, { mode, block, row, input, step });
    selected.heads[block] = { layer, head };
    show();
    refreshNow();
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
      Object.assign(selected, { mode: "decode", block, row: row ?? null });
      selected.heads[block] = head ? { layer, head } : null;
    } else if (!isFirst && !isReplaying() && decodeKey(value) !== decodeKey(before)) {
      endPlayback();
      preview = selected.row = null;
    }
    followRun(value.run);
    show();
    refreshNow();
  }

  part("link-button").addEventListener("click", copyLink);
  onAppearanceChange(element, map.redraw);
  const refreshNow = pollWhileVisible(element, refresh);
  applyValue();
  onHeadOpened(openView);
  watch("value", applyValue);
}
