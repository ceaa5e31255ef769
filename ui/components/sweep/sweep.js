// Sweeps: a form for a new one, and what those that were begun have found.
// Events: 'base', to take the settings of the Train tab; 'pick' {run}, to make a run the current one.

import { patchAddress, readAddress } from "../../web/address.js";
import { make, partsOf, setText } from "../../web/dom.js";
import { callServer, pollWhileVisible } from "../../web/server.js";
import { makeForm } from "./form.js";
import { makeResults } from "./results.js";

const POLL_MS = { training: 1000, idle: 3000, failed: 1000 };
const RETRY_MS = 800; // while the form on the Train tab is still loading
const LONGEST_PROBLEM = 300; // characters
const LARGEST_FILE = 100_000; // characters

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);
  let sweep = null; // the one that is shown; null for the form
  let isEditing = false; // the form of a sweep that was begun
  let names = [];
  let isFirst = true;

  const say = (text) => setText(part("message"), text);
  const form = makeForm(part("plan"), {
    server, metrics: props.metrics, cores: props.cores, wantsBase, started: (name) => open(name),
  });
  const results = makeResults(part("result"), {
    server, say, jobs: form.jobs, edit, pick: (run) => trigger("pick", { run }),
  });

  // ---- which sweep ----

  /** Show a sweep, or with null the form for a new one. */
  function open(name) {
    sweep = name;
    isEditing = false;
    say("");
    results.clear();
    patchAddress({ sweep });
    showParts();
    pollNow();
  }

  function showParts() {
    part("plan").hidden = sweep !== null && !isEditing;
    part("nothing").hidden = sweep !== null || names.length > 0;
    part("result").hidden = sweep === null || isEditing;
    part("open-file").hidden = sweep !== null && !isEditing;
    const listed = ["", ...names];
    const which = part("which");
    if (JSON.stringify([...which.options].map(({ value }) => value)) !== JSON.stringify(listed)) {
      which.replaceChildren(...listed.map((name) => make("option", { value: name }, name || "new sweep")));
    }
    which.value = isEditing ? "" : sweep ?? "";
  }

  /** Fill the form with a sweep that was begun, to extend it or to begin another one like it. */
  async function edit(name) {
    const answer = await callServer(server, "edit", { sweep: name });
    if (!answer?.draft) return say(answer?.error ?? "No answer from the server.");
    form.load(answer.draft);
    isEditing = true;
    say("");
    showParts();
    part("plan").scrollIntoView({ block: "nearest" });
    return undefined;
  }

  async function openFile(file) {
    if (!file) return;
    if (file.size > LARGEST_FILE) return void say(file.name + " has more than " + LARGEST_FILE.toLocaleString("en") + " characters; a sweep's file has a few lines.");
    const answer = await callServer(server, "open_file", { text: await file.text(), base: form.base() });
    say(answer?.draft ? "" : file.name + ": " + (answer?.error ?? "no answer from the server"));
    if (!answer?.draft) return;
    open(null);
    form.load(answer.draft);
  }

  // ---- polling ----

  async function poll() {
    if (props.value?.off) return POLL_MS.idle * 100;
    const asked = isEditing ? null : sweep;
    const [listed, progress] = await Promise.all([
      callServer(server, "sweeps", {}),
      asked === null ? null : callServer(server, "progress", { sweep: asked, version: results.version() }),
    ]);
    if (!listed?.sweeps) return POLL_MS.failed;
    names = listed.sweeps;
    if (isFirst) {
      isFirst = false;
      const linked = readAddress().get("sweep");
      const known = names.includes(linked) ? linked : listed.active;
      if (linked && !known) say("There is no sweep “" + linked.slice(0, 40) + "” here.");
      if (known) open(known);
    }
    showParts();
    if (sweep === null || isEditing) return POLL_MS.idle;
    if (asked !== sweep) return 0; // opened meanwhile
    if (!progress || progress.error && !progress.counts) {
      say(progress?.error ?? "Connection lost, retrying.");
      return POLL_MS.idle;
    }
    results.show(progress);
    return progress.status === "idle" ? POLL_MS.idle : POLL_MS.training;
  }

  // ---- the base ----

  function show() {
    const { off = "", base = null, problem = "" } = props.value ?? {};
    part("off").hidden = !off;
    part("lab").hidden = Boolean(off);
    setText(part("off"), off && off[0].toUpperCase() + off.slice(1) + ", where the tab Sweep trains many settings and seeds of a preset; the command line does the same: python -m core sweep.");
    if (base) form.setBase(base);
    if (!problem && hadProblem) say("");
    hadProblem = Boolean(problem);
    if (!problem) return;
    say("The settings on the Train tab: " + problem.slice(0, LONGEST_PROBLEM));
    wantsBaseSoon();
  }

  let hadProblem = false;
  let retry = 0;

  function wantsBase() {
    trigger("base", {});
    wantsBaseSoon();
  }

  /** Ask again while there is no base: the form on the Train tab may still be loading, or be corrected. */
  function wantsBaseSoon() {
    clearTimeout(retry);
    retry = setTimeout(() => { if (isOpen() && (props.value?.problem || !props.value?.base)) wantsBase(); }, RETRY_MS);
  }

  const isOpen = () => document.body.dataset.tab === "sweep";
  let wasOpen = false;
  new MutationObserver(() => {
    if (isOpen() && !wasOpen) wantsBase();
    wasOpen = isOpen();
  }).observe(document.body, { attributes: true, attributeFilter: ["data-tab"] });

  part("which").addEventListener("change", () => open(part("which").value || null));
  part("open-file").addEventListener("click", () => part("file").click());
  part("file").addEventListener("change", () => {
    openFile(part("file").files[0]);
    part("file").value = "";
  });
  show();
  watch("value", show);
  showParts();
  const pollNow = pollWhileVisible(element, poll);
  if (isOpen()) wantsBase();
  wasOpen = isOpen();
}
