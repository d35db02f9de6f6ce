// A message is edited where it stands; its new version is a page of its own.

import { $, button, element } from "./page.js";

const revise = $("revise");

async function send(link, place, words) {
  const fields = new FormData(revise);
  fields.set("turn", new URL(link.href).searchParams.get("turn"));
  fields.set("text", words);
  place.querySelector("p").textContent = "";
  const response = await fetch(revise.action, { method: "POST", headers: { accept: "text/html" }, body: new URLSearchParams(fields) })
    .catch(() => null);
  if (response?.redirected && new URL(response.url).searchParams.has("branched")) location.assign(response.url);
  else if (response?.status === 401) location.assign("/login?next=" + encodeURIComponent(location.pathname));
  else place.querySelector("p").textContent = response ? "It was not sent. Try again later." : "Not sent: the gateway cannot be reached.";
}

function edit(link) {
  const article = link.closest("article");
  const text = article.querySelector(".text");
  const area = element("textarea");
  area.value = text.textContent;
  area.setAttribute("aria-label", "Your message");
  area.dir = "auto";
  const close = () => { place.remove(); text.hidden = false; article.querySelector(".meta").hidden = false; link.focus(); };
  const place = element("form", "editing", area, element("p", "error"), element("div", "row"));
  const submit = element("button", "small primary", "Send");
  const cancel = button("Cancel", close);
  cancel.className = "small";
  place.querySelector("p").setAttribute("role", "alert");
  place.lastChild.append(submit, cancel);
  place.addEventListener("submit", (event) => {
    event.preventDefault();
    if (area.value.trim()) send(link, place, area.value);
  });
  area.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); place.requestSubmit(); }
  });
  text.hidden = true;
  article.querySelector(".meta").hidden = true;
  article.append(place);
  area.focus();
}

if (revise) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.edit");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    edit(link);
  });
}

// It is said once that this is another version.
if ($("branched")) history.replaceState(null, "", location.pathname);
