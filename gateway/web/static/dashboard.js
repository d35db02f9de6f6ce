// What the dashboard cannot do without a script, and does better with one: live parts, and a warning before typed
// text is left behind. Every page works without it.

htmx.config.historyCacheSize = 0; // no page of ours is kept in the browser's storage

/* ---- live parts: the server says what changed, and each part that shows it is fetched again ---- */

const body = document.body;
const state = document.getElementById("live");
let moment = body.dataset.moment; // up to which this page knows everything; the server tells what came after
let source = null;

function tell(word) {
  state.dataset.state = word;
  state.textContent = state.dataset[word];
}

function listen() {
  if (source) return;
  source = new EventSource(`/dashboard/events?after=${encodeURIComponent(moment)}`);
  source.onopen = () => tell("on");
  source.addEventListener("changed", (event) => {
    moment = event.lastEventId;
    for (const topic of event.data.split(" ")) body.dispatchEvent(new CustomEvent(`live-${topic}`));
  });
  source.onerror = () => {
    tell("off");
    if (source.readyState === EventSource.CLOSED) {
      source = null;
      lookForLogin();
      setTimeout(listenIfSeen, 5000);
    }
  };
}

// A stream that is refused does not say why: the session may have been ended elsewhere.
async function lookForLogin() {
  const start = await fetch("/dashboard/", {headers: {accept: "application/json"}, redirect: "manual"}).catch(() => null);
  if (start?.status === 401) document.getElementById("expired").hidden = false;
}

// A browser has six connections for one host, so a hidden page closes its own; what is polled needs none.
function listenIfSeen() {
  if (document.visibilityState === "visible" && document.querySelector("[data-live]:not([data-polled])")) return listen();
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", listenIfSeen);
window.addEventListener("pagehide", () => source?.close());
listenIfSeen();

// A part in which somebody is typing, has the keyboard's focus in a field, or has chosen something, is left alone until
// they are done.
const isChosen = (box) => box.checked !== box.defaultChecked;
function isInUse(part) {
  const field = document.activeElement?.closest("input, textarea, select");
  const isTyping = (field && part.contains(field)) || part.querySelector("details[open] form"); // or is about to
  return isTyping || [...part.querySelectorAll("input[type=checkbox]")].some(isChosen);
}
const leaveAlone = (event) => {
  if (event.detail.elt.hasAttribute("data-live") && isInUse(event.detail.elt)) event.preventDefault();
};
body.addEventListener("htmx:beforeRequest", leaveAlone);
body.addEventListener("htmx:beforeSwap", leaveAlone); // it may have begun since it was asked for

body.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) document.getElementById("expired").hidden = false;
});

/* ---- a gateway that restarts: this page stays, and leads back once the other process answers ---- */

const restarting = document.querySelector("form[data-restart]");
const isBack = async () => {
  try {
    const health = await (await fetch("/health", {signal: AbortSignal.timeout(3000)})).json();
    return Date.parse(health.started_at) !== Date.parse(restarting.dataset.restart);
  } catch {
    return false;  // not yet
  }
};
const goBack = async () => await isBack() ? location.replace("/dashboard/settings") : setTimeout(goBack, 500);
restarting?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = new URLSearchParams(new FormData(restarting));
  const answer = await fetch(restarting.action, {method: "POST", body, redirect: "manual"});
  if (!answer.ok) return location.replace("/dashboard/settings");  // which says why not
  restarting.hidden = true;
  document.getElementById("restarting").hidden = false;
  goBack();
});

/* ---- a form with changes asks before it is left ---- */

let isLeavingRight = false;
const isChanged = (field) => field.defaultValue !== undefined && field.value !== field.defaultValue;
document.addEventListener("submit", () => { isLeavingRight = true; });
window.addEventListener("beforeunload", (event) => {
  const fields = [...document.querySelectorAll("form[data-keep] textarea, form[data-keep] input:is([type=text], [type=number])")];
  if (!isLeavingRight && fields.some(isChanged)) event.preventDefault();
});

/* ---- a choice takes effect at once; without a script a button does it ---- */

// What was chosen before this script was loaded counts too. The forms say autocomplete="off", so that a browser that
// goes back shows what the page shows, and not what was chosen on it.
for (const form of document.querySelectorAll("form[data-auto]")) {
  const shown = (list) => [...list.options].find((option) => option.defaultSelected) ?? list.options[0];
  if ([...form.querySelectorAll("select")].some((list) => list.selectedOptions[0] !== shown(list))) form.requestSubmit();
}

document.addEventListener("change", (event) => {
  const {form, checked, type} = event.target;
  if (form?.hasAttribute("data-auto") && type !== "search") form.requestSubmit();
  if (event.target.hasAttribute("data-all")) {
    for (const field of form.elements) if (field.type === "checkbox") field.checked = checked;
  }
});

/* ---- copying what a field shows ---- */

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const field = document.getElementById(button.dataset.copy);
  field.select();
  await navigator.clipboard?.writeText(field.value); // on plain HTTP there is none, and the text is selected
  button.textContent = navigator.clipboard ? "Copied" : "Press Ctrl and C";
});
