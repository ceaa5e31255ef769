// Moving between the tabs, and opening a head on the tab that shows heads.

let pending = null; // a request that came before its listener
let listener = null;
let choosePreset = null;

/** Open a tab by its id, as if the visitor had pressed it. */
export function openTab(id) {
  document.querySelector('#tabs [role="tab"][data-tab-id="' + id + '"]')?.click();
}

/** Open the tab Train with a preset, as if the visitor had chosen it. */
export function openPreset(name) {
  openTab("train");
  choosePreset?.(name);
}

/** Call a function with every preset that is to be opened. */
export function onPresetOpened(function_) {
  choosePreset = function_;
}

/** Open the tab with all heads on a view: { mode: "decode" or "replay", block, layer, head, row, input, step }. */
export function openHead(view) {
  pending = view;
  openTab("attention");
  deliver();
}

/** Call a function with every view that is to be opened, also with one that was asked for before. */
export function onHeadOpened(function_) {
  listener = function_;
  deliver();
}

function deliver() {
  if (!listener || !pending) return;
  const view = pending;
  pending = null;
  listener(view);
}
