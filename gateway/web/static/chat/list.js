// The list of conversations with the keyboard: arrows go through it, F2 renames, Escape puts away.

import { $, page } from "./page.js";

const list = $("conversations");
const links = () => [...list.querySelectorAll("#chats li > a")];

function move(from, step) {
  const all = links();
  const at = all.indexOf(from.closest("li")?.querySelector("a"));
  const next = all[at + step] ?? (at + step < 0 ? $("q") : null);
  next?.focus();
  return Boolean(next);
}

list.addEventListener("keydown", (event) => {
  const row = event.target.closest("#chats li");
  const isTyping = event.target.matches("input[type=text]");
  if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !isTyping) {
    if (move(event.target, event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
  } else if (event.key === "F2" && row) {
    event.preventDefault();
    row.querySelector("details").open = true;
    row.querySelector("input[type=text]").select();
  } else if (event.key === "Escape" && row?.querySelector("details").open) {
    event.preventDefault();
    row.querySelector("details").open = false;
    row.querySelector("summary").focus();
  }
});

// A conversation that is open has a stream of its own, and a browser six connections for one host: here the list takes
// none, but is asked for again with each message, when the page is seen again, and from time to time.
const LOOK_MS = 10_000;
export function lookAgain() {
  if (!document.hidden) document.body.dispatchEvent(new CustomEvent("live-messages"));
}
if (page.events) {
  setInterval(lookAgain, LOOK_MS);
  document.addEventListener("visibilitychange", lookAgain);
}

// The list is exchanged while one goes through it: the same row has the focus again.
let focused = null;
document.body.addEventListener("htmx:beforeSwap", () => {
  const link = document.activeElement?.closest("#chats a");
  focused = link ? link.getAttribute("href") : null;
});
document.body.addEventListener("htmx:afterSwap", () => {
  if (focused) links().find((link) => link.getAttribute("href") === focused)?.focus();
});

// A row is opened to rename it, and one at a time.
list.addEventListener("toggle", (event) => {
  if (!event.target.matches("details")) return;
  if (!event.target.open) { // what has changed meanwhile is fetched now
    lookAgain();
    return;
  }
  for (const other of list.querySelectorAll("details[open]")) if (other !== event.target) other.open = false;
  const title = event.target.querySelector("input[type=text]");
  if (title !== document.activeElement) title.select(); // F2 has done so, and perhaps somebody types already
}, true);
