// The panel beside the maps: the arithmetic of a cell, or the output of another part of the model.

import { showChoice } from "../../web/choice.js";
import { setText } from "../../web/dom.js";
import { headName, tokenNamer } from "../../web/format.js";
import { nearestIndex } from "../../web/history.js";
import { readTokens } from "../../web/maps.js";
import { storySections, storySentence } from "./cell_story.js";
import { partSections } from "./part_view.js";

const NO_STEP = "This run kept attention maps, but no weights. Choose “current decode” above to see the arithmetic.";
const NO_MODEL = "The weights of this run are with the program that trains it, so its arithmetic cannot be shown.";

/**
 * Make the panel in a viewer's elements. Returns { refresh(open), redraw }.
 *
 * ask(name, argument)   calls the server
 * jump(step)            shows the replay at a training step
 */
export function makePanel(part, { ask, jump }) {
  let key = ""; // of the shown or requested content
  let shown = null; // { title, of, note, say, sections(inNumbers) }
  let inNumbers = false;

  function draw() {
    part("story-body").hidden = part("story-numbers").hidden = !shown;
    if (!shown) return;
    setText(part("story-problem"), shown.note);
    setText(part("story-title"), shown.title);
    setText(part("story-of"), shown.of);
    setText(part("story-say"), shown.say);
    part("story-steps").replaceChildren(...shown.sections(inNumbers));
    part("story-numbers").setAttribute("aria-pressed", String(inNumbers));
  }

  function say(text) {
    shown = null;
    setText(part("story-problem"), text);
    setText(part("story-of"), "");
    draw();
  }

  /** Offer the training steps of a replay with kept weights; hidden for the current decode. */
  function offerSteps({ step, weightsSteps }) {
    part("story-training").hidden = !weightsSteps?.length;
    if (weightsSteps) showChoice(part("story-training"), weightsSteps.map((each) => [each, each.toLocaleString("en")]), step, (each) => jump(Number(each)));
  }

  function showCell(cell, view, chosen, when) {
    shown = {
      title: "How this cell came about",
      of: view.name + ", " + headName(chosen) + " · row " + (chosen.row + 1) + ", column " + (chosen.column + 1)
        + when,
      say: storySentence(cell, view, chosen),
      sections: (numbers) => storySections(cell, view, chosen, numbers),
    };
  }

  function showPart(answer, decode, when) {
    const tokens = (answer.part.side === "source" ? decode.source : readTokens(decode)).map(tokenNamer(decode.words));
    shown = { title: answer.title, of: "for each token it reads" + when, say: answer.text, sections: (numbers) => partSections(answer, tokens, numbers) };
  }

  part("story-numbers").addEventListener("click", () => {
    inNumbers = !inNumbers;
    draw();
  });

  return {
    /**
     * Show what is open: a part of the model, or the view's cell in the map of a head. `decode` is the current one, or
     * a snapshot's answer with its `step`, `when` in words, and the `weightsSteps` of the replay.
     */
    async refresh({ view, decode, head: { layer, head }, part: name }) {
      offerSteps(decode);
      const { weightsSteps } = decode;
      if (weightsSteps?.length === 0) {
        key = "";
        return say(decode.withoutModel ? NO_MODEL : NO_STEP);
      }
      const step = weightsSteps && weightsSteps[nearestIndex(weightsSteps, decode.step)]; // few steps kept their weights
      const when = weightsSteps ? " · training step " + step.toLocaleString("en") : "";
      const note = weightsSteps && step !== decode.step
        ? "Only some steps keep their weights: this is the arithmetic of step " + step.toLocaleString("en") + ", the nearest to the map's step " + decode.step.toLocaleString("en") + "." : "";
      const chosen = { block: view.block, layer, head, ...view.cell };
      const request = { run: decode.name, source: decode.source, tokens: decode.tokens, ...decode.interventions, ...(name ? { part: name } : chosen),
        ...(weightsSteps && { training_step: step }) };
      const wanted = JSON.stringify([request, decode.model, note]);
      if (wanted === key) return;
      key = wanted;
      const answer = await ask(name ? "part" : "cell", request);
      if (wanted !== key) return; // something else was opened in the meantime
      if (!answer || answer.error) {
        if (!answer) key = ""; // ask again
        return say(answer?.error ?? "The server did not answer; asking again.");
      }
      if (name) showPart(answer, decode, when);
      else showCell(answer, view, chosen, when);
      shown.note = note;
      draw();
    },
    /** Draw again in the theme's colors. */
    redraw: draw,
  };
}
