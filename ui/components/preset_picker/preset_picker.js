// The presets of one task, the quickest to train first; those that need another package come last and say so.
// Event: 'pick', after the value got the visitor's choice.

import { make, partsOf, setText, uniqueName } from "../../web/dom.js";
import { offerPresets, presetOpened } from "../../web/navigation.js";
import { callServer, pollWhileVisible } from "../../web/server.js";

const FEW = 3; // presets shown at first
const POLL_MS = { measuring: 1000, idle: 5000 };

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);
  const group = uniqueName("preset");
  let family = null; // the shown task
  let all = false; // whether all of its presets are shown
  let drawn = "";
  const times = new Map(); // training time by preset, as measured so far
  const examples = new Map(); // an example by preset

  const families = () => props.value?.families ?? [];
  const familyOf = (preset) => families().find(({ presets }) => presets.some(({ name }) => name === preset));

  let picked = ""; // the visitor's last choice, until the form has it
  let trainWhenPicked = false; // Train was pressed since

  function pick(preset) {
    picked = preset;
    trainWhenPicked = false;
    props.value = { ...props.value, chosen: preset };
    trigger("pick", {});
  }

  function makePreset({ name, about, missing }) {
    const radio = make("input", { type: "radio", name: group, value: name, "data-preset": name, onchange: () => pick(name) });
    return make("label", { class: "preset" }, radio,
      make("span", { class: "name" }, name),
      make("span", { class: "description" }, about),
      make("span", { class: "about", "data-preset-example": name }, examples.get(name) ?? ""),
      missing ? make("span", { class: "missing" }, missing) : make("span", { class: "time", "data-preset-time": name }, timeText(name)));
  }

  const timeText = (name) => times.get(name) ?? (document.body.dataset.server === "gone" ? "no connection, no training time" : "measuring the training time …");

  /** Ask for the training times of the shown presets until all of them are measured. */
  async function refresh() {
    const shown = [...part("presets").querySelectorAll("[data-preset-time]")];
    const wanted = shown.map((each) => each.dataset.presetTime).filter((name) => !times.has(name));
    if (!wanted.length) return POLL_MS.idle;
    const answer = await callServer(server, "times", { presets: wanted, chosen: props.value?.chosen ?? "" });
    for (const [name, text] of Object.entries(answer?.times ?? {})) times.set(name, text);
    for (const [name, text] of Object.entries(answer?.examples ?? {})) examples.set(name, text);
    for (const each of part("presets").querySelectorAll("[data-preset-example]")) setText(each, examples.get(each.dataset.presetExample) ?? "");
    for (const each of part("presets").querySelectorAll("[data-preset-time]")) setText(each, timeText(each.dataset.presetTime));
    return POLL_MS.measuring;
  }

  function showPresets() {
    const { presets } = family;
    const { chosen } = props.value;
    const first = presets.slice(0, FEW);
    const rest = presets.find(({ name }) => name === chosen);
    const shown = all ? presets : [...first, ...(rest && !first.includes(rest) ? [rest] : [])];
    const key = JSON.stringify([shown, family.name]);
    if (key !== drawn) {
      const focused = document.activeElement?.dataset?.preset;
      drawn = key;
      part("presets").replaceChildren(...shown.map(makePreset));
      if (focused) part("presets").querySelector('[data-preset="' + CSS.escape(focused) + '"]')?.focus();
    }
    for (const radio of part("presets").querySelectorAll("input")) radio.checked = radio.value === chosen;
    refreshNow();
    part("more").hidden = presets.length <= FEW;
    setText(part("more"), all ? "Show fewer" : "All " + presets.length + " presets");
  }

  /** Take a value from Python, but not the answer to an earlier choice than the last. */
  function applyValue() {
    const isStale = picked && props.value?.picked && props.value.picked !== picked;
    if (isStale) props.value = { ...props.value, chosen: picked };
    else picked = "";
    show();
    presetOpened(props.value?.pairs ?? "");
    if (!picked && trainWhenPicked) {
      trainWhenPicked = false;
      setTimeout(() => document.querySelector("#train").click()); // once Gradio has set the other fields, too
    }
  }

  /** Hold a press of Train back until the form has the preset that was chosen just before. */
  function holdTrain(event) {
    if (!picked || !event.target.closest?.("#train")) return;
    event.stopImmediatePropagation();
    trainWhenPicked = true;
  }

  function show() {
    if (!families().length) return;
    family = familyOf(props.value.chosen) ?? family ?? families()[0];
    const select = part("family");
    const options = families().map(({ name, label }) => [name, label]);
    if (select.dataset.key !== JSON.stringify(options)) {
      select.dataset.key = JSON.stringify(options);
      select.replaceChildren(...options.map(([value, label]) => make("option", { value }, label)));
    }
    select.value = family.name;
    select.disabled = false;
    showPresets();
  }

  part("family").addEventListener("change", () => {
    family = families().find(({ name }) => name === part("family").value);
    all = false;
    const quickest = family.presets.find(({ missing }) => !missing) ?? family.presets[0];
    props.value = { ...props.value, chosen: quickest.name };
    showPresets();
    pick(quickest.name);
  });
  part("more").addEventListener("click", () => {
    all = !all;
    showPresets();
  });
  part("settings").addEventListener("click", () => {
    const open = document.body.dataset.settings !== "open";
    document.body.dataset.settings = open ? "open" : "";
    part("settings").setAttribute("aria-expanded", String(open));
    setText(part("settings"), open ? "Settings ▾" : "Settings ▸");
  });
  offerPresets((name) => Boolean(familyOf(name)), (name) => {
    pick(name);
    show();
  });
  document.addEventListener("click", holdTrain, true);
  const refreshNow = pollWhileVisible(element, refresh);
  show();
  watch("value", applyValue);
}
