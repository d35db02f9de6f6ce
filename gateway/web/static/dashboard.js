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

// A browser has six connections for one host, so a hidden page closes its own.
function listenIfSeen() {
  if (document.visibilityState === "visible" && document.querySelector("[data-live]")) return listen();
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", listenIfSeen);
window.addEventListener("pagehide", () => source?.close());
listenIfSeen();

// A part in which somebody is typing, has the keyboard's focus in a field, or has chosen something, is left alone until
// they are done.
const isChosen = (box) => box.checked !== box.defaultChecked;
body.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if (!part.hasAttribute("data-live")) return;
  const field = document.activeElement?.closest("input, textarea, select");
  const isInUse = field && part.contains(field);
  if (isInUse || [...part.querySelectorAll("input[type=checkbox]")].some(isChosen)) event.preventDefault();
});

body.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) document.getElementById("expired").hidden = false;
});

/* ---- a gateway that restarts: back to the settings once another process answers ---- */

const restarting = document.querySelector("[data-restarting]");
const isBack = async () => {
  try {
    const health = await (await fetch("/health")).json();
    return Date.parse(health.started_at) !== Date.parse(restarting.dataset.restarting);
  } catch {
    return false;  // not yet
  }
};
const goBack = async () => await isBack() ? location.replace("/dashboard/settings") : setTimeout(goBack, 500);
if (restarting) goBack();

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
  const {form, checked} = event.target;
  if (form?.hasAttribute("data-auto")) form.requestSubmit();
  if (event.target.hasAttribute("data-all")) {
    for (const field of form.elements) if (field.type === "checkbox") field.checked = checked;
  }
});
