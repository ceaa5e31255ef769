// The style sheet of the components on the tabs that are opened later; it loads with the first of them.

import { make } from "./dom.js";

/** Resolves when the style sheet is loaded, or cannot be loaded. */
export const laterStyles = new Promise((resolve) => {
  const href = new URL("../later.css", import.meta.url).href;
  document.head.append(make("link", { rel: "stylesheet", href, onload: resolve, onerror: resolve }));
});
