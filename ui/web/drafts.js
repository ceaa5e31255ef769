// Keep unsubmitted input through a reload: Gradio reloads the page after an outage. The input is kept in the address;
// pasted pairs, and the preset form (see ui/forms/preset_form.py), in the storage of this tab.

import { patchAddressSoon } from "./address.js";
import { inTab } from "./remembered.js";

const PREFIX = "attention-lab-draft-";
const PASTED = PREFIX + "pasted";
const OPEN = PREFIX + "open"; // whether the form of the pasted pairs was open when the page was left

/** Keep all input from now on, and restore kept input. */
export function keepDrafts() {
  document.addEventListener("input", ({ target }) => {
    if (target.closest?.("#input")) patchAddressSoon({ input: target.value });
    if (target.matches?.("#own-pasted textarea")) inTab.set(PASTED, target.value);
  }, true);
  const wasOpen = inTab.get(OPEN);
  window.addEventListener("pagehide", () => inTab.set(OPEN, document.body.dataset.side === "own" ? "yes" : ""));
  const pasted = inTab.get(PASTED);
  if (!pasted) return;
  const isReload = performance.getEntriesByType("navigation")[0]?.type === "reload"; // a link shows what it leads to
  if (isReload && wasOpen) whenThere("#own-open", (button) => button.click());
  whenThere("#own-pasted textarea", (area) => typeAgain(area, pasted));
}

/** Discard kept input, because a run was started with it. */
export const dropDrafts = () => inTab.removeAll(PREFIX);

function typeAgain(area, text) {
  if (area.value) return;
  area.value = text;
  area.dispatchEvent(new Event("input", { bubbles: true })); // Gradio reads it
}

function whenThere(selector, found) {
  const look = () => {
    const element = document.querySelector(selector);
    if (!element) return;
    observer.disconnect();
    found(element);
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, { childList: true, subtree: true });
  look();
}
