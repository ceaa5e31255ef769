// Lists of runs that the server searches: the menu, Compare and Start from.

import { counted } from "./format.js";

const TYPING_MS = 250; // without a key, before the server is asked

/** Which runs a list leaves out; "" if none. `searches`: whether something is searched for. */
export function leftOut({ unlisted = 0, unsearched = 0 }, searches) {
  const more = counted(unlisted, "more run") + (searches ? (unlisted === 1 ? " matches." : " match.") : ". Search finds runs by name, task, preset or status.");
  return [unlisted ? (searches ? more : "Not listed: " + more) : "", unsearched ? counted(unsearched, "older run") + (unsearched === 1 ? " was" : " were") + " not searched." : ""].filter(Boolean).join(" ");
}

/** Call `search` once the visitor has stopped typing into an input. */
export function afterTyping(input, search) {
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, TYPING_MS);
  });
}
