// Examines the current run while the panel is open, repeatedly while it trains.

import { setText, partsOf } from "../../web/dom.js";
import { makeLights } from "../../web/lights.js";
import { callServer, pollWhileVisible } from "../../web/server.js";

export function mount({ element, props, server, watch }) {
  const part = partsOf(element);

  const TRAINING_MS = 4000; // between two examinations
  const IDLE_MS = 1000;
  let shownState = ""; // the displayed run and step
  let shownRun = null;
  let open = false;

  async function refresh() {
    const run = props.value?.run;
    part("empty").hidden = Boolean(run);
    if (run !== shownRun) {
      shownRun = run;
      shownState = "";
      part("findings").replaceChildren();
      setText(part("about"), run ? "Examining the run …" : "");
    }
    if (!run) return IDLE_MS;
    if (shownState && !shownState.endsWith(" training")) return IDLE_MS; // final
    const examination = await callServer(server, "examine", { run });
    if (run !== props.value?.run) return 0;
    if (!examination?.findings) {
      setText(part("about"), examination?.error ?? "No answer from the server, retrying.");
      return TRAINING_MS;
    }
    const state = run + " " + examination.step + (examination.training ? " training" : "");
    if (state !== shownState) {
      shownState = state;
      open = part("findings").querySelector("details")?.open ?? open;
      setText(part("about"), examination.title + ", after " + examination.step.toLocaleString("en") + " updates"
        + (examination.training ? "; updated while it trains." : "."));
      part("findings").replaceChildren(makeLights(examination, open));
    }
    return examination.training ? TRAINING_MS : IDLE_MS;
  }

  const refreshNow = pollWhileVisible(element, refresh);
  watch("value", () => {
    shownState = "";
    refreshNow();
  });
}
