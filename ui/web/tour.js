// The tour: five stops on the page; see tour_offer.js.

import { make, setText } from "./dom.js";
import { openTab } from "./navigation.js";

const GAP = 12; // pixels between a card and its target
const STOPS = [
  { tab: "train", at: "#rail", title: "Choose what to train",
    text: "A preset is a task with a model and settings. The quickest is chosen; its training time is measured on this machine. Press Train to start." },
  { tab: "train", at: "#bench-view .loss-panel, #bench-view .accuracy-panel", title: "Loss and accuracy",
    text: "They move while the model trains. Accuracy counts whole answers to inputs that the model is not trained on." },
  { tab: "train", at: "#bench-view .answers-panel", title: "What it answers now",
    text: "The same few inputs after every evaluation: at first the answers are noise, later they are right. Wrong tokens are underlined." },
  { tab: "train", at: "#bench-view .heads-panel", title: "Where it looks now",
    text: "One map per attention head. Each row is a token being produced, each column an input token; a stronger color is more attention. Drag the slider to see how a head learned. Press a map to open it." },
  { tab: null, at: "#tabs .tab-wrapper", title: "Try it and look inside",
    text: "Decode: type your own input. Look inside: every head of the model, and what the model loses without it. Report and Compare: measure runs. Sweep: try many settings. Learn: lessons on attention, and on bugs that raise no error." },
];

let onEnd = null;
let opener = null; // what had the focus before
let card = null;
let targets = [];

/** Start the tour at its first stop; at its end, `ended` is called and the focus returns to `from`. */
export function startTour(from, ended) {
  [opener, onEnd] = [from, ended];
  showStop(0);
}

function endTour() {
  onEnd();
  document.removeEventListener("keydown", onKey);
  for (const target of targets) target.classList.remove("tour-target");
  const { activeElement } = document;
  if (card?.contains(activeElement) || activeElement === document.body) returnFocus();
  card?.remove();
  card = null;
  targets = [];
}

/** Give the focus back to where the tour was started, or else to where it can be started again. */
function returnFocus() {
  const places = [opener, ...["tour", "run"].map((name) => document.querySelector("#run-bar ." + name))]; // a phone has it in the menu
  places.find((each) => each.offsetParent !== null)?.focus({ preventScroll: true });
}

function onKey(event) {
  if (event.key === "Escape") endTour();
}

function showStop(number) {
  const stop = STOPS[number];
  if (stop.tab) openTab(stop.tab);
  const last = number === STOPS.length - 1;
  const buttons = [["Skip", endTour], ...(number ? [["Back", () => showStop(number - 1)]] : []),
    [last ? "Done" : "Next", last ? endTour : () => showStop(number + 1), true]];
  requestAnimationFrame(() => showCard({ ...stop, title: number + 1 + " of " + STOPS.length + " · " + stop.title, buttons: last ? buttons.slice(1) : buttons }));
}

function showCard({ at, title, text, buttons }) {
  for (const target of targets) target.classList.remove("tour-target");
  card?.remove();
  targets = [...document.querySelectorAll(at)];
  for (const target of targets) target.classList.add("tour-target");
  targets[0]?.scrollIntoView({ block: "nearest" });
  const heading = make("h3", { id: "tour-title" });
  const words = make("p", {});
  setText(heading, title);
  setText(words, text);
  card = make("div", { class: "tour-card", role: "dialog", "aria-labelledby": "tour-title" }, heading, words,
    make("div", { class: "tour-buttons" }, ...buttons.map(([label, action, main]) =>
      make("button", { type: "button", class: main ? "main" : false, onclick: action }, label))));
  document.body.append(card);
  place();
  document.addEventListener("keydown", onKey);
  card.querySelector(".main").focus({ preventScroll: true });
}

/** Put the card beside its targets if there is room, otherwise at the bottom right. */
function place() {
  const { offsetWidth: width, offsetHeight: height } = card;
  const right = innerWidth - width - GAP;
  const bottom = innerHeight - height - GAP;
  const put = (left, top) => {
    card.style.left = Math.max(GAP, Math.min(right, left)) + "px";
    card.style.top = Math.max(GAP, Math.min(bottom, top)) + "px";
  };
  if (!targets.length) return put(right, bottom);
  const boxes = targets.map((target) => target.getBoundingClientRect());
  const edge = (side, most) => most(...boxes.map((box) => box[side]));
  const box = { left: edge("left", Math.min), top: edge("top", Math.min), right: edge("right", Math.max), bottom: edge("bottom", Math.max) };
  if (box.right + GAP + width < innerWidth) return put(box.right + GAP, box.top + GAP);
  if (box.bottom + GAP + height < innerHeight) return put(box.left, box.bottom + GAP);
  if (box.left - GAP - width > 0) return put(box.left - GAP - width, box.top + GAP);
  if (box.top - GAP - height > 0) return put(box.left, box.top - GAP - height);
  return put(right, bottom);
}
