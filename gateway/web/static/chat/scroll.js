// The conversation scrolls with what is new, as long as the reader is at its end.

import { $, page } from "./page.js";

const scroll = $("scroll");
let isAtEnd = Boolean(page.events); // a new conversation begins with what there is to choose from

export const toEnd = () => { isAtEnd = true; scroll.scrollTop = scroll.scrollHeight; };
export const followEnd = () => { if (isAtEnd) scroll.scrollTop = scroll.scrollHeight; else $("latest").hidden = false; };

scroll.addEventListener("scroll", () => {
  isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  $("latest").hidden = isAtEnd || !page.events;
}, { passive: true });
$("latest").addEventListener("click", () => { toEnd(); $("text").focus(); });
new ResizeObserver(() => { if (isAtEnd) toEnd(); }).observe(scroll);
scroll.addEventListener("load", () => followEnd(), true); // a picture has its height once it is there
