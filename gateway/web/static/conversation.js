// The chat. What is shown of a conversation comes from its event stream; what is typed is kept in this browser until the
// gateway says that it has it. A conversation that begins has no stream: its first message leads to the one it began.
//
// The page has one element with these data: `conversation`, its name in this browser's storage; `events`, the address of
// its stream, and `after`, the place of the last message that the page came with; `messages`, where what is said goes,
// and `fields`, sent with it; `begun`, below which a conversation has its address; `new`, where one begins; `commands`;
// `max-text-chars` and `max-file-bytes`.

const $ = (id) => document.getElementById(id);
const page = document.querySelector("[data-messages]").dataset;
const { conversation } = page;
const maxTextChars = Number(page.maxTextChars);
const commands = JSON.parse(page.commands);

const RETRY_MS = [500, 1000, 2000, 5000, 10000, 30000];
const SILENCE_MS = 40000; // the gateway gives a sign of life every 15 s
const HIDDEN_MS = 5 * 60000; // a browser opens six streams at most; a hidden tab closes its own
const TYPING_MS = 8000;
const LONG_CHARS = 5000;

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function button(label, onClick) {
  const made = element("button", "", label);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

function newId() {
  if (crypto.randomUUID) return crypto.randomUUID(); // not there on plain HTTP from another machine
  const hex = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

// ---- kept in this browser --------------------------------------------------------------------------------------------

const kept = {
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
const draftKeyOf = (name) => `ethos:draft:${name}`;
const outboxPrefixOf = (name) => `ethos:outbox:${name}:`;
const filesKeyOf = (name) => `ethos:files:${name}`; // only on the way to the conversation that begins
const draftKey = draftKeyOf(conversation);
const outboxPrefix = outboxPrefixOf(conversation);

// ---- the scroll ------------------------------------------------------------------------------------------------------

const scroll = $("scroll");
let isAtEnd = Boolean(page.events); // a new conversation begins with what there is to choose from
scroll.addEventListener("scroll", () => {
  isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  $("latest").hidden = isAtEnd || !page.events;
}, { passive: true });
const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };
const followEnd = () => { if (isAtEnd) toEnd(); else $("latest").hidden = false; };
$("latest").addEventListener("click", () => { isAtEnd = true; toEnd(); $("text").focus(); });
new ResizeObserver(() => { if (isAtEnd) toEnd(); }).observe(scroll);

// ---- messages --------------------------------------------------------------------------------------------------------

const shown = new Set();
const previews = new Map();
const pending = new Map();
const names = new Map(); // what the log calls a message of ours
let lastDay = "";
let isLive = false;
let unseen = 0;

const timeOf = (date) => date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

function dayMark(date) {
  const day = date.toDateString();
  if (day === lastDay) return [];
  lastDay = day;
  const isToday = day === new Date().toDateString();
  const words = isToday ? "Today" : date.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", year: "numeric" });
  return [element("div", "day", words)];
}

function rendered(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // rendered by the gateway, which lets no HTML of the model through; the policy allows no script
  return template.content;
}

function copyButton(words) {
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(words);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  copy.className = "copy";
  return copy;
}

function addCopyButtons(article) {
  for (const pre of article.querySelectorAll("pre")) {
    const block = element("div", "block");
    pre.replaceWith(block);
    block.append(pre, copyButton(pre.textContent));
  }
}

function articleOf(author, name) {
  const article = element("article", author, element("div", "text"));
  article.setAttribute("aria-label", name);
  article.firstChild.dir = "auto";
  return article;
}

// A message as the gateway renders it, with what only a script can do.
function adopt(article) {
  shown.add(article.dataset.key);
  const time = article.querySelector("time");
  const at = new Date(time.dateTime);
  article.before(...dayMark(at));
  time.textContent = timeOf(at);
  for (const choice of article.querySelectorAll(".choices button")) {
    choice.addEventListener("click", (event) => {
      event.preventDefault(); // without a script it is a form's button
      post(choice.value);
      text.focus();
    });
  }
  if (article.dataset.text === undefined || !navigator.clipboard) return; // it is not there on plain HTTP
  addCopyButtons(article);
  article.querySelector(".meta").append(" ", copyButton(article.dataset.text));
}

function showMessage({ id, author, html }) {
  const key = `${author}:${id}`;
  if (shown.has(key)) return;
  const isAgent = author === "agent";
  if (isAgent) {
    dropPreview(id);
    setBusy(false);
  }
  if (!html) { // what it answers was stopped
    shown.add(key);
    return;
  }
  const article = rendered(html).firstElementChild;
  $("log").append(article);
  adopt(article);
  $("welcome").hidden = true;
  if (isAgent) {
    if (isLive && document.hidden) showUnseen(unseen + 1);
  } else {
    const words = article.querySelector(".text").textContent;
    forget(names.get(id) ?? id);
    hideTwin(words);
    nameConversation(words);
  }
  followEnd();
}

function showPreview({ id, html }) {
  if (shown.has(`agent:${id}`)) return;
  if (!html) { dropPreview(id); return; }
  if (!previews.has(id)) {
    previews.set(id, articleOf("agent", "Agent"));
    $("previews").append(previews.get(id));
    $("welcome").hidden = true;
  }
  previews.get(id).querySelector(".text").replaceChildren(rendered(html));
  setBusy(true);
  followEnd();
}

function dropPreview(id) {
  previews.get(id)?.remove();
  previews.delete(id);
  showTyping();
}

function reset() {
  shown.clear();
  for (const id of [...previews.keys()]) dropPreview(id);
  $("log").replaceChildren();
  $("earlier").hidden = false; // the stream begins with the newest messages
  lastDay = "";
  cursor = null;
}

function showUnseen(count) {
  unseen = count;
  const name = document.querySelector(".head h1")?.textContent.trim();
  document.title = (count ? `(${count}) ` : "") + (name ? `${name} · Ethos` : "Ethos");
}

function nameConversation(text) {
  const title = text.trim().replace(/\s+/g, " ").slice(0, 60);
  for (const place of document.querySelectorAll("#conversations a[aria-current], .head h1, .trail [aria-current]")) {
    if (place.textContent === "New conversation") place.textContent = title;
  }
  showUnseen(unseen);
}

// ---- whether an answer is on its way ---------------------------------------------------------------------------------

let isBusy = false;
let typingTimer = 0;

function setBusy(value) {
  isBusy = value;
  clearTimeout(typingTimer);
  if (value) typingTimer = setTimeout(() => setBusy(false), TYPING_MS);
  showTyping();
}

// A tool may work for long; its name stands beside the sign that an answer is on its way.
function showTool({ tool, state }) {
  $("tool").textContent = state === "began" ? `Uses ${tool}` : "";
  setBusy(true);
}

function showTyping() {
  const wasHidden = $("typing").hidden;
  $("typing").hidden = !isBusy || previews.size > 0;
  if (wasHidden && !$("typing").hidden) followEnd();
  updateSendButton();
}

// ---- the event stream ------------------------------------------------------------------------------------------------

let cursor = page.after ?? null;
let listening = null; // the AbortController of the stream that is open
let isExpired = false;
let failures = 0;
let wakeUp = () => {};

function showConnection(state, words) {
  if (!$("connection")) return;
  $("connection").dataset.state = state;
  $("connection").firstElementChild.textContent = words;
}

function showExpired() {
  isExpired = true;
  showConnection("expired", "Logged out");
  $("expired").querySelector("a").href = "/login?next=" + encodeURIComponent(location.pathname);
  $("expired").hidden = false;
}

const handlers = {
  message: showMessage,
  preview: showPreview,
  typing: () => setBusy(true),
  tool: showTool,
  reset,
  live: () => {
    failures = 0;
    showConnection("connected", "Connected");
    if (!isLive) {
      isLive = true;
      $("welcome").hidden = shown.size + pending.size > 0;
      isAtEnd = true;
      toEnd();
    }
    flush();
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
    for (const id of [...previews.keys()]) dropPreview(id);
  }
}

async function listen() {
  while (!isExpired) {
    if (!isResting) await listenOnce();
    if (isExpired) return;
    showConnection("reconnecting", "Reconnecting");
    const waitMs = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
    await new Promise((resolve) => {
      wakeUp = resolve;
      if (!isResting) setTimeout(resolve, waitMs);
    });
  }
}

let isResting = false;
let hiddenTimer = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => { isResting = true; listening?.abort(); }, HIDDEN_MS);
    return;
  }
  isResting = false;
  showUnseen(0);
  wakeUp();
});
window.addEventListener("offline", () => listening?.abort());
window.addEventListener("online", () => { failures = 0; wakeUp(); flush(); });
window.addEventListener("pagehide", () => listening?.abort());
window.addEventListener("pageshow", (event) => { if (event.persisted) wakeUp(); });

// ---- sending ---------------------------------------------------------------------------------------------------------

let isFlushing = false;
let flushTimer = 0;
let flushFailures = 0;

function showPending(item) {
  const article = pending.get(item.id)?.article ?? articleOf("person", "You");
  article.hidden = false;
  article.className = item.refused ? "person failed" : item.isSent ? "person" : "person waiting";
  article.firstChild.textContent = [item.text, ...(item.attachments ?? []).map((file) => `📎 ${file.filename}`)].join("\n");
  const meta = element("p", "meta", item.refused ?? item.trouble ?? (item.isSent ? timeOf(new Date(item.at)) : "Sending"));
  if (item.refused) {
    meta.append(" ", button("Edit", () => { takeBack(item); }), " ", button("Discard", () => forget(item.id)));
  } else if (item.trouble) {
    meta.append(" ", button("Try now", () => flush()));
  }
  article.querySelector(".meta")?.remove();
  article.append(meta);
  if (!pending.has(item.id)) $("pending").append(article);
  pending.set(item.id, { ...item, article });
  $("welcome").hidden = true;
}

// The log has a message before its sender hears so, perhaps under another name: it is not shown twice meanwhile.
function hideTwin(words) {
  const twin = [...pending.values()].find((one) => one.isPosted && !one.article.hidden && one.text === words);
  if (twin) twin.article.hidden = true;
}

function forget(id) {
  const item = pending.get(id);
  item?.article.remove();
  pending.delete(id);
  for (const key of kept.keys()) if (key.startsWith(outboxPrefix) && key.endsWith(id)) kept.remove(key);
}

function takeBack(item) {
  forget(item.id);
  text.value = item.text + (text.value ? `\n${text.value}` : "");
  onInput();
  text.focus();
}

const keyOf = (item) => `${outboxPrefix}${String(item.at).padStart(15, "0")}:${item.id}`;

function post(words, attachments = []) {
  const item = { id: newId(), at: Date.now(), text: words, attachments, personality: $("personality")?.value };
  kept.set(keyOf(item), JSON.stringify(item)); // where it cannot be kept, this page still holds it
  showPending(item);
  isAtEnd = true;
  toEnd();
  flush();
}

async function flush() {
  if (isFlushing || isExpired) return;
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
        ...(begun ? { session: begun } : { personality: item.personality }),
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
  } catch { /* the network, or an answer that is not ours: both are worth another try */ }
  if (!pending.has(item.id)) return true; // the log had it before we heard of it
  for (const [name, id] of names) {
    if (id === item.id && shown.has(`person:${name}`)) { forget(item.id); flushFailures = 0; return true; }
  }
  if (response?.status === 202) {
    flushFailures = 0;
    kept.remove(keyOf(item));
    showPending({ ...item, trouble: undefined, isSent: true });
    setBusy(true);
    return true;
  }
  if (response?.status === 401 || response?.status === 403) { // the page is of a login that has ended
    showPending({ ...item, trouble: "Not sent: log in again." });
    showExpired();
    return false;
  }
  if (response && response.status >= 400 && response.status < 500) {
    const refused = { id: item.id, at: item.at, text: item.text, refused: `Not sent. ${problem}` };
    kept.set(keyOf(item), JSON.stringify(refused));
    showPending(refused);
    return true;
  }
  showPending({ ...item, trouble: `Not sent yet. ${problem}`.replace(/\.?$/, ".") });
  flushTimer = setTimeout(flush, RETRY_MS[Math.min(flushFailures++, RETRY_MS.length - 1)]);
  return false;
}

let begun = null; // the session that a message began here, until the page goes on to it

// On to it with what else was typed and chosen here; what this browser cannot keep that long is sent or removed first.
function goOn() {
  if (!begun || isReading || [...pending.values()].some((item) => kept.get(keyOf(item)) === null)) return false;
  if (files.length && !kept.set(filesKeyOf(begun), JSON.stringify(files))) {
    $("complaint").hidden = false;
    $("complaint").textContent = "Your message is sent. Send or remove these files, and this page goes on to the answer.";
    return false;
  }
  for (const key of kept.keys().filter((one) => one.startsWith(outboxPrefix))) {
    const item = kept.get(key);
    kept.remove(key); // first: there may be no room for it twice
    kept.set(outboxPrefixOf(begun) + key.slice(outboxPrefix.length), item);
  }
  if (text.value) kept.set(draftKeyOf(begun), text.value);
  kept.remove(draftKey);
  location.assign(page.begun + begun);
  return true;
}

function restoreOutbox() {
  for (const key of kept.keys().filter((one) => one.startsWith(outboxPrefix)).sort()) {
    try { showPending(JSON.parse(kept.get(key))); } catch { kept.remove(key); } // not written by us
  }
}

// ---- the message box -------------------------------------------------------------------------------------------------

const text = $("text");
const hints = $("hints");
const isTouch = matchMedia("(hover: none)").matches;
const canStop = commands.some((command) => command.name === "stop");
let selected = 0;

const showsStop = () => isBusy && canStop && !text.value.trim();

function updateSendButton() {
  const send = $("send");
  const isStop = showsStop();
  send.disabled = !isStop && !text.value.trim();
  send.classList.toggle("stop", isStop);
  send.setAttribute("aria-label", isStop ? "Stop the answer" : "Send");
}

function onInput() {
  fitHeight();
  if (text.value) kept.set(draftKey, text.value);
  else kept.remove(draftKey);
  complain(isTooLong(text.value) ? "This is too long." : "");
  updateSendButton();
  showHints();
}

const isTooLong = (words) => words.length > maxTextChars && [...words].length > maxTextChars; // an emoji is one

function complain(words) {
  $("complaint").hidden = !words;
  if (words) $("complaint").textContent = `${words} A message has ${maxTextChars.toLocaleString()} characters at most; send it in parts.`;
}

function fitHeight() {
  text.style.height = text.value.length > LONG_CHARS ? "40vh" : "auto"; // to measure megabytes takes seconds
  if (text.value.length <= LONG_CHARS) text.style.height = `${text.scrollHeight}px`;
}

// What may complete what is typed: commands, or what may follow one.
function matching() {
  const [, name, value] = /^\/([\w-]*)(?: ([\w-]*))?$/.exec(text.value) ?? [];
  if (name === undefined) return [];
  const found = commands.filter((command) => (value === undefined ? command.name.startsWith(name) : command.name === name));
  if (value === undefined) return found.map((one) => ({ words: `/${one.name} `, usage: usageOf(one), description: one.description }));
  const values = found.flatMap((command) => command.values).filter((one) => one.startsWith(value));
  return values.map((one) => ({ words: `/${name} ${one}`, usage: `/${name} ${one}`, description: "" }));
}

function showHints() {
  const found = matching();
  hints.hidden = found.length === 0;
  selected = Math.min(selected, Math.max(found.length - 1, 0));
  hints.replaceChildren(...found.map(({ words, usage, description }, index) => {
    const hint = element("li", "", element("b", "", usage), element("span", "", description));
    hint.id = `hint-${index}`;
    hint.setAttribute("role", "option");
    hint.setAttribute("aria-selected", String(index === selected));
    hint.addEventListener("mousedown", (event) => { event.preventDefault(); complete(words); });
    return hint;
  }));
  if (found.length) {
    text.setAttribute("aria-activedescendant", `hint-${selected}`);
    hints.children[selected].scrollIntoView({ block: "nearest" });
  } else text.removeAttribute("aria-activedescendant");
}

const usageOf = ({ name, usage }) => (usage.startsWith("/") ? usage : `/${name} ${usage.replace(name, "")}`.trim());

function complete(words) {
  text.value = words;
  selected = 0;
  onInput();
  text.focus();
}

function submit() {
  if (showsStop()) {
    post("/stop");
    return;
  }
  const words = text.value.trim();
  if (!words || isTooLong(words)) return;
  if (words === "/new") {
    kept.remove(draftKey);
    location.assign(page.new);
    return;
  }
  text.value = "";
  selected = 0;
  onInput();
  post(words, takeFiles());
}

text.addEventListener("input", () => { selected = 0; onInput(); });
text.addEventListener("paste", (event) => {
  const pasted = event.clipboardData.getData("text");
  if (!isTooLong(text.value + pasted)) return;
  event.preventDefault(); // a browser takes many seconds to lay megabytes out; what was copied is still in the clipboard
  complain(`What you pasted is too long (${pasted.length.toLocaleString()} characters) and was left out.`);
});
text.addEventListener("blur", () => { hints.hidden = true; });
text.addEventListener("focus", showHints);
text.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const found = hints.hidden ? [] : matching();
  if (found.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    selected = (selected + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
    showHints();
  } else if (found.length && (event.key === "Tab" || event.key === "Enter") && text.value !== found[selected].words.trim()) {
    event.preventDefault();
    complete(found[selected].words);
  } else if (event.key === "Escape") {
    hints.hidden = true;
  } else if (event.key === "Enter" && !event.shiftKey && !isTouch) {
    event.preventDefault();
    submit();
  }
});
$("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); text.focus(); });
for (const idea of document.querySelectorAll(".ideas button")) {
  idea.addEventListener("click", () => { text.value = idea.textContent; onInput(); text.focus(); });
}

// ---- files --------------------------------------------------------------------------------

let files = [];
let isReading = false;

function takeFiles() {
  const taken = files;
  files = [];
  showFiles();
  return taken;
}

function showFiles() {
  $("files").replaceChildren(...files.map((file) => {
    const drop = button("Remove", () => { files = files.filter((one) => one !== file); showFiles(); text.focus(); goOn(); });
    drop.setAttribute("aria-label", `Remove ${file.filename}`);
    return element("li", "", element("span", "", file.filename), " ", drop);
  }));
}

async function addFiles(chosen) {
  const maxBytes = Number(page.maxFileBytes);
  const sizeBytes = [...files.map((file) => file.data.length * 0.75), ...chosen.map((file) => file.size)].reduce((a, b) => a + b, 0);
  if (sizeBytes > maxBytes) {
    $("complaint").hidden = false;
    $("complaint").textContent = `All files of a message together may have ${Math.round(maxBytes / 1048576)} MiB. Send fewer at once.`;
    return;
  }
  isReading = true;
  for (const file of chosen) {
    const address = await new Promise((resolve) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.readAsDataURL(file);
    });
    const mediaType = /^[\w.+-]+\/[\w.+-]+$/.test(file.type) ? file.type : "application/octet-stream";
    files.push({ filename: file.name, mediaType, data: address.slice(address.indexOf(",") + 1) });
  }
  isReading = false;
  showFiles();
  text.focus();
  goOn();
}

// Files that are pasted or dropped are taken like those that are chosen.
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
text.addEventListener("paste", (event) => {
  const pasted = [...event.clipboardData.files];
  if (!pasted.length) return;
  event.preventDefault();
  addFiles(pasted);
});
document.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  addFiles([...event.dataTransfer.files]);
});
$("file").addEventListener("change", () => { addFiles([...$("file").files]); $("file").value = ""; });

showUnseen(0);

// ---- begin -----------------------------------------------------------------------------------------------------------

for (const article of document.querySelectorAll("[data-key]")) adopt(article);
text.value = kept.get(draftKey) ?? text.value;
files = JSON.parse(kept.get(filesKeyOf(conversation)) ?? "[]");
kept.remove(filesKeyOf(conversation));
showFiles();
onInput();
restoreOutbox();
if (page.events) listen();
else flush();
