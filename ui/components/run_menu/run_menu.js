// Actions on the current run; deleting asks for confirmation. Event: 'gone' {run}, after it was deleted.

const menu = part("menu");
const confirm = part("confirm");
let value = {};

function show(next, status = "") {
  const another = next.run !== value.run;
  value = next;
  const { run, file, package: whole, shared, deletable } = value;
  menu.hidden = !run || !(file || whole || deletable || shared != null);
  if (another || !deletable) confirm.hidden = true;
  else if (!confirm.hidden) menu.hidden = true;
  part("file").hidden = !file;
  if (file) part("file").setAttribute("href", file);
  part("package").hidden = !whole;
  if (whole) part("package").setAttribute("href", whole);
  part("share").hidden = shared == null;
  setText(part("share"), shared ? "Stop sharing" : "Share by link");
  part("copy").hidden = !shared;
  part("delete").hidden = !deletable;
  setText(part("status"), status);
}

async function request(name, argument, done) {
  const mine = value.run;
  const answer = await callServer(name, argument);
  if (value.run !== mine) return; // another run was selected meanwhile
  if (!answer || answer.error) {
    confirm.hidden = true;
    show(value, answer?.error || "No answer from the server.");
    return;
  }
  done(answer);
}

function share() {
  request("share", { run: value.run, shared: !value.shared }, (answer) =>
    show(answer, answer.shared ? "Everyone with the link can now see this run." : "Only you can see this run now."));
}

async function copyLink() {
  const link = new URL(window.location.href);
  link.search = "?" + new URLSearchParams({ run: value.run });
  try {
    await navigator.clipboard.writeText(link.href);
    setText(part("status"), "Link copied");
  } catch {
    setText(part("status"), link.href);
  }
}

function askForConfirmation(isAsking) {
  setText(part("question"), "Delete " + value.label + " and all its files?");
  confirm.hidden = !isAsking;
  menu.hidden = isAsking;
  part(isAsking ? "no" : "delete").focus();
}

function remove() {
  const run = value.run;
  request("delete", { run }, () => {
    show({ run: null });
    trigger("gone", { run });
  });
}

part("share").addEventListener("click", share);
part("copy").addEventListener("click", copyLink);
part("delete").addEventListener("click", () => askForConfirmation(true));
part("no").addEventListener("click", () => askForConfirmation(false));
part("yes").addEventListener("click", remove);
show(props.value ?? {});
watch("value", () => show(props.value ?? {}));
