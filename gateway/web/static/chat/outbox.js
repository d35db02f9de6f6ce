// Sending: what is typed is kept in this browser until the gateway says that it has it. A conversation that begins has no
// stream: its first message leads to the one it began.

import { $, button, complain, element, newId, page } from "./page.js";
import { draftKey, draftKeyOf, filesKeyOf, kept, outboxPrefix, outboxPrefixOf } from "./kept.js";
import { articleOf, setBusy, shown, timeOf } from "./said.js";
import { toEnd } from "./scroll.js";
import { breakOff, login, RETRY_MS, showExpired } from "./stream.js";

const pending = new Map();
const names = new Map(); // what the log calls a message of ours
const box = { takeBack: () => {}, draft: () => "", files: () => [], isReading: () => false };
let isFlushing = false;
let flushTimer = 0;
let flushFailures = 0;
let begun = null; // the session that a message began here, until the page goes on to it

export const use = (given) => Object.assign(box, given);
export const isEmpty = () => pending.size === 0;

function showPending(item) {
  const article = pending.get(item.id)?.article ?? articleOf("person", "You");
  article.hidden = false;
  article.className = item.refused ? "person failed" : item.isSent ? "person" : "person waiting";
  article.firstChild.textContent = [item.text, ...(item.attachments ?? []).map((file) => `📎 ${file.filename}`)].join("\n");
  const meta = element("p", "meta", item.refused ?? item.trouble ?? (item.isSent ? timeOf(new Date(item.at)) : "Sending"));
  if (item.refused) {
    meta.append(" ", button("Edit", () => { forget(item.id); box.takeBack(item.text); }), " ", button("Discard", () => forget(item.id)));
  } else if (item.trouble) {
    meta.append(" ", button("Try now", () => flush()));
  }
  article.querySelector(".meta")?.remove();
  article.append(meta);
  if (!pending.has(item.id)) $("pending").append(article);
  pending.set(item.id, { ...item, article });
  $("welcome").hidden = true;
}

// The log has a message: the one that was sent is it. Its sender may hear so later, perhaps under another name, and it is
// not shown twice meanwhile.
export function wasSaid(id, words) {
  forget(names.get(id) ?? id);
  const twin = [...pending.values()].find((one) => one.isPosted && !one.article.hidden && one.text === words);
  if (twin) twin.article.hidden = true;
}

function forget(id) {
  const item = pending.get(id);
  item?.article.remove();
  pending.delete(id);
  for (const key of kept.keys()) if (key.startsWith(outboxPrefix) && key.endsWith(id)) kept.remove(key);
}

const keyOf = (item) => `${outboxPrefix}${String(item.at).padStart(15, "0")}:${item.id}`;

export function post(words, attachments = []) {
  const item = { id: newId(), at: Date.now(), text: words, attachments, personality: $("personality").value };
  kept.set(keyOf(item), JSON.stringify(item)); // where it cannot be kept, this page still holds it
  showPending(item);
  toEnd();
  flush();
}

export async function flush() {
  if (isFlushing || login.isExpired) return;
  isFlushing = true;
  clearTimeout(flushTimer);
  try {
    for (;;) {
      const item = [...pending.values()].find((one) => !one.refused && !one.isSent); // in the order they were written
      if (!item) { goOn(); return; }
      if (!(await postOne(item))) return;
    }
  } finally {
    isFlushing = false;
  }
}

// Who answers is chosen where a conversation begins; in one that goes on, `/personality` chooses.
const whereTo = (item) => (begun ? { session: begun } : page.events ? {} : { personality: item.personality });

async function postOne(item) {
  let response = null;
  let problem = "The gateway cannot be reached";
  try {
    item.isPosted = true;
    response = await fetch(page.messages, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json" },
      body: JSON.stringify({
        ...JSON.parse(page.fields),
        ...whereTo(item),
        id: item.id,
        text: item.text,
        attachments: item.attachments?.length ? item.attachments : undefined,
      }),
    });
    const answer = await response.json();
    if (response.ok) names.set(answer.id, item.id);
    else problem = answer.error;
    if (response.ok && !page.events) {
      begun ??= answer.session;
      forget(item.id);
      return !goOn();
    }
  } catch { // the network, or an answer that is not ours: both are worth another try
    if (!response) breakOff();
  }
  if (!pending.has(item.id)) return true; // the log had it before we heard of it
  for (const [name, id] of names) {
    if (id === item.id && shown.has(`person:${name}`)) { forget(item.id); flushFailures = 0; return true; }
  }
  return showOutcome(item, response?.status, problem);
}

// Whether the next one is to be sent at once.
function showOutcome(item, status, problem) {
  if (status === 202) {
    flushFailures = 0;
    kept.remove(keyOf(item));
    showPending({ ...item, trouble: undefined, isSent: true });
    setBusy(true);
    return true;
  }
  if (status === 401 || status === 403) { // the page is of a login that has ended
    showPending({ ...item, trouble: "Not sent: log in again." });
    showExpired();
    return false;
  }
  if (status >= 400 && status < 500) {
    const refused = { id: item.id, at: item.at, text: item.text, refused: `Not sent. ${problem}` };
    kept.set(keyOf(item), JSON.stringify(refused));
    showPending(refused);
    return true;
  }
  showPending({ ...item, trouble: `Not sent yet. ${problem}`.replace(/\.?$/, ".") });
  flushTimer = setTimeout(flush, RETRY_MS[Math.min(flushFailures++, RETRY_MS.length - 1)]);
  return false;
}

// On to it with what else was typed and chosen here; what this browser cannot keep that long is sent or removed first.
export function goOn() {
  if (!begun || box.isReading() || [...pending.values()].some((item) => kept.get(keyOf(item)) === null)) return false;
  if (box.files().length && !kept.set(filesKeyOf(begun), JSON.stringify(box.files()))) {
    complain("Your message is sent. Send or remove these files, and this page goes on to the answer.");
    return false;
  }
  for (const key of kept.keys().filter((one) => one.startsWith(outboxPrefix))) {
    const item = kept.get(key);
    kept.remove(key); // first: there may be no room for it twice
    kept.set(outboxPrefixOf(begun) + key.slice(outboxPrefix.length), item);
  }
  if (box.draft()) kept.set(draftKeyOf(begun), box.draft());
  kept.remove(draftKey);
  location.assign(page.begun + begun);
  return true;
}

export function restoreOutbox() {
  for (const key of kept.keys().filter((one) => one.startsWith(outboxPrefix)).sort()) {
    try { showPending(JSON.parse(kept.get(key))); } catch { kept.remove(key); } // not written by us
  }
}

window.addEventListener("online", flush);
