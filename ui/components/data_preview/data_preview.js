// A summary of uploaded pairs: how their columns are read, statistics, length histograms, the first pairs, and skipped rows.
// Prop: most_mb, of an upload. Event: 'select' {columns}, another reading of the columns. Until the form has the
// preset of the pairs that the visitor sees, Train does not train another one.

import { make, setText, partsOf } from "../../web/dom.js";
import { onPresetOpened } from "../../web/navigation.js";

const MEGABYTE = 1e6;
const OF_PAIRS = "#own-file, #own-targets, #own-held-out, #own-pasted"; // what the pairs are read from

export function mount({ element, trigger, props, watch }) {
  const part = partsOf(element);

  const child = (name, tag) => part(name).querySelector(tag);

  function makeBar([span, count], most) {
    const width = (100 * count) / most;
    return make("tr", {},
      make("th", { scope: "row" }, span),
      make("td", { class: "bar" }, make("span", { class: "fill", style: "width: " + width.toFixed(1) + "%" })),
      make("td", { class: "count" }, count.toLocaleString("en")));
  }

  function makeLengths({ title, bars }) {
    const most = Math.max(...bars.map((bar) => bar[1]));
    return make("table", { class: "histogram" },
      make("caption", {}, title),
      make("tbody", {}, ...bars.map((bar) => makeBar(bar, most))));
  }

  /** The ways to read the columns, the chosen one first; nothing where there is only one. */
  function showReadings(readings) {
    part("readings").hidden = !readings.length;
    part("readings").replaceChildren(part("readings").querySelector("legend"), ...readings.map(({ columns, words, pairs }, at) =>
      make("label", {}, make("input", { type: "radio", name: "own-columns", value: columns, checked: at === 0, onchange: () => trigger("select", { columns }) }),
        make("span", {}, words),
        ...pairs.map(([source, target]) => make("span", { class: "example" }, make("bdi", {}, source), "  →  ", make("bdi", {}, target))))));
  }

  function showSummary(value) {
    child("facts", "tbody").replaceChildren(...value.facts.map(([name, text]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text))));
    part("lengths").replaceChildren(...value.lengths.map(makeLengths));
    child("pairs", "tbody").replaceChildren(...value.pairs.map((pair) =>
      make("tr", {}, ...pair.map((text) => make("td", {}, make("bdi", {}, text))))));
    part("skipped-rows").hidden = !value.skipped;
    setText(child("skipped-rows", "summary"), "Skipped rows: " + value.skipped.toLocaleString("en") + ", the first of them");
    child("skipped-rows", "ul").replaceChildren(...value.problems.map((problem) => make("li", {}, problem)));
  }

  let edits = 0; // of the pairs; every check is sent their number
  let shown = {}; // the value
  let opened = ""; // the pairs of the form's preset

  /** Hold a press of Train back while the form for own pairs is open with pairs that are not those of the preset. */
  function holdTrain(event) {
    const { problem, facts, data, edits: before = 0 } = shown;
    const edited = edits !== before;
    const isOther = edited || problem || (facts && data !== opened);
    if (!isOther || document.body.dataset.side !== "own" || !event.target.closest?.("#train")) return;
    event.stopImmediatePropagation();
    if (edited || !problem) refuse("These pairs are not checked yet. Press Check the data, then Train; or Back to the charts to train the preset at the side.");
    part("notice").scrollIntoView({ block: "center" });
  }

  function onEdit(event) {
    if (!event.target.closest?.(OF_PAIRS)) return;
    document.body.dataset.pairEdits = ++edits;
    const files = [...(event.type === "drop" ? event.dataTransfer : event.target).files ?? []];
    const size = files.reduce((bytes, each) => bytes + each.size, 0);
    if (!files.length) {
      if (!part("data").hidden) say("These pairs are not checked yet. Press Check the data."); // the result is that of others
      return;
    }
    if (size > props.most_mb * MEGABYTE) return void refuse(tooLarge(files, size));
    showChecking();
    watchUpload(event.target.closest(OF_PAIRS));
  }

  /** "big.tsv has 57.16 MB; an upload must not be above 50 MB". Files of one field are one upload. */
  function tooLarge(files, size) {
    const what = files.length === 1 ? files[0].name + " has " : "The " + files.length + " files have ";
    return what + (size / MEGABYTE).toFixed(2) + " MB; an upload must not be above " + props.most_mb + " MB.";
  }

  /** Say that a file did not arrive: Gradio then shows an empty field, and sends no event. */
  function watchUpload(field) {
    let began = false;
    const watcher = new MutationObserver(() => {
      const isUploading = field.querySelector("progress") !== null;
      began ||= isUploading;
      if (!began || isUploading) return;
      watcher.disconnect();
      if (!field.querySelector(".file-preview")) refuse("The upload failed. Choose the file again.");
    });
    watcher.observe(field, { childList: true, subtree: true });
  }

  /** Say something about the pairs in place of a result. */
  function say(text, kind = "") {
    part("data").removeAttribute("aria-busy");
    part("data").hidden = false;
    part("summary").hidden = part("readings").hidden = true;
    setText(part("warning"), "");
    part("notice").className = "notice " + kind;
    setText(part("notice"), text);
  }

  /** Say what keeps these pairs from being trained. */
  const refuse = (text) => say("✗ " + text, "bad");

  /** Say that the pairs are being read, which takes a minute for a million, until the value comes. */
  function showChecking() {
    say("Reading the pairs …");
    part("data").setAttribute("aria-busy", "true");
  }

  function onPress(event) {
    if (event.target.closest?.("#own-look") || event.target.closest?.("#own-preview .readings input")) showChecking();
  }

  function show(value) {
    part("data").removeAttribute("aria-busy");
    part("data").hidden = !value.problem && !value.facts;
    part("summary").hidden = !value.facts;
    part("notice").className = value.problem ? "notice bad" : "notice good";
    const valid = ["✓ The data is valid.", value.choice, "Press Train, or choose other tokens or settings first."];
    setText(part("notice"), value.problem ? "✗ " + value.problem : valid.filter(Boolean).join(" "));
    setText(part("warning"), value.warning ? "⚠ " + value.warning : "");
    showReadings(value.readings ?? []);
    if (value.facts) showSummary(value);
  }

  for (const name of ["input", "change", "drop"]) document.addEventListener(name, onEdit, true);
  document.addEventListener("click", holdTrain, true);
  document.addEventListener("click", onPress);
  onPresetOpened((pairs) => { opened = pairs; });
  show(shown = props.value ?? {});
  watch("value", () => {
    const value = props.value ?? {};
    if (value.checked < shown.checked) return; // the training time of pairs that were checked before
    const isTimed = value.checked === shown.checked;
    shown = value;
    if (value.edits !== edits) return; // of the pairs before an edit
    show(value);
    if (isTimed) return;
    part(part("readings").hidden ? "notice" : "readings").scrollIntoView({ block: "nearest" });
  });
}
