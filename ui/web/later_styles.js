// The style sheet of what is opened later: other tabs, dialogs and folds. It loads with the first of them.

import { make } from "./dom.js";

let loaded = null;

/** Load the style sheet, unless the page came with it; resolves when it is loaded, or cannot be loaded. */
export const laterStyles = () => (loaded ??= new Promise((resolve) => {
  if (globalThis.labModules || document.querySelector('link[href$="later.css"]')) return resolve();
  const href = new URL("../later.css", import.meta.url).href;
  return document.head.append(make("link", { rel: "stylesheet", href, onload: resolve, onerror: resolve }));
}));
