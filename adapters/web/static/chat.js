// The page of a web channel: the conversation, which it shares with the dashboard, and the list of conversations.

import "/static/conversation.js";

const $ = (id) => document.getElementById(id);

function openSidebar(isOpen) {
  $("sidebar").classList.toggle("open", isOpen);
  $("shade").hidden = !isOpen;
  $("menu").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) $("sidebar").querySelector("a").focus();
  else $("menu").focus();
}
$("menu").addEventListener("click", () => openSidebar(true));
$("shade").addEventListener("click", () => openSidebar(false));
$("sidebar").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("shade").hidden) openSidebar(false);
});
