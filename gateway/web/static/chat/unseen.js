// Answers that come while nobody looks: their number stands in the tab's title, and who wants so is notified.
//
// Notifications are switched on by a button and never asked for unbidden. They need no service worker: the page is there.

import { $, page } from "./page.js";
import { kept, NOTIFY_KEY } from "./kept.js";

const FIRST_CHARS = 80;
let unseen = 0;

const name = () => document.querySelector(".head h1")?.textContent.trim() ?? "";

export function showUnseen(count) {
  unseen = count;
  document.title = (count ? `(${count}) ` : "") + (name() ? `${name()} · Ethos` : "Ethos");
}

export function addUnseen(words) {
  showUnseen(unseen + 1);
  if (!isNotifying()) return;
  try {
    const first = words.trim().replace(/\s+/g, " ");
    const body = first.length > FIRST_CHARS ? `${first.slice(0, FIRST_CHARS)}…` : first;
    const shown = new Notification(name(), { body, tag: page.conversation, icon: "/static/icon.svg" });
    shown.addEventListener("click", () => { window.focus(); shown.close(); });
  } catch { // a browser that shows notifications to service workers only
    kept.remove(NOTIFY_KEY);
    showButton();
  }
}

// A conversation that has no title yet is called after its first message.
export function nameConversation(words) {
  const title = words.trim().replace(/\s+/g, " ").slice(0, 60);
  for (const place of document.querySelectorAll("#conversations a[aria-current], .head h1, .trail [aria-current]")) {
    if (place.textContent === "New conversation") place.textContent = title;
  }
  showUnseen(unseen);
}

export const isNotifying = () =>
  "Notification" in window && Notification.permission === "granted" && kept.get(NOTIFY_KEY) === "on";

const place = $("notifying");

function showButton() {
  place.hidden = !("Notification" in window);
  if (place.hidden) return;
  place.firstElementChild.textContent = isNotifying() ? "Stop notifying me of answers" : "Notify me of answers";
}

place.firstElementChild.addEventListener("click", async () => {
  if (isNotifying()) {
    kept.remove(NOTIFY_KEY);
  } else if (await Notification.requestPermission() === "granted") {
    kept.set(NOTIFY_KEY, "on");
  } else {
    place.firstElementChild.textContent = "Your browser does not allow it for this page";
    return;
  }
  showButton();
});

showButton();
showUnseen(0);
