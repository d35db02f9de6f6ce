// What all parts of the chat need: the page's own data, and how elements are made.
//
// The page has one element with these data: `conversation`, its name in this browser's storage; `events`, the address of
// its stream, and `after`, the place of the last message that the page came with; `messages`, where what is said goes,
// and `fields`, sent with it; `begun`, below which a conversation has its address; `new`, where one begins; `commands`;
// `max-text-chars`, `max-file-bytes` and `max-files`.

export const $ = (id) => document.getElementById(id);
export const page = document.querySelector("[data-messages]").dataset;

export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function button(label, onClick) {
  const made = element("button", "", label);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID(); // not there on plain HTTP from another machine
  const hex = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export function rendered(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // rendered by the gateway, which lets no HTML of the model through; the policy allows no script
  return template.content;
}

export function complain(words) {
  $("complaint").hidden = !words;
  if (words) $("complaint").textContent = words;
}
