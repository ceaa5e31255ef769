// What can be done with the current run as a whole. Deleting asks first. Event: 'gone' {run}, when it was deleted.

const menu = part("menu");
const sure = part("sure");
let value = {}; // what is shown of which run

function show(next, said = "") {
  const another = next.run !== value.run;
  value = next;
  const { run, file, package: whole, shared, deletable } = value;
  menu.hidden = !run || !(file || whole || deletable || shared != null);
  if (another || !deletable) sure.hidden = true;
  else if (!sure.hidden) menu.hidden = true;
  part("file").hidden = !file;
  if (file) part("file").setAttribute("href", file);
  part("package").hidden = !whole;
  if (whole) part("package").setAttribute("href", whole);
  part("share").hidden = shared == null;
  setText(part("share"), shared ? "Stop sharing" : "Share by link");
  part("copy").hidden = !shared;
  part("delete").hidden = !deletable;
  setText(part("said"), said);
}

async function ask(name, question, done) {
  const mine = value.run;
  const answer = await askServer(name, question);
  if (value.run !== mine) return; // another run was picked meanwhile
  if (!answer || answer.error) {
    sure.hidden = true;
    show(value, answer?.error || "No answer came from the server.");
    return;
  }
  done(answer);
}

function share() {
  ask("share", { run: value.run, shared: !value.shared }, (answer) =>
    show(answer, answer.shared ? "Everybody with its link can look at this run now." : "Only you can see this run now."));
}

async function copyLink() {
  const link = new URL(window.location.href);
  link.search = "?" + new URLSearchParams({ run: value.run });
  try {
    await navigator.clipboard.writeText(link.href);
    setText(part("said"), "The link is copied.");
  } catch {
    setText(part("said"), link.href);
  }
}

function askBeforeDeleting(asked) {
  setText(part("question"), "Delete " + value.label + " and all its files?");
  sure.hidden = !asked;
  menu.hidden = asked;
  part(asked ? "no" : "delete").focus();
}

function remove() {
  const run = value.run;
  ask("delete", { run }, () => {
    show({ run: null });
    trigger("gone", { run });
  });
}

part("share").addEventListener("click", share);
part("copy").addEventListener("click", copyLink);
part("delete").addEventListener("click", () => askBeforeDeleting(true));
part("no").addEventListener("click", () => askBeforeDeleting(false));
part("yes").addEventListener("click", remove);
show(props.value ?? {});
watch("value", () => show(props.value ?? {}));
