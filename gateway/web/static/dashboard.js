// What the dashboard cannot do without a script, and does better with one: live parts, and a warning before typed
// text is left behind. Every page works without it.

htmx.config.historyCacheSize = 0; // no page of ours is kept in the browser's storage

/* ---- live parts: the server says what changed, and each part that is about it is fetched anew ---- */

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
      setTimeout(listenIfSeen, 5000);
    }
  };
}

// A browser has six connections for one host, so a page that nobody looks at gives its own back.
function listenIfSeen() {
  if (document.visibilityState === "visible" && document.querySelector("[data-live]")) return listen();
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", listenIfSeen);
window.addEventListener("pagehide", () => source?.close());
listenIfSeen();

// A part in which somebody is typing, or has the keyboard's focus in a field, is left alone until they are done.
body.addEventListener("htmx:beforeRequest", (event) => {
  const field = document.activeElement?.closest("input, textarea, select");
  if (field && event.detail.elt.hasAttribute("data-live") && event.detail.elt.contains(field)) event.preventDefault();
});

body.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) document.getElementById("expired").hidden = false;
});

/* ---- a form with changes asks before it is left ---- */

let isLeavingRight = false;
const isChanged = (field) => field.defaultValue !== undefined && field.value !== field.defaultValue;
document.addEventListener("submit", () => { isLeavingRight = true; });
window.addEventListener("beforeunload", (event) => {
  const fields = [...document.querySelectorAll("form[data-keep] textarea, form[data-keep] input[type=text]")];
  if (!isLeavingRight && fields.some(isChanged)) event.preventDefault();
});

/* ---- a choice takes effect at once; without a script a button does it ---- */

document.addEventListener("change", (event) => {
  if (event.target.form?.hasAttribute("data-auto")) event.target.form.requestSubmit();
});
