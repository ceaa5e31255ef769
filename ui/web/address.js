// The page's address. Only this module reads and writes it, so that parts of the page cannot overwrite each other.

const SOON_MS = 250; // browsers limit the changes per second
export const OPENED_BY_LINK = window.location.search.length > 1; // to a run, a tab or a head; before this page changed it
let pending = {};
let timer = 0;
let written = window.location.search; // what this module wrote last

/** The parameters of the address. */
export function readAddress() {
  return new URLSearchParams(window.location.search);
}

/** The address of the current view, without the theme and the parameters of other tabs. */
export function linkToTab() {
  const query = readAddress();
  for (const name of ["__theme", "compare", "lesson", "sweep"]) query.delete(name);
  return pageAddress() + "?" + query;
}

/** The address of this page with some parameters, given as { name: value }. */
export function linkTo(parameters) {
  return window.location.pathname + "?" + new URLSearchParams(parameters);
}

const withoutParameters = ({ href }) => href.replace(/[?#].*/, ""); // the `origin` of a file is "null" in Firefox

/** The address of this page without parameters. */
export const pageAddress = () => withoutParameters(window.location);

const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]; // where the documents' links lead

/**
 * The parameters of a link to this page as { name: value }, without theme and class; null if there are none here.
 * The page may have further addresses.
 */
export function parametersOfLink(text, addresses = []) {
  if (!URL.canParse(text.trim(), window.location.href)) return null;
  const link = new URL(text.trim(), window.location.href);
  const isHere = [pageAddress(), ...addresses].includes(withoutParameters(link)) || (LOOPBACK.includes(link.hostname) && link.pathname === window.location.pathname);
  if (!isHere) return null;
  const parameters = Object.fromEntries([...link.searchParams].filter(([name]) => name !== "__theme" && name !== "class"));
  return Object.keys(parameters).length ? parameters : null;
}

/** The address at which a translation run translates its example and shows where each word comes from. */
export function linkToTranslation(run) {
  return linkTo({ tab: "decode", run, by: "words" }); // Look inside then shows words, too
}

/** Change parameters, given as { name: value }; null removes one. All others are kept. */
export function patchAddress(changes) {
  write(changes, "replaceState");
}

/** Set the open tab, as a new entry of the browser's history: Back opens the previous tab. */
export function pushTab(tab) {
  write({ tab }, "pushState");
}

/** Call a function with the tab that Back or Forward returns to. Everything else is unchanged. */
export function onReturn(listener) {
  window.addEventListener("popstate", () => {
    const tab = readAddress().get("tab");
    window.history.replaceState(window.history.state, "", written);
    patchAddress({ tab });
    listener(tab);
  });
}

function write(changes, method) {
  clearTimeout(timer);
  const query = readAddress();
  for (const [name, value] of Object.entries({ ...pending, ...changes })) {
    if (value == null || value === "") query.delete(name);
    else query.set(name, value);
  }
  pending = {};
  const text = "?" + query;
  if (text !== window.location.search) window.history[method](window.history.state, "", text);
  written = text;
}

/** Change parameters after a moment; later changes in the meantime replace earlier ones. */
export function patchAddressSoon(changes) {
  pending = { ...pending, ...changes };
  clearTimeout(timer);
  timer = setTimeout(patchAddress, SOON_MS, {});
}
