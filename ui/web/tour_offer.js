// Whether the page offers its tour, and its start; the bench offers it, and the bar and the menu of runs start it.

import { OPENED_BY_LINK } from "./address.js";
import { laterStyles } from "./later_styles.js";
import { inBrowser } from "./remembered.js";

const KEY = "attention-lab-tour"; // in the browser's storage: "done" after the tour was taken or skipped

/** Whether to offer the tour: in a browser that has not seen it, unless a link led to a run, a tab or a head. */
export const isOffered = () => !OPENED_BY_LINK && !inBrowser.get(KEY);

/** Do not offer the tour again. */
export const declineTour = () => void inBrowser.set(KEY, "done");

export async function startTour() {
  const opener = document.activeElement;
  const [tour] = await Promise.all([import("./tour.js"), laterStyles()]);
  tour.startTour(opener, declineTour);
}
