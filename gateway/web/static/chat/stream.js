// The event stream of a conversation: read, watched, and opened again where it was.

import { $, page } from "./page.js";
import { dropPreviews, reset, setBusy, showMessage, showPreview, showTool, state } from "./said.js";
import { isNotifying, showUnseen } from "./unseen.js";

export const RETRY_MS = [500, 1000, 2000, 5000, 10000, 30000];
const SILENCE_MS = 40000; // the gateway gives a sign of life every 15 s
const HIDDEN_MS = 5 * 60000; // a browser opens six streams at most; a hidden tab closes its own

let cursor = page.after ?? null;
let listening = null; // the AbortController of the stream that is open
let failures = 0;
let isResting = false;
let hiddenTimer = 0;
let wakeUp = () => {};
let onLive = () => {};

export const login = { isExpired: false };

function showConnection(name, words) {
  if (!$("connection")) return;
  $("connection").dataset.state = name;
  $("connection").firstElementChild.textContent = words;
}

export function showExpired() {
  login.isExpired = true;
  showConnection("expired", "Logged out");
  $("expired").querySelector("a").href = "/login?next=" + encodeURIComponent(location.pathname);
  $("expired").hidden = false;
}

// Something else has found that the network is gone: what the header says must not be older than that.
export const breakOff = () => listening?.abort();

const handlers = {
  message: showMessage,
  preview: showPreview,
  typing: () => setBusy(true),
  tool: showTool,
  reset: () => { reset(); cursor = null; },
  live: () => {
    failures = 0;
    showConnection("connected", "Connected");
    onLive();
  },
};

async function readEvents(body, onBytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) {
      const fields = {};
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
      }
      if (fields.event in handlers) handlers[fields.event](JSON.parse(fields.data));
      if (fields.id) cursor = fields.id;
    }
  }
}

async function listenOnce() {
  const control = (listening = new AbortController());
  let watchdog = 0;
  const onBytes = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => control.abort(), SILENCE_MS);
  };
  try {
    onBytes();
    const headers = { accept: "text/event-stream" };
    if (cursor !== null) headers["last-event-id"] = cursor;
    const response = await fetch(page.events, { headers, cache: "no-store", signal: control.signal });
    if (response.status === 401) showExpired();
    else if (response.ok) await readEvents(response.body, onBytes);
  } catch (error) {
    if (!(error instanceof TypeError || error.name === "AbortError")) throw error; // not the network: a fault of ours
  } finally {
    clearTimeout(watchdog);
    control.abort();
    listening = null;
    dropPreviews();
  }
}

export async function listen(whenLive) {
  onLive = whenLive;
  while (!login.isExpired) {
    if (!isResting) await listenOnce();
    if (login.isExpired) return;
    showConnection("reconnecting", "Reconnecting");
    const waitMs = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
    await new Promise((resolve) => {
      wakeUp = resolve;
      if (!isResting) setTimeout(resolve, waitMs);
    });
  }
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => {
      if (isNotifying()) return; // it is to be told of answers, so it goes on listening
      isResting = true;
      breakOff();
    }, HIDDEN_MS);
    return;
  }
  isResting = false;
  showUnseen(0);
  wakeUp();
});
window.addEventListener("offline", breakOff);
window.addEventListener("online", () => { failures = 0; wakeUp(); });
window.addEventListener("pagehide", breakOff);
window.addEventListener("pageshow", (event) => { if (event.persisted) wakeUp(); });
