// What to do next: on the first visit the tour; after a training of the visitor's own, three steps; with any run open, a translation to look at.

import { linkToTranslation } from "../../web/address.js";
import { hasPreset, openPreset, openTab } from "../../web/navigation.js";
import { feed } from "../../web/run_feed.js";
import { declineTour, isOffered, startTour } from "../../web/tour_offer.js";

const PLURALS = "plurals"; // a preset
const MOST_FRAMES = 600; // to wait for a tab

/** Open a tab and return one of its elements, once it is there. */
async function openAt(tab, selector) {
  openTab(tab);
  for (let frame = 0; frame < MOST_FRAMES; frame += 1) {
    const found = document.querySelector(selector);
    if (document.body.dataset.tab === tab && found?.offsetParent) return found;
    await new Promise(requestAnimationFrame);
  }
  return null;
}

async function typeOwn() {
  const input = await openAt("decode", "#input textarea, #text");
  input?.focus();
  input?.select();
}

/** Measure what the model loses without each head; a press on one then decodes without it. */
async function takeHead() {
  const measure = await openAt("attention", "#measure-heads");
  measure?.scrollIntoView({ block: "center" });
  measure?.click();
}

/** Returns a function that shows the steps that fit the current run, and first the tour, if the page offers one. */
export function nextSteps(part, offersTour) {
  const answerOffer = (answer) => () => {
    part("tour-offer").hidden = true;
    answer();
  };
  part("tour-offer").hidden = !offersTour || !isOffered();
  part("start-tour").addEventListener("click", answerOffer(startTour));
  part("skip-tour").addEventListener("click", answerOffer(declineTour));
  part("type-own").addEventListener("click", typeOwn);
  part("take-head").addEventListener("click", takeHead);
  part("teach-plurals").addEventListener("click", () => openPreset(PLURALS));
  return () => {
    const { run, latest, translator } = feed;
    part("next-steps").hidden = !latest?.trained_here;
    part("teach-plurals").hidden = latest?.preset === PLURALS || !hasPreset(PLURALS);
    part("translate").hidden = !translator || translator === run;
    if (translator) part("translate-link").href = linkToTranslation(translator);
  };
}
