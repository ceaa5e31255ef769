// Moving between the tabs, and opening a head or asking about a token on the tab that shows heads.

let presets = null; // { has(name), choose(name) } of the preset picker

const tabButton = (id) => document.querySelector('#tabs [role="tab"][data-tab-id="' + CSS.escape(id) + '"]');

/** Open a tab by its id, as if the visitor had pressed it. */
export const openTab = (id) => tabButton(id)?.click();

/** The name of a tab, "" if there is none with that id. */
export const tabName = (id) => tabButton(id ?? "")?.textContent.trim() ?? "";

/** Whether a preset can be chosen on this page. */
export const hasPreset = (name) => Boolean(presets?.has(name));

/** Open the tab Train with a preset, as if the visitor had chosen it. */
export function openPreset(name) {
  openTab("train");
  if (hasPreset(name)) presets.choose(name);
}

/** Let presets be opened with two functions of their name: whether it is there, and one that chooses it. */
export function offerPresets(has, choose) {
  presets = { has, choose };
}

const presetListeners = new Set();

/** Call a function with the SHA-256 of its own pairs, or "", whenever the form has opened a preset. */
export function onPresetOpened(function_) {
  presetListeners.add(function_);
}

/** Say that the form has opened a preset. */
export function presetOpened(pairs) {
  for (const function_ of presetListeners) function_(pairs);
}

/** Requests to one listener; the latest before it is there waits for it. Returns { send(request), listen(function) }. */
function requests() {
  let pending = null;
  let listener = null;
  function deliver() {
    if (!listener || !pending) return;
    const request = pending;
    pending = null;
    listener(request);
  }
  return {
    send(request) {
      pending = request;
      openTab("attention");
      deliver();
    },
    listen(function_) {
      listener = function_;
      deliver();
    },
  };
}

const [heads, questions] = [requests(), requests()];

/** Open the tab with all heads on a view: { mode: "decode" or "replay", block, layer, head, row, input, step }. */
export const openHead = heads.send;

/** Call a function with every view to open, including an earlier pending request. */
export const onHeadOpened = heads.listen;

let destination = null; // where the tab that opens is to be scrolled to, rather than to where it was left

/** Ask on that tab why the last decode produced a token: { step, foil }; foil is the token that it might have been, or null. */
export function askWhy(question) {
  destination = "#why";
  questions.send(question);
}

/** The selector of what the tab that opens is to show, once; null if nothing was asked for. */
export function takeDestination() {
  const taken = destination;
  destination = null;
  return taken;
}

/** Call a function with every question, including an earlier pending one. */
export const onWhyAsked = questions.listen;
