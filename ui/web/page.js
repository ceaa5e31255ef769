// Behavior of the whole page: the theme, drafts, the open tab in the address, and the arrow keys of Gradio's radio
// buttons.

import { onReturn, patchAddress, pushTab, readAddress } from "./address.js";
import { make } from "./dom.js";
import { keepDrafts } from "./drafts.js";
import { explainWordsOf } from "./explain.js";
import { laterStyles } from "./later_styles.js";
import { openTab, takeDestination } from "./navigation.js";
import { inBrowser } from "./remembered.js";

const LATER = 2_000; // milliseconds until the page has opened

let wanted = readAddress().get("tab"); // the tab that the address names, until it is open

/** Open the tab that the address names, once; then keep the open tab in the address, for reloads and links. */
function keepTab() {
  const open = document.querySelector("#tabs [role=tab][aria-selected=true]")?.dataset.tabId;
  if (!open) return;
  if (open === wanted) wanted = null;
  if (wanted) return openWanted();
  if (document.body.dataset.tab === open) return;
  document.querySelector("#tabs [role=tab][aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" }); // in a row that scrolls
  const isFirst = !document.body.dataset.tab;
  if (!isFirst) restoreScroll(open);
  document.body.dataset.tab = open;
  if (isFirst || readAddress().get("tab") === open) patchAddress({ tab: open });
  else pushTab(open);
}

const scrolls = new Map(); // tab → how far it was scrolled when it was left
let aim = null; // how far to scroll as soon as the page is high enough

/** Keep how far the open tab is scrolled, before the press on another tab changes the height of the page. */
function keepScroll(event) {
  if (event.target.closest?.("#tabs [role=tab]")) scrolls.set(document.body.dataset.tab, aim ?? scrollY);
}

/** Scroll to what was asked for on the tab, or to where it was left. */
function restoreScroll(tab) {
  const destination = takeDestination();
  const asked = destination && document.querySelector(destination);
  aim = asked ? null : (scrolls.get(tab) ?? 0);
  requestAnimationFrame(() => (asked ? asked.scrollIntoView() : scrollToAim()));
}

/** A tab that opens is drawn part by part, and is too low at first. */
function scrollToAim() {
  if (aim === null) return;
  scrollTo({ top: aim, behavior: "instant" });
  if (Math.abs(scrollY - aim) < 1) aim = null;
}

let retry = 0;

/** Press the wanted tab until it is open: the first presses may come before Gradio listens. */
function openWanted() {
  if (!document.querySelector('#tabs [role=tab][data-tab-id="' + CSS.escape(wanted) + '"]')) return void (wanted = null);
  clearTimeout(retry);
  openTab(wanted);
  retry = setTimeout(keepTab, 50);
}

/** Put the input, which Gradio builds before its tabs, behind their names, where one sees it: the Tab key follows the document. */
function placeInput() {
  const ask = document.querySelector("#main > #ask");
  if (ask) document.querySelector("#tabs > .tab-wrapper")?.after(ask);
}

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

/** Take the theme of the address, the one chosen earlier, or the system's, which a site without Gradio has no other way to follow. */
function keepTheme() {
  const system = systemIsDark.matches ? "dark" : "light";
  const theme = readAddress().get("__theme") ?? inBrowser.get("attention-lab-theme") ?? system;
  document.body.classList.toggle("dark", theme === "dark");
}

/** Print in light colors, whatever the theme is: paper is white. */
function printInLight() {
  const isDark = document.body.classList.contains("dark");
  document.body.dataset.printing = "yes";
  document.body.classList.remove("dark");
  window.addEventListener("afterprint", () => {
    delete document.body.dataset.printing;
    document.body.classList.toggle("dark", isDark);
  }, { once: true });
}

/**
 * Gradio gives each radio button a different name, which breaks the arrow keys. Before a key moves the focus, give the
 * buttons of a group the same name, so that they are one tab stop even after Gradio has created them again.
 */
function groupRadios(event) {
  if (event.key !== "Tab" && !event.key.startsWith("Arrow")) return;
  for (const block of document.querySelectorAll("fieldset.block")) {
    const [first, ...others] = block.querySelectorAll("input[type=radio]");
    for (const radio of others) radio.name = first.name;
  }
}

/** Gradio reports a lost connection over the bar, which reports it already. */
function hideLostConnection() {
  for (const toast of document.querySelectorAll(".toast-body")) {
    if (toast.textContent.includes("Connection to the server was lost")) toast.style.display = "none";
  }
}

/** Load what other tabs need once the page has opened, so that they need not wait for one file after the other. */
function loadLater() {
  const later = document.querySelector('meta[name="later-scripts"]')?.content.split(" ");
  if (!later) return; // a site of files
  laterStyles();
  document.head.append(...later.map((href) => make("link", { rel: "modulepreload", href })));
}

keepTheme();
systemIsDark.addEventListener("change", keepTheme);
keepDrafts();
setTimeout(loadLater, LATER);
explainWordsOf(document);
new MutationObserver(hideLostConnection).observe(document.body, { childList: true, subtree: true });
new MutationObserver(placeInput).observe(document.body, { childList: true, subtree: true });
new MutationObserver(keepTab).observe(document.body, { attributes: true, attributeFilter: ["aria-selected"], childList: true, subtree: true });
document.addEventListener("pointerdown", (event) => { // a tab that the visitor presses has priority
  if (event.target.closest?.("#tabs [role=tab]")) wanted = null;
}, true);
document.addEventListener("keydown", groupRadios, true);
document.addEventListener("click", keepScroll, true);
window.addEventListener("beforeprint", printInLight);
new ResizeObserver(scrollToAim).observe(document.body);
for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) { // the visitor scrolls, or works here already
  document.addEventListener(name, (event) => !event.target.closest?.("#tabs [role=tab]") && (aim = null), { capture: true, passive: true });
}
onReturn((tab) => {
  wanted = tab;
  if (wanted) openWanted();
});
