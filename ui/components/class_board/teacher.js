// The teacher's side of a class: code, link and QR code, what to send to all, and the board of everyone's runs.

import { linkToTab, pageAddress, parametersOfLink } from "../../web/address.js";
import { make, setText } from "../../web/dom.js";
import { download, fileName } from "../../web/files.js";
import { formatResult, formatSeconds, startText } from "../../web/format.js";
import { makeAnswers } from "./answers.js";

const POLL_MS = { open: 1500, closed: 5000 };
const COLUMNS = ["", "Student", "Run", "Progress", "Result", "State", "Lesson", ""];

/** { lead, showIn }: the teacher's side. `poll` calls the server like `call`, but explains no error. `button` opens the dialog, and says how many students need help. */
export function makeBoard({ call, poll, explain, dialog, button, show, openRun }) {
  let leads = false; // whether the visitor teaches a class
  let timer = 0;
  let rows = [];
  let drawn = "";
  let parts = null; // elements of the dialog

  let isPressed = false; // a button that is replaced between press and release gets no click
  let address = pageAddress(); // of the link to the class
  let addresses = []; // of this computer, at which the page is too
  const chosen = new Set(); // numbers of students, to remove several together
  let asking = ""; // what was pressed once; a page in a frame may not ask with confirm()

  /** Whether something that deletes was pressed a second time. */
  function sure(what) {
    const isSure = asking === what;
    asking = isSure ? "" : what;
    return isSure;
  }

  const answers = makeAnswers(call);

  // ---- the rows ----

  function stateText(row) {
    if (!row.status) return "no run yet";
    if (row.status === "queued" && row.queue_position) {
      return "place " + row.queue_position + " in the queue" + (row.seconds_to_start == null ? "" : ", " + startText(row.seconds_to_start));
    }
    return row.status === "failed" && row.message ? "failed: " + row.message : row.status;
  }

  function signs(row) {
    const help = row.help_seconds == null ? null : make("span", { class: "sign help" }, "needs help, " + formatSeconds(row.help_seconds));
    const failed = row.status === "failed" ? make("span", { class: "sign help" }, "✗ run failed") : null;
    const away = row.is_away ? make("span", { class: "sign away" }, "away") : null;
    return [help, failed, away];
  }

  function runButton(run, label) {
    return make("button", { type: "button", class: "open-run", "data-does": "run " + run.name, onclick: () => openRun(run.name), "aria-label": "Open " + run.title }, label);
  }

  function makeRow(row) {
    const [run, ...earlier] = row.runs;
    const progress = make("progress", { max: Math.max(1, row.steps), value: row.step, "aria-label": "training steps done" });
    const asks = row.help_seconds != null;
    const key = "remove " + row.number;
    const remove = () => (sure(key) ? removeStudents([row.number]) : redraw());
    const choose = (event) => {
      if (event.target.checked) chosen.add(row.number);
      else chosen.delete(row.number);
      showChosen();
    };
    return make("tr", { class: row.needs_help ? "needs-help" : false, "data-student": row.number },
      make("td", {}, make("input", { type: "checkbox", class: "choose", checked: chosen.has(row.number), "data-does": "choose " + row.number, onchange: choose, "aria-label": "Choose " + row.nickname })),
      make("th", { scope: "row" }, make("bdi", { class: "nickname", title: row.nickname }, row.nickname), ...signs(row)),
      make("td", {}, run ? runButton(run, run.title) : "–",
        earlier.length ? make("details", {}, make("summary", {}, earlier.length + " earlier"), ...earlier.map((each) => runButton(each, each.title))) : null),
      make("td", { class: "number" }, run ? progress : null, run ? row.step.toLocaleString("en") + " / " + row.steps.toLocaleString("en") : ""),
      make("td", { class: "number" }, formatResult(row) || "–"),
      make("td", {}, stateText(row)),
      make("td", { class: "lesson" }, answers.lessonText(row)),
      make("td", { class: "does" },
        asks ? make("button", { type: "button", class: "helped", "data-does": "helped " + row.number, onclick: () => act("helped", row.number) }, "Helped") : null,
        row.num_active ? make("button", { type: "button", class: "stop", "data-does": "stop " + row.number, onclick: () => act("stop", row.number), "aria-label": "Stop the runs of " + row.nickname },
          row.num_active > 1 ? "Stop " + row.num_active + " runs" : "Stop run") : null,
        make("button", { type: "button", class: "remove", "data-does": key, onclick: remove,
          "aria-label": (asking === key ? "Really remove " : "Remove ") + row.nickname }, asking === key ? "Really remove?" : "Remove")));
  }

  function showRows(answer) {
    rows = answer.rows;
    const waiting = rows.filter((row) => row.needs_help).length;
    setText(button, waiting ? "Class (" + waiting + ")" : "Class");
    button.title = waiting ? waiting + (waiting === 1 ? " needs help" : " need help") : "";
    if (!parts) return;
    for (const each of [...chosen]) if (!rows.some((row) => row.number === each)) chosen.delete(each);
    showDoor(answer);
    showChosen();
    const finished = rows.filter((row) => row.status === "finished").length;
    setText(parts.count, rows.length + " of at most " + answer.max + " students · " + finished + " finished" + (waiting ? " · " + waiting + (waiting === 1 ? " needs help" : " need help") : ""));
    parts.none.hidden = rows.length > 0;
    parts.table.hidden = rows.length === 0;
    if (!isPressed && drawn !== JSON.stringify(rows)) redraw();
  }

  function redraw() {
    drawn = JSON.stringify(rows);
    answers.show(rows);
    const focused = document.activeElement?.dataset?.does;
    const open = new Set([...parts.rows.querySelectorAll("details[open]")].map((each) => each.closest("tr").dataset.student));
    parts.rows.replaceChildren(...rows.map(makeRow));
    for (const each of parts.rows.querySelectorAll("details")) each.open = open.has(each.closest("tr").dataset.student);
    if (focused) parts.rows.querySelector('[data-does="' + CSS.escape(focused) + '"]')?.focus();
  }

  async function change(name, argument) {
    const answer = await call(name, argument);
    if (answer?.rows) showRows(answer);
  }

  const act = (name, number) => change(name, { number });
  const removeStudents = (numbers) => change("remove", { numbers });

  // ---- the door ----

  function showDoor({ door, waiting }) {
    if (document.activeElement !== parts.door) parts.door.value = door;
    const key = JSON.stringify(waiting);
    if (isPressed || parts.waiting.dataset.shown === key) return;
    parts.waiting.dataset.shown = key;
    parts.waiting.hidden = waiting.length === 0;
    const all = waiting.map((each) => each.number);
    const button = (label, name, numbers, about) => make("button", { type: "button", class: name, onclick: () => change(name, { numbers }), "aria-label": about }, label);
    parts.waiting.replaceChildren(
      make("h3", {}, waiting.length === 1 ? "1 waits to be let in" : waiting.length + " wait to be let in"),
      make("div", { class: "tools" }, button("Admit all", "admit", all, "Admit all who wait"), button("Turn all away", "remove", all, "Turn all away who wait")),
      ...waiting.map((each) => make("div", { class: "tools applicant" }, make("bdi", { class: "nickname", title: each.nickname }, each.nickname),
        button("Admit", "admit", [each.number], "Admit " + each.nickname), button("Turn away", "remove", [each.number], "Turn " + each.nickname + " away"))));
  }

  function showChosen() {
    parts.removeChosen.hidden = chosen.size === 0;
    setText(parts.removeChosen, asking === "chosen" ? "Really remove " + chosen.size + "?" : "Remove the " + chosen.size + " chosen");
  }

  function removeChosen() {
    if (sure("chosen")) void removeStudents([...chosen]);
    showChosen();
  }

  function chooseAll() {
    const isAll = chosen.size === rows.length;
    chosen.clear();
    if (!isAll) for (const row of rows) chosen.add(row.number);
    redraw();
    showChosen();
  }

  function makeDoor() {
    const options = [["open", "Whoever has the code comes in"], ["approval", "I let each one in"], ["locked", "Nobody else comes in"]];
    parts.door = make("select", { class: "door", "aria-label": "Who comes in", onchange: () => change("door", { door: parts.door.value }) }, ...options.map(([value, label]) => make("option", { value }, label)));
    parts.waiting = make("div", { class: "waiting", hidden: true });
    parts.removeChosen = make("button", { type: "button", class: "remove-chosen", hidden: true, onclick: removeChosen });
    const newCode = make("button", { type: "button", class: "new-code", onclick: changeCode, title: "The students stay; the old code lets nobody in" }, "New code");
    return make("div", { class: "tools" }, parts.door, newCode, make("button", { type: "button", class: "choose-all", onclick: chooseAll }, "Choose all"), parts.removeChosen);
  }

  async function changeCode() {
    const about = await call("new_code", { address });
    if (about?.code) showInvitation(about);
  }

  async function refresh() {
    clearTimeout(timer);
    if (!leads) return;
    const answer = await poll("board");
    if (answer?.rows) showRows(answer);
    else if (answer?.error) show(await poll("role")); // the class has ended
    if (leads) timer = setTimeout(refresh, dialog.open ? POLL_MS.open : POLL_MS.closed);
  }

  // ---- sending ----

  async function send(parameters, what) {
    setText(parts.sent, "");
    explain("");
    if (parameters && (await call("send", { parameters }))) setText(parts.sent, "Sent: " + what);
  }

  function sendLink(event) {
    event.preventDefault();
    const parameters = parametersOfLink(parts.link.value, addresses);
    if (parameters) return send(parameters, "the link.");
    setText(parts.sent, "");
    return explain("This is not an address of this page with something to open.");
  }

  function makeSending(presets) {
    const preset = make("select", { class: "preset", "aria-label": "Preset" }, ...presets.map((name) => make("option", { value: name }, name)));
    const link = make("input", { class: "link", type: "text", maxlength: "4000", placeholder: "Link to a page of this lab", "aria-label": "Link to a page of this lab", required: true });
    const sent = make("p", { class: "sent faint", role: "status" });
    return { link, sent, element: make("div", { class: "sending" }, make("h3", {}, "Send to all students"),
      make("div", { class: "tools" },
        make("span", { class: "tools" }, preset, make("button", { type: "button", class: "send-preset", onclick: () => send({ tab: "train", preset: preset.value }, "the preset " + preset.value + ".") }, "Send preset")),
        make("button", { type: "button", class: "send-this", onclick: () => send(parametersOfLink(linkToTab()), "what you have open.") }, "Send what I have open"),
        make("form", { class: "tools", onsubmit: sendLink }, link, make("button", { type: "submit", class: "send-link" }, "Send link"))),
      sent) };
  }

  // ---- the end ----

  async function downloadTable(name) {
    const answer = await call(name);
    if (answer?.csv != null) download(new Blob(["\ufeff", answer.csv], { type: "text/csv;charset=utf-8" }), fileName("class-" + name, "csv"));
  }

  const END = "End the class";

  async function endClass() {
    if (!sure("end")) {
      setText(parts.end, "Really end?");
      return void setText(parts.said, "Code, nicknames and board are deleted.");
    }
    const answer = await call("end");
    if (answer) show(answer);
  }

  // ---- the dialog ----

  function showInvitation(about) {
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(about.link);
        setText(parts.said, "Copied.");
      } catch {
        setText(parts.said, "Select the link and copy it.");
      }
    };
    const isLarge = () => dialog.classList.contains("projected");
    parts.large = make("button", { type: "button", class: "large", onclick: () => showLarge(!isLarge()) });
    showLarge(isLarge());
    const reach = make("select", { class: "reach", "aria-label": "Address of this computer", onchange: async () => {
      const other = await call("code", { address: reach.value });
      if (other?.code) showInvitation(other);
    } }, ...about.addresses.map((each) => make("option", { value: each, selected: each === about.address }, each)));
    ({ address, addresses } = about);
    reach.hidden = about.addresses.length < 2;
    parts.invitation.replaceChildren(
      make("img", { class: "qr", src: about.picture, alt: "QR code of the link to the class", width: "148", height: "148" }),
      make("div", {}, make("p", { class: "code", "aria-label": "Code" }, about.code.slice(0, 4) + " " + about.code.slice(4)),
        make("p", { class: "address" }, about.link),
        about.local ? make("p", { class: "problem bad", role: "alert" }, "Only this computer opens this address. Start the lab with --host 0.0.0.0, so that the room can reach it.") : null,
        reach,
        make("div", { class: "tools" }, make("button", { type: "button", class: "copy", onclick: copy }, "Copy link"), parts.large,
          make("button", { type: "button", class: "results", onclick: () => downloadTable("results") }, "Download results (CSV)"),
          make("button", { type: "button", class: "answers-file", onclick: () => downloadTable("answers") }, "Download answers (CSV)"),
          parts.end),
        parts.said));
  }

  /** Show the code large, for a projector, or the board. */
  function showLarge(isLarge) {
    dialog.classList.toggle("projected", isLarge);
    parts.large.setAttribute("aria-pressed", String(isLarge));
    setText(parts.large, isLarge ? "Show the board" : "Show large");
  }

  async function showIn(body) {
    if (parts?.table.isConnected) return void refresh();
    const about = await call("code", { address: pageAddress() });
    if (!about?.code) return;
    const sending = makeSending(about.presets);
    await answers.load();
    const head = make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col" }, name)));
    parts = { link: sending.link, sent: sending.sent, rows: make("tbody"), count: make("p", { class: "count muted", role: "status" }),
      none: make("p", { class: "empty" }, "Nobody has joined yet. Show the code or the QR code to your students.") };
    parts.table = make("table", { hidden: true }, make("thead", {}, head), parts.rows);
    parts.end = make("button", { type: "button", class: "end", onclick: endClass }, END);
    parts.said = make("p", { class: "said faint", role: "status" }); // beside no button: a text that comes would move them
    parts.invitation = make("div", { class: "invitation" });
    const door = makeDoor();
    drawn = "";
    chosen.clear();
    showInvitation(about);
    body.replaceChildren(parts.invitation, sending.element, parts.count, parts.waiting, door, parts.none, make("div", { class: "rows" }, parts.table), answers.element);
    refresh();
  }

  dialog.addEventListener("close", () => {
    asking = "";
    dialog.classList.remove("projected");
    if (!parts) return;
    showLarge(false);
    redraw();
    showChosen();
    setText(parts.end, END);
    setText(parts.said, "");
  });
  dialog.addEventListener("pointerdown", () => (isPressed = true));
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => setTimeout(() => (isPressed = false)));

  /** Begin or end asking for the board. */
  function lead(now) {
    if (now === leads) return;
    leads = now;
    if (leads) return void refresh();
    clearTimeout(timer);
    setText(button, "Class");
    button.title = "";
    parts = null;
  }

  return { lead, showIn };
}
