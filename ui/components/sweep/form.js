// The form of a sweep. It holds texts; the server returns their values, their errors and the estimated time.

import { make, setText, uniqueName } from "../../web/dom.js";
import { download } from "../../web/files.js";
import { openTab } from "../../web/navigation.js";
import { callServer } from "../../web/server.js";

const TYPING_MS = 400; // after the last key, before the form is checked
const ESTIMATE_SECONDS = 60; // the server waits for a measurement up to half of it
const NO_ANSWER = "No answer from the server. Try again.";

/** The values that a new axis starts with: around the base's value, or all that there are. */
function firstValues({ value, options }) {
  if (options.length) return options.map(String).join(", ");
  if (typeof value === "boolean") return "false, true";
  if (typeof value !== "number" || value === 0) return value == null ? "" : String(value);
  const rounded = (number) => (Number.isInteger(value) ? Math.max(1, Math.round(number)) : Number(number.toPrecision(2)));
  const factor = Number.isInteger(value) ? 2 : 3;
  return [...new Set([value / factor, value, value * factor].map(rounded))].join(", ");
}

/**
 * Build the form in an element. Calls `started(sweep)` after a start, and `wantsBase()` when it needs the settings of the
 * Train tab. Returns { setBase, load, jobs, base }.
 */
export function makeForm(form, { server, metrics, cores, started, wantsBase }) {
  let base = null; // of the sweep, see base_data in Python
  let isFromTrainTab = true;
  let resources = {}; // of an opened sweep; the form only keeps them
  let axes = []; // { key, kind, row, values, low, high, step, slot }
  let round = 0;
  let timer = 0;
  let isStarting = false;

  // ---- fields ----

  const slots = new Map(); // field → where its problem is shown

  /** A place for the problem of a field, which describes its inputs. */
  function makeSlot(field, ...inputs) {
    const id = uniqueName("problem");
    const slot = make("p", { class: "problem bad", id, role: "alert" });
    for (const input of inputs) input.setAttribute("aria-describedby", id);
    slots.set(field, { slot, inputs });
    return slot;
  }

  const options = (names) => names.map((name) => (Array.isArray(name) ? make("option", { value: name[0] }, name[1]) : make("option", { value: name }, name)));
  const field = (label, input, slot, hint = "") => make("label", { class: "field" }, make("span", {}, label), input,
    hint ? make("span", { class: "faint" }, hint) : null, slot);
  const text = (value, attributes = {}) => make("input", { type: "text", value, autocomplete: "off", spellcheck: "false", ...attributes });

  const name = text("sweep", { maxlength: 40 });
  const seeds = text("3");
  const metric = make("select", {}, ...options(metrics));
  const budget = make("select", {}, ...options([["preset", "steps of the base"], ["updates", "updates"], ["minutes", "minutes"]]));
  const amount = text("", { inputmode: "decimal", "aria-label": "how many" });
  const search = make("select", {}, ...options([["grid", "grid: all combinations"], ["random", "random"], ["tpe", "TPE: learns from results"]]));
  const trials = text("20", { inputmode: "numeric" });
  const pruning = make("select", {}, ...options([["none", "none"], ["halving", "successive halving"], ["hyperband", "Hyperband"]]));
  const jobs = text(String(Math.max(1, cores - 1)), { inputmode: "numeric" });
  const trialsField = field("Trials to draw", trials, makeSlot("trials", trials));

  const baseText = make("p", { class: "base" });
  const axesBox = make("div", { class: "axes" });
  const add = make("button", { type: "button", onclick: () => { addAxis(); changed(); } }, "Add an axis");
  const general = makeSlot("sweep");
  const estimate = make("p", { class: "estimate muted", role: "status" });
  const start = make("button", { type: "submit", class: "main" }, "Start sweep");
  const save = make("button", { type: "button", onclick: saveYaml }, "Download YAML");
  const question = make("div", { class: "question", hidden: true, role: "alert" });
  form.append(
    baseText,
    make("fieldset", {}, make("legend", {}, "Axes: the settings to vary"), axesBox, makeSlot("axes"), add),
    make("div", { class: "fields" },
      field("Name", name, makeSlot("name", name), "a–z, 0–9 and -, at most 20"),
      field("Seeds", seeds, makeSlot("seeds", seeds), "how many, or a list such as 0, 1, 2 or [7]"),
      field("Goal", metric, makeSlot("goal.metric", metric), "on the validation set, at the best step"),
      field("Length of a run", make("span", { class: "pair" }, budget, amount), makeSlot("goal.updates", amount)),
      field("Search", search, makeSlot("search", search)),
      trialsField,
      field("Pruning", pruning, makeSlot("pruning", pruning), "stop bad trials early, judged by their first seed"),
      field("Runs at a time", jobs, makeSlot("jobs", jobs), "1 to " + cores + ", the cores of this machine; your own trainings go first")),
    general, estimate,
    make("div", { class: "tools" }, start, save), question);
  slots.set("goal.minutes", slots.get("goal.updates"));
  slots.set("preset", slots.get("sweep"));

  // ---- axes ----

  function addAxis(draft = null) {
    const used = axes.map((axis) => axis.key.value);
    const free = base.settings.find(({ key, value }) => !used.includes(key) && (key === "training.learning_rate" || (used.length && typeof value === "number" && key.startsWith("model."))))
      ?? base.settings.find(({ key }) => !used.includes(key));
    if (!draft && !free) return;
    const key = make("select", { class: "key", "aria-label": "setting of the axis" }, ...keyGroups(draft?.key));
    key.value = draft?.key ?? free.key;
    const kind = make("select", { class: "kind", "aria-label": "how its values are given" }, ...options([["values", "values"], ["range", "range"], ["log", "log range"]]));
    kind.value = draft?.kind ?? "values";
    const setting = () => base.settings.find((each) => each.key === key.value);
    const values = text(draft?.values ?? firstValues(free), { class: "values", "aria-label": "values, separated by commas" });
    const [low, high, step] = ["low", "high", "step"].map((end) =>
      text(draft?.[end] ?? "", { class: "end", placeholder: end === "step" ? "step (optional)" : end, "aria-label": end, inputmode: "decimal" }));
    const hint = make("span", { class: "faint" });
    const slot = make("p", { class: "problem bad", role: "alert" });
    const remove = make("button", { type: "button", "aria-label": "remove the axis", title: "remove the axis" }, "×");
    const row = make("div", { class: "axis" }, key, kind, values, low, high, step, remove, hint, slot);
    const axis = { key, kind, values, low, high, step, row, slot };
    const show = () => {
      values.hidden = kind.value !== "values";
      low.hidden = high.hidden = kind.value === "values";
      step.hidden = kind.value !== "range";
      const { value, hint: rule } = setting() ?? { value: "–", hint: "" };
      setText(hint, "base: " + value + (rule ? ". " + rule : ""));
      remove.hidden = axes.length < 2;
    };
    key.addEventListener("change", () => {
      values.value = setting() ? firstValues(setting()) : "";
      low.value = high.value = step.value = "";
      show();
    });
    kind.addEventListener("change", () => {
      const numbers = values.value.split(",").map(Number).filter(Number.isFinite);
      if (kind.value !== "values" && !low.value && numbers.length > 1) {
        low.value = String(Math.min(...numbers));
        high.value = String(Math.max(...numbers));
      }
      if (kind.value !== "values" && search.value === "grid") search.value = "random";
      show();
    });
    remove.addEventListener("click", () => {
      axes = axes.filter((each) => each !== axis);
      row.remove();
      for (const each of axes) each.show();
      changed();
      add.focus();
    });
    axis.show = show;
    axes.push(axis);
    axesBox.append(row);
    for (const each of axes) each.show();
  }

  /** The settings by section; one that the base does not have, of an opened file, is listed too. */
  function keyGroups(extra) {
    const keys = base.settings.map(({ key }) => key);
    const listed = extra && !keys.includes(extra) ? [...keys, extra] : keys;
    const sections = [...new Set(listed.map((key) => key.split(".")[0]))];
    return sections.map((section) => make("optgroup", { label: section }, ...options(listed.filter((key) => key.startsWith(section + ".")))));
  }

  // ---- content ----

  const baseDraft = () => ({ preset: base.preset, document: base.document, set: base.set });

  const draft = () => ({
    name: name.value, base: baseDraft(), seeds: seeds.value, metric: metric.value, budget: budget.value, amount: amount.value,
    search: search.value, trials: trials.value, pruning: pruning.value, jobs: jobs.value, resources,
    axes: axes.map((axis) => Object.fromEntries(["key", "kind", "values", "low", "high", "step"].map((part) => [part, axis[part].value]))),
  });

  function showParts() {
    amount.hidden = budget.value === "preset";
    trialsField.hidden = search.value === "grid";
    if (!base) return;
    const link = make("button", { type: "button", class: "link", onclick: () => (isFromTrainTab ? openTab("train") : takeTrainTab()) },
      isFromTrainTab ? "change them on the Train tab" : "take the settings of the Train tab instead");
    baseText.replaceChildren("All runs share the settings of ", make("strong", {}, base.preset.replace(/\.ya?ml$/, "")),
      base.changes ? " with " + base.changes : "", ", " + base.steps.toLocaleString("en") + " steps: ", link, ".");
  }

  function takeTrainTab() {
    isFromTrainTab = true;
    resources = {};
    wantsBase();
  }

  // ---- problems, size and time ----

  function clearProblems() {
    for (const { slot, inputs } of slots.values()) {
      setText(slot, "");
      for (const input of inputs) input.removeAttribute("aria-invalid");
    }
    for (const axis of axes) {
      setText(axis.slot, "");
      axis.row.classList.remove("invalid");
    }
  }

  /** Show each problem at its field; one of a field that is not shown, below all fields. */
  function showProblems(problems) {
    clearProblems();
    for (const [where, message] of problems) {
      const axis = axes.find(({ key }) => [key.value, "axes." + key.value].some((each) => where === each || where.startsWith(each + ".")));
      const known = slots.get(where);
      const place = axis?.slot ?? (known && !known.slot.closest("[hidden]") ? known.slot : general);
      setText(place, [place.textContent, message].filter(Boolean).join("; "));
      axis?.row.classList.add("invalid");
      if (place === known?.slot) for (const input of known.inputs) input.setAttribute("aria-invalid", "true");
    }
    start.disabled = problems.length > 0 || isStarting;
    save.disabled = problems.length > 0;
    if (problems.length) setText(estimate, "");
  }

  function changed() {
    showParts();
    question.hidden = true;
    clearTimeout(timer);
    round += 1;
    timer = setTimeout(check, TYPING_MS, round);
  }

  /** The problems of an answer: its own, its error, or that there is none. */
  function problemsOf(answer) {
    if (answer?.problems) return answer.problems;
    return [["sweep", answer?.error ?? NO_ANSWER]];
  }

  async function check(mine) {
    if (!base) return;
    const plan = await callServer(server, "plan", { draft: draft() }, ESTIMATE_SECONDS);
    if (mine !== round) return;
    if (!plan || plan.error || plan.problems.length) return showProblems(problemsOf(plan));
    showProblems([]);
    const size = plan.trials.toLocaleString("en") + (plan.trials === 1 ? " trial × " : " trials × ") + plan.seeds + (plan.seeds === 1 ? " seed" : " seeds");
    setText(start, plan.exists ? "Continue or extend" : "Start sweep");
    setText(estimate, size + " · estimating the time …");
    const time = await callServer(server, "estimate", { draft: draft() }, ESTIMATE_SECONDS);
    if (mine !== round) return;
    if (time?.text) setText(estimate, time.text + (plan.exists ? " · a sweep of this name was begun: what is done is kept" : ""));
    else showProblems(problemsOf(time));
  }

  // ---- actions ----

  async function begin(sure) {
    if (isStarting || !base) return;
    isStarting = start.disabled = true;
    question.hidden = true;
    round += 1; // a check in progress must not overwrite what follows
    setText(estimate, "Checking memory, disk space and time …");
    const answer = await callServer(server, "start", { draft: draft(), sure }, ESTIMATE_SECONDS);
    isStarting = start.disabled = false;
    setText(estimate, "");
    if (answer?.sweep) return started(answer.sweep);
    if (!answer?.question) return showProblems(problemsOf(answer));
    const yes = make("button", { type: "button", class: "main", onclick: () => begin(true) }, "Start anyway");
    const no = make("button", { type: "button", onclick: () => { question.hidden = true; start.focus(); } }, "Cancel");
    question.replaceChildren(make("p", {}, answer.question), make("div", { class: "tools" }, yes, no));
    question.hidden = false;
    yes.focus();
  }

  async function saveYaml() {
    const answer = await callServer(server, "yaml", { draft: draft() });
    if (answer?.yaml) download(new Blob([answer.yaml], { type: "application/yaml" }), answer.name);
    else showProblems(problemsOf(answer));
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    begin(false);
  });
  form.addEventListener("input", changed);
  form.addEventListener("change", changed);
  showParts();

  return {
    jobs: () => Number(jobs.value) || 1,
    base: () => (base ? baseDraft() : null),
    /** Take the settings of the Train tab, unless an opened sweep brought its own. */
    setBase(newBase) {
      if (!isFromTrainTab || JSON.stringify(newBase) === JSON.stringify(base)) return;
      const isFirst = base === null;
      base = newBase;
      if (isFirst) addAxis();
      else redrawAxes(draft().axes.filter(({ key }) => base.settings.some((each) => each.key === key)));
      changed();
    },
    /** Fill the form with an opened sweep. */
    load(opened) {
      isFromTrainTab = false;
      base = opened.base;
      resources = opened.resources;
      for (const [input, part] of [[name, "name"], [seeds, "seeds"], [metric, "metric"], [budget, "budget"], [amount, "amount"],
        [search, "search"], [trials, "trials"], [pruning, "pruning"]]) input.value = opened[part];
      redrawAxes(opened.axes);
      changed();
    },
  };

  function redrawAxes(drafts) {
    axes = [];
    axesBox.replaceChildren();
    for (const each of drafts) addAxis(each);
    if (!drafts.length) addAxis();
  }
}
