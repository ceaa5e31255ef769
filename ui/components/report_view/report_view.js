// A run's saved report, in a sandboxed frame without scripts. It is fetched when it becomes visible.
// Event: 'begin', when a run without a report becomes visible, to write it.

import { onAppearanceChange } from "../../web/canvas.js";
import { setText, partsOf } from "../../web/dom.js";
import { explainWordsOf } from "../../web/explain.js";
import { download, fileName } from "../../web/files.js";
import { callServer } from "../../web/server.js";

export function mount({ element, trigger, props, server, watch }) {
  const part = partsOf(element);

  const frame = part("page");
  let html = null; // the displayed report
  let shown = ""; // its run and time
  let wanted = "";
  let begun = null; // the run whose report was last asked for

  function fit() {
    const page = frame.contentDocument?.documentElement;
    if (!page || !html) return;
    page.dataset.theme = document.body.classList.contains("dark") ? "dark" : "light";
    frame.style.height = "0"; // so that it can shrink
    frame.style.height = page.scrollHeight + 4 + "px";
  }

  function show(text) {
    html = text;
    frame.hidden = part("tools").hidden = !text;
    setText(part("error"), "");
    frame.srcdoc = text ?? "";
  }

  async function fetchIfVisible() {
    const { run, written, begins } = props.value ?? {};
    wanted = run && written ? run + " " + written : "";
    if (!wanted) {
      shown = "";
      show(null);
      if (begins && run !== begun && element.offsetParent !== null) {
        begun = run;
        trigger("begin", {});
      }
      return;
    }
    if (wanted === shown || element.offsetParent === null) return;
    const mine = (shown = wanted);
    const answer = await callServer(server, "saved", { run });
    if (mine !== wanted) return; // another run was selected meanwhile
    show(answer?.html ?? null);
    if (!answer?.html) {
      shown = "";
      part("tools").hidden = false;
      setText(part("error"), answer?.error || "The server did not return the report.");
    }
  }

  async function saveZip() {
    const button = part("zip-button");
    const run = props.value.run;
    button.disabled = true;
    const answer = await callServer(server, "bundle", { run });
    button.disabled = false;
    if (!answer?.zip) return setText(part("error"), answer?.error || "The server did not return the file.");
    const bytes = Uint8Array.from(atob(answer.zip), (letter) => letter.charCodeAt(0));
    download(new Blob([bytes], { type: "application/zip" }), fileName(run + " report", "zip"));
  }

  part("html-button").addEventListener("click", () =>
    download(new Blob([html], { type: "text/html" }), fileName(props.value.run + " report", "html")));
  part("zip-button").addEventListener("click", saveZip);
  frame.addEventListener("load", () => {
    fit();
    explainWordsOf(frame.contentDocument);
  });
  onAppearanceChange(element, () => {
    fetchIfVisible(); // an opened tab gets its width
    fit();
  });
  fetchIfVisible();
  watch("value", fetchIfVisible);
}
