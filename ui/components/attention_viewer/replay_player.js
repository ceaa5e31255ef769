// The controls of the training replay: the fixed input, the slider of training steps, and a button that plays them.

import { showChoice } from "../../web/choice.js";
import { setText } from "../../web/dom.js";
import { visibleToken } from "../../web/format.js";
import { hasEnded } from "./replay.js";

const SNAPSHOT_MS = [120, 400]; // per snapshot: shortest, longest
const REPLAY_MS = 10000; // for all snapshots, about

/**
 * Make the controls in a viewer's elements.
 *
 * isVisible()       whether the viewer is; the replay stops while it is not
 * onStart()         before the snapshots are shown one after another
 * onSnapshot(at)    the snapshot to show
 * onInput(number)   the fixed input that the visitor chose
 * onStop()          after the replay stopped, at its end or by its button
 */
export function makeReplayPlayer(part, { isVisible, onStart, onSnapshot, onInput, onStop }) {
  const slider = part("step");
  let timer = 0; // while the replay plays
  let count = 0; // of snapshots
  let shown = -1; // index of the shown one

  function stop() {
    clearTimeout(timer);
    timer = 0;
  }

  function playNext() {
    if (!isVisible() || shown >= count - 1) {
      stop();
      return onStop();
    }
    const [fast, slow] = SNAPSHOT_MS;
    timer = setTimeout(playNext, Math.max(fast, Math.min(slow, REPLAY_MS / count)));
    onSnapshot(shown + 1);
  }

  function toggle() {
    if (timer) {
      stop();
      return onStop();
    }
    onStart();
    timer = setTimeout(playNext, SNAPSHOT_MS[1]);
    onSnapshot(shown >= count - 1 ? 0 : shown);
  }

  slider.addEventListener("input", () => {
    stop();
    onSnapshot(Number(slider.value));
  });
  part("play").addEventListener("click", toggle);

  return {
    stop,
    /** Show the controls of a replay at one of its snapshots; `selected` as in selection.js. */
    show({ facts, snapshots, latest }, at, selected) {
      [count, shown] = [snapshots.length, at];
      const inputs = facts.inputs.map(({ source, text }, number) => [number, text ?? source.slice(1, -1).map(visibleToken).join(" ")]);
      part("inputs").hidden = inputs.length < 2;
      showChoice(part("inputs"), inputs, Math.min(selected.input, inputs.length - 1), (number) => onInput(Number(number)));
      const when = "step " + snapshots[at].step.toLocaleString("en") + (latest.steps ? " of " + latest.steps.toLocaleString("en") : "");
      slider.max = count - 1;
      slider.value = at;
      slider.setAttribute("aria-valuetext", when);
      setText(part("when"), when);
      const follows = selected.step === null ? "Showing the latest step." : "Training continues. Select the last step to follow it.";
      setText(part("follow-note"), hasEnded(latest.status) ? "" : follows);
      setText(part("play"), timer ? "❚❚ Pause" : "▶ Play");
    },
  };
}
