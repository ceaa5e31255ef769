// The page of the static site: it connects the components through the current run and the current decode.

import "../web/page.js";
import { patchAddress, readAddress } from "../web/address.js";
import { make, setText } from "../web/dom.js";
import { counted } from "../web/format.js";
import { openTab } from "../web/navigation.js";
import { feed, onFeed } from "../web/run_feed.js";
import { mountComponent } from "./components.js";
import { drawPicture } from "./picture.js";
import { call, server, startHere, startWorker } from "./remote.js";

const MEGABYTE = 1e6;
const SLOW_MS = 300; // a decode that takes longer says so
const TEST_SEQUENCES = 10_000;
const IMPORTANCE_SEQUENCES = 500;
const byId = (id) => document.getElementById(id);

let index = null; // the site's presets and runs
let run = null; // the current run's id
let facts = null; // of its task and model
let ablated = [];
let round = 0; // the latest decode wins

const say = (id, text, isBad = false) => {
  byId(id).hidden = !text;
  byId(id).className = "notice " + (isBad ? "bad" : "muted");
  setText(byId(id), text);
};

// ---- tabs ----

function showTab(name) {
  for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
    const isOpen = tab.dataset.tabId === name;
    tab.setAttribute("aria-selected", String(isOpen));
    tab.classList.toggle("selected", isOpen);
    tab.tabIndex = isOpen ? 0 : -1;
    byId("tab-" + tab.dataset.tabId).hidden = !isOpen;
  }
}

function makeTabs() {
  const tabs = [...document.querySelectorAll("#tabs [role=tab]")];
  for (const tab of tabs) {
    tab.addEventListener("click", () => showTab(tab.dataset.tabId));
    tab.addEventListener("keydown", ({ key }) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!by) return;
      const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
      showTab(next.dataset.tabId);
      next.focus();
    });
  }
}

// ---- the current run ----

async function openRun(id, about = {}) {
  run = id;
  ablated = [];
  parts.bar.set({ value: { current: id, translator: index.translator, ...about } });
  const answer = await call("facts", { run: id });
  if (run !== id || answer.error) return;
  facts = answer;
  byId("measure-test").hidden = byId("measure-heads").hidden = byId("cancel-heads").hidden = !facts.measured; // no exact answers to count
  setText(byId("measure-test"), "Measure on " + counted(Math.min(facts.measured, TEST_SEQUENCES), "held-out input"));
  byId("examples").replaceChildren(...facts.examples.map((text) =>
    make("button", { type: "button", onclick: () => { byId("text").value = text; decode({ asked: true }); } }, text)));
  const readable = await call("readable", { run: id, text: byId("text").value });
  if (run !== id) return;
  if (!readable.is) byId("text").value = facts.examples[0];
  parts.importance.set({ value: importanceValue([]), interventions: { ablated, patterns: {} } });
  decode();
}

/** Decode the input; `isPart`: it is a sentence of an earlier one, whose translations stay. */
async function decode({ selection = null, asked = false, isPart = false } = {}) {
  if (!facts) return; // the first run decodes what is there when it has opened
  const mine = (round += 1);
  const text = byId("text").value;
  const waiting = setTimeout(say, SLOW_MS, "decode-message", "Decoding …");
  const answer = await call("decode", { run, text, ablated, selection, asked });
  clearTimeout(waiting);
  if (mine !== round) return;
  patchAddress({ run, input: text, ablate: ablated.join(",") });
  if (answer.error) {
    say("decode-message", answer.error, true);
    parts.answer.set({ value: { failed: true } });
    parts.translations.set({ value: null });
    parts.thumbnails.set({ value: null });
    parts.viewer.set({ value: { run, decode: null, problem: answer.error, selection: {}, asked: null } });
    for (const comparison of parts.comparisons) comparison.set({ value: null });
    return;
  }
  say("decode-message", answer.message);
  parts.answer.set({ value: answer.answer });
  if (answer.translations || !isPart) parts.translations.set({ value: answer.translations });
  parts.thumbnails.set({ value: answer.thumbnails });
  parts.viewer.set({ value: answer.viewer });
  for (const comparison of parts.comparisons) comparison.set({ value: answer.comparison });
  parts.importance.set({ interventions: { ablated, patterns: {} } });
}

function ablate(names) {
  ablated = names;
  decode();
}

// ---- training ----

async function train() {
  const preset = parts.picker.value.chosen;
  const seed = Number(byId("seed").value);
  if (byId("seed").value === "" || !Number.isInteger(seed) || seed < 0 || seed > 999_999) return say("train-problem", "The seed must be a whole number from 0 to 999,999.", true);
  say("train-problem", "Opening the model …");
  byId("train").disabled = true;
  const answer = await call("train", { preset, seed });
  byId("train").disabled = false;
  say("train-problem", "");
  if (answer.error) return say("train-problem", answer.error, true);
  return openRun(answer.run);
}

async function measureTest() {
  const mine = run;
  byId("measure-test").disabled = true;
  const answer = await call("measure", { run, sequences: TEST_SEQUENCES }, ({ done, exact }) => {
    if (mine === run) say("test-result", exact.toLocaleString("en") + " of " + done.toLocaleString("en") + " held-out inputs answered correctly …");
  });
  byId("measure-test").disabled = false;
  if (mine !== run) return say("test-result", "");
  if (answer.error) return say("test-result", answer.error, true);
  return say("test-result", answer.exact.toLocaleString("en") + " of " + answer.sequences.toLocaleString("en")
    + " held-out inputs answered correctly, with the weights after step " + answer.step.toLocaleString("en") + ".");
}

// ---- importance of heads ----

/** The rows of the grid: every layer with its heads, and the layer as a whole. */
function importanceRows() {
  const layers = new Map();
  for (const head of facts.heads) {
    const layer = head.split(".").slice(0, 2).join(".");
    layers.set(layer, [...(layers.get(layer) ?? []), head]);
  }
  return [...layers].map(([layer, heads]) => {
    const [block, number] = layer.split(".");
    return {
      label: facts.blocks.find((each) => each.block === block).name + ", layer " + number,
      cells: [...heads.map((name) => ({ name, label: name.split(".")[2] })), ...(heads.length > 1 ? [{ name: layer, label: "all" }] : [])],
    };
  });
}

function importanceValue(measured, { intact = null, step = 0, sequences = 0 } = {}) {
  const found = new Map(measured);
  const rows = importanceRows().map((row) => ({ ...row, cells: row.cells.map((cell) => ({ ...cell, exact_match: found.get(cell.name) ?? null })) }));
  const total = rows.reduce((count, { cells }) => count + cells.length, 0);
  return { run, intact, sequences, step, measured: measured.length, total, seconds_left: null, note: "", rows };
}

let measuring = null; // the run whose heads are measured

async function measureHeads() {
  const mine = (measuring = run);
  const isOver = () => measuring !== mine || run !== mine;
  const setMeasuring = (is) => {
    byId("measure-heads").disabled = is;
    byId("cancel-heads").disabled = !is;
    parts.importance.set({ measuring: is });
  };
  setMeasuring(true);
  say("heads-message", "");
  const intact = await call("measure", { run, sequences: IMPORTANCE_SEQUENCES });
  const measured = [];
  if (intact.error) say("heads-message", intact.error, true);
  for (const { name } of intact.error ? [] : importanceRows().flatMap(({ cells }) => cells)) {
    if (isOver()) break;
    const { exact_match: share } = await call("measure", { run, ablated: [name], sequences: IMPORTANCE_SEQUENCES });
    if (isOver()) break;
    measured.push([name, share]);
    parts.importance.set({ value: importanceValue(measured, { intact: intact.exact_match, step: intact.step, sequences: intact.sequences }) });
  }
  setMeasuring(false);
}

// ---- opening ----

const parts = {};

async function mountAll() {
  const families = index.families.map((family) => ({ ...family, presets: family.presets.map((each) => ({ ...each, missing: "" })) }));
  const known = new Map(families.flatMap(({ presets }) => presets.map((each) => [each.name, each])));
  const linked = readAddress().get("preset");
  const chosen = known.has(linked) ? linked : index.first;
  const pickerServer = {
    times: async ({ presets }) => ({
      times: Object.fromEntries(presets.map((name) => [name, known.get(name).size])),
      examples: Object.fromEntries(presets.map((name) => [name, known.get(name).example])),
    }),
  };
  const lessonServer = new Proxy(server, { get: (_, name) => server[name === "decode" ? "lesson_decode" : name] }); // the page has a decode, too
  const viewerServer = new Proxy(server, { get: (_, name) => (name === "picture" ? async (request) => drawPicture(request) : server[name]) });
  const mounted = {
    bar: mountComponent("run_bar", "run-bar", { server, value: { current: null, loading: true } }),
    picker: mountComponent("preset_picker", "preset-picker", { server: pickerServer, value: { families, chosen, picked: "" } }),
    bench: mountComponent("bench", "bench-view", { server, offersTour: false }),
    answer: mountComponent("answer", "answer"),
    translations: mountComponent("translations", "translations"),
    thumbnails: mountComponent("head_thumbnails", "mini-viewer"),
    viewer: mountComponent("attention_viewer", "viewer", { server: viewerServer, value: null }),
    lesson: mountComponent("lesson", "lesson", { server: lessonServer, value: index.lessons }),
    importance: mountComponent("head_importance", "heads", { interventions: { ablated: [], patterns: {} }, measuring: false }),
  };
  for (const [name, promise] of Object.entries(mounted)) parts[name] = await promise;
  parts.comparisons = await Promise.all(["decode-edited", "attention-edited"].map((id) => mountComponent("answer_comparison", id)));
}

function connect() {
  parts.bar.on("pick", ({ run: id }) => openRun(id || index.runs[0])); // none after another tab deleted the run
  parts.bar.on("status", ({ status }) => {
    if (status === "finished" || status === "stopped") decode();
  });
  parts.bar.on("weights", () => decode());
  parts.bar.on("gone", () => openRun(index.runs[0]));
  parts.picker.on("pick", () => {
    const { value } = parts.picker;
    parts.picker.set({ value: { ...value, picked: value.chosen } }); // no form has to follow the choice
    patchAddress({ preset: value.chosen });
    prepare();
  });
  parts.answer.on("inspect", ({ step }) => {
    openTab("attention");
    decode({ selection: { ...lastLayer(), row: step } });
  });
  parts.translations.on("pick", ({ text }) => {
    byId("text").value = text;
    decode({ asked: true, isPart: true });
  });
  parts.thumbnails.on("pick", ({ head }) => {
    openTab("attention");
    decode({ selection: { ...lastLayer(), head } });
  });
  parts.importance.on("toggle", ({ name }) => ablate(ablated.includes(name) ? ablated.filter((each) => each !== name) : [...ablated, name]));
  for (const comparison of parts.comparisons) comparison.on("press", () => ablate([]));
  byId("train").addEventListener("click", train);
  byId("measure-test").addEventListener("click", measureTest);
  byId("measure-heads").addEventListener("click", measureHeads);
  byId("cancel-heads").addEventListener("click", () => { measuring = null; });
  byId("open-file").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (!file) return;
    const answer = await call("open_file", { bytes: new Uint8Array(await file.arrayBuffer()), name: file.name });
    target.value = "";
    say("train-problem", answer.error ?? "", true);
    if (answer.run) openRun(answer.run);
  });
  let shown = null;
  onFeed(() => {
    if (shown === feed.run) return;
    shown = feed.run;
    say("test-result", "");
  });
}

const lastLayer = () => {
  const { block, layer } = parts.thumbnails.value ?? {};
  return { block, layer };
};

/** Show how much of the runtime has arrived until it is there. */
async function warm() {
  const answer = await call("warm", {}, (bytes) => say("site-status", "Loading the runtime of the models: " + (bytes / MEGABYTE).toFixed(1) + " MB …"));
  say("site-status", answer?.error ?? "", Boolean(answer?.error));
}

const isOf = (name, head) => head === name || head.startsWith(name + ".");
const ablatedIn = (address) => (address.get("ablate") ?? "").split(",").filter(Boolean);

/** What is wrong with values of a link, by the parameter; `facts` are those of its run. See ui/link_values.py. */
function problemsOf(address, { heads, blocks }) {
  const problems = {};
  const [tab, preset, strategy, block, layer, head] = ["tab", "preset", "strategy", "block", "layer", "head"].map((name) => address.get(name));
  if (tab && !document.querySelector('#tabs [data-tab-id="' + CSS.escape(tab) + '"]')) problems.tab = "tab=" + tab + " is not one of the tabs";
  if (preset && !index.families.some(({ presets }) => presets.some(({ name }) => name === preset))) problems.preset = "preset=" + preset + " is not one of the presets";
  if (strategy && strategy !== "greedy") problems.strategy = "strategy=" + strategy + " needs the program; decoding is greedy here";
  for (const name of ["row", "column", "fixed_input"]) {
    if (address.get(name) && !/^0*[1-9][0-9]*$/.test(address.get(name))) problems[name] = name + "=" + address.get(name) + " is not a whole number from 1";
  }
  if (address.get("step") && !/^[0-9]+$/.test(address.get("step"))) problems.step = "step=" + address.get("step") + " is not a training step";
  const inBlock = heads.filter((each) => !block || isOf(block, each));
  const isThere = inBlock.some((each) => [block, layer, head].every((part, at) => !part || each.split(".")[at] === part));
  if ((block || layer || head) && heads.length && !isThere) {
    const last = inBlock.at(-1)?.split(".");
    const named = Object.entries({ block, layer, head }).filter(([, part]) => part).map((each) => each.join("=")).join(", ");
    problems.layer = named + " is not in this model, which has " + (last ? counted(last[1], "layer") + " of " + counted(last[2], "head") + " in block " + last[0]
      : "the blocks " + blocks.map((each) => each.block).join(", "));
  }
  const unknown = ablatedIn(address).filter((name) => !heads.some((each) => isOf(name, each)));
  if (unknown.length) problems.ablate = "ablate=" + unknown.join(",") + " is not in this model, which has " + heads[0] + " to " + heads.at(-1);
  return problems;
}

const prepare = () => (index.first ? call("prepare", { preset: parts.picker.value.chosen }) : null);

/** Take what is typed and entered, also while the page still loads. */
function connectInput() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    decode({ asked: true });
  });
  byId("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
}

/** Open the page; one that is a single file has its data, `embedded`, and the module of its functions. */
export async function openPage({ embedded = null, functions = null } = {}) {
  const address = readAddress(); // before the page puts the open tab into it
  makeTabs();
  byId("text").value = address.get("input") ?? "";
  connectInput();
  if (functions) startHere(functions);
  else startWorker(new URL("./worker.js", import.meta.url), (text) => say("site-status", text, true));
  index = await call("open", { embedded });
  if (index.error) return say("site-status", index.error, true);
  await mountAll();
  connect();
  const wanted = address.get("run");
  warm();
  const opened = await call("facts", { run: wanted ?? index.runs[0] });
  if (wanted && opened.error) await openRun(index.runs[0], { missing: wanted, why: opened.error });
  else await openRun(wanted ?? index.runs[0], { unread: opened.error ? {} : problemsOf(address, opened) });
  ablated = ablatedIn(address).filter((name) => facts?.heads.some((head) => isOf(name, head)));
  if (ablated.length) decode();
  document.body.dataset.ready = "true";
  prepare();
  return undefined;
}

