// The saved report of a run, in a frame of its own in which no script runs. It is fetched when it is to be seen.

const frame = part("page");
let html = null; // the report shown
let shown = ""; // which report of which run that is
let wanted = "";

function fit() {
  const page = frame.contentDocument?.documentElement;
  if (!page || !html) return;
  page.dataset.theme = document.body.classList.contains("dark") ? "dark" : "light";
  frame.style.height = "0"; // else it would never shrink
  frame.style.height = page.scrollHeight + 4 + "px";
}

function show(text) {
  html = text;
  frame.hidden = part("tools").hidden = !text;
  setText(part("trouble"), "");
  frame.srcdoc = text ?? "";
}

async function fetchIfSeen() {
  const { run, written } = props.value ?? {};
  wanted = run && written ? run + " " + written : "";
  if (!wanted) {
    shown = "";
    return show(null);
  }
  if (wanted === shown || element.offsetParent === null) return;
  const mine = (shown = wanted);
  const answer = await askServer("saved", { run });
  if (mine !== wanted) return; // another run was picked meanwhile
  show(answer?.html ?? null);
  if (!answer?.html) {
    shown = "";
    part("tools").hidden = false;
    setText(part("trouble"), answer?.error || "No report came back from the server.");
  }
}

async function saveZip() {
  const button = part("zip-button");
  const run = props.value.run;
  button.disabled = true;
  const answer = await askServer("bundle", { run });
  button.disabled = false;
  if (!answer?.zip) return setText(part("trouble"), answer?.error || "No file came back from the server.");
  const bytes = Uint8Array.from(atob(answer.zip), (letter) => letter.charCodeAt(0));
  download(new Blob([bytes], { type: "application/zip" }), fileName(run + " report", "zip"));
}

part("html-button").addEventListener("click", () =>
  download(new Blob([html], { type: "text/html" }), fileName(props.value.run + " report", "html")));
part("zip-button").addEventListener("click", saveZip);
frame.addEventListener("load", fit);
onLookChange(() => {
  fetchIfSeen(); // a tab that opens gets its width
  fit();
});
fetchIfSeen();
watch("value", fetchIfSeen);
