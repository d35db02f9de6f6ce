// What is kept in this browser: drafts, messages that are not sent yet, and what the person chose here.

import { page } from "./page.js";

export const kept = {
  get(key) {
    try { return localStorage.getItem(key); } catch { return null; } // switched off in some browsers
  },
  set(key, value) {
    try { localStorage.setItem(key, value); return true; } catch { return false; } // full, or switched off
  },
  remove(key) {
    try { localStorage.removeItem(key); } catch { /* nothing was kept */ }
  },
  keys() {
    try { return Object.keys(localStorage); } catch { return []; }
  },
};

export const draftKeyOf = (name) => `ethos:draft:${name}`;
export const outboxPrefixOf = (name) => `ethos:outbox:${name}:`;
export const filesKeyOf = (name) => `ethos:files:${name}`; // only on the way to the conversation that begins
export const NOTIFY_KEY = "ethos:notify";

export const draftKey = draftKeyOf(page.conversation);
export const outboxPrefix = outboxPrefixOf(page.conversation);
