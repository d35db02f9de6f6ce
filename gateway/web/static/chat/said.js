// What is said: messages as the gateway renders them, the answer while it is written, and what is on its way.

import { $, element, page, rendered } from "./page.js";
import { addCopyButtons } from "./copying.js";
import { followEnd } from "./scroll.js";
import { addUnseen, nameConversation } from "./unseen.js";

const TYPING_MS = 8000;

export const shown = new Set();
export const state = { isBusy: false, isLive: false };
const previews = new Map();
const hooks = { onChoice: () => {}, onSaid: () => {}, onBusy: () => {}, onMessage: () => {} };
let lastDay = "";

export const on = (given) => Object.assign(hooks, given);
export const timeOf = (date) => date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

function dayMark(date) {
  const day = date.toDateString();
  if (day === lastDay) return [];
  lastDay = day;
  const isToday = day === new Date().toDateString();
  const words = isToday ? "Today" : date.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", year: "numeric" });
  return [element("div", "day", words)];
}

export function articleOf(author, name) {
  const article = element("article", author, element("div", "text"));
  article.setAttribute("aria-label", name);
  article.firstChild.dir = "auto";
  return article;
}

// A message as the gateway renders it, with what only a script can do.
export function adopt(article) {
  shown.add(article.dataset.key);
  const time = article.querySelector("time");
  const at = new Date(time.dateTime);
  article.before(...dayMark(at));
  time.textContent = timeOf(at);
  for (const choice of article.querySelectorAll(".choices button")) {
    choice.addEventListener("click", (event) => {
      event.preventDefault(); // without a script it is a form's button
      hooks.onChoice(choice.value);
    });
  }
  addCopyButtons(article);
}

export function showMessage({ id, author, html }) {
  const key = `${author}:${id}`;
  if (shown.has(key)) return;
  const isAgent = author === "agent";
  const written = previews.get(id);
  if (isAgent) {
    dropPreview(id);
    setBusy(false);
  }
  if (!html) { // what it answers was stopped
    shown.add(key);
    return;
  }
  const article = rendered(html).firstElementChild;
  if (written) keepSame(written.querySelector(".text"), article.querySelector(".text"));
  $("log").append(article);
  adopt(article);
  $("welcome").hidden = true;
  const words = article.querySelector(".text").textContent;
  if (isAgent) {
    if (state.isLive && document.hidden) addUnseen(words);
  } else {
    hooks.onSaid(id, words);
    nameConversation(words);
  }
  hooks.onMessage();
  followEnd();
}

export function showPreview({ id, html }) {
  if (shown.has(`agent:${id}`)) return;
  if (!html) { dropPreview(id); return; }
  if (!previews.has(id)) {
    previews.set(id, articleOf("agent", "Agent"));
    $("previews").append(previews.get(id));
    $("welcome").hidden = true;
  }
  grow(previews.get(id).querySelector(".text"), rendered(html));
  setBusy(true);
  followEnd();
}

// Only what has changed is exchanged, so that a selection, and where a wide table was scrolled to, stay.
function grow(place, next) {
  const now = [...place.childNodes];
  const then = [...next.childNodes];
  const same = then.findIndex((node, index) => !now[index]?.isEqualNode(node));
  if (same < 0 && now.length === then.length) return;
  const from = same < 0 ? then.length : same;
  for (const node of now.slice(from)) node.remove();
  place.append(...then.slice(from));
}

// The same blocks in the answer that takes the place of the preview: as they are on the screen.
function keepSame(before, after) {
  const now = [...before.childNodes];
  [...after.childNodes].forEach((node, index) => { if (now[index]?.isEqualNode(node)) node.replaceWith(now[index]); });
}

function dropPreview(id) {
  previews.get(id)?.remove();
  previews.delete(id);
  showTyping();
}

export function dropPreviews() {
  for (const id of [...previews.keys()]) dropPreview(id);
}

export function reset() {
  shown.clear();
  dropPreviews();
  $("log").replaceChildren();
  $("earlier").hidden = false; // the stream begins with the newest messages
  lastDay = "";
}

// ---- whether an answer is on its way ---------------------------------------------------------------------------------

let typingTimer = 0;

export function setBusy(value) {
  state.isBusy = value;
  clearTimeout(typingTimer);
  if (value) typingTimer = setTimeout(() => setBusy(false), TYPING_MS);
  showTyping();
}

// A tool may work for long; its name stands beside the sign that an answer is on its way.
export function showTool({ tool, state: progress }) {
  $("tool").textContent = progress === "began" ? `Uses ${tool}` : "";
  setBusy(true);
}

function showTyping() {
  const wasHidden = $("typing").hidden;
  $("typing").hidden = !state.isBusy || previews.size > 0;
  if (wasHidden && !$("typing").hidden) followEnd();
  hooks.onBusy();
}
