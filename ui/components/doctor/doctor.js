// The doctor's panel: examines the current run whenever the panel is open, again and again while it trains.

const TRAINING = 4000; // milliseconds between two examinations
const IDLE = 1000;
let shownOf = ""; // the run and step shown
let shownRun = null;
let open = false;

async function ask() {
  const run = props.value?.run;
  part("empty").hidden = Boolean(run);
  if (run !== shownRun) {
    shownRun = run;
    shownOf = "";
    part("found").replaceChildren();
    setText(part("about"), run ? "Examining " + run + " …" : "");
  }
  if (!run) return IDLE;
  if (shownOf && !shownOf.endsWith(" training")) return IDLE; // it does not change any more
  const found = await askServer("examine", { run });
  if (run !== props.value?.run) return 0;
  if (!found?.findings) {
    setText(part("about"), found?.error ?? "The doctor gave no answer; asking again.");
    return TRAINING;
  }
  const state = run + " " + found.step + (found.training ? " training" : "");
  if (state !== shownOf) {
    shownOf = state;
    open = part("found").querySelector("details")?.open ?? open;
    setText(part("about"), run + ", after " + found.step.toLocaleString("en") + " updates"
      + (found.training ? "; examined again while it trains." : "."));
    part("found").replaceChildren(makeLights(found, open));
  }
  return found.training ? TRAINING : IDLE;
}

const askNow = keepAsking(ask);
watch("value", () => {
  shownOf = "";
  askNow();
});
