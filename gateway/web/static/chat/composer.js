// The message box: its height, its limit, the commands that complete it, and its button, which sends or stops.

import { $, complain, element, page } from "./page.js";
import { takeFiles } from "./files.js";
import { draftKey, kept } from "./kept.js";
import { post } from "./outbox.js";
import { state } from "./said.js";

const LONG_CHARS = 5000;
const maxTextChars = Number(page.maxTextChars);
const commands = JSON.parse(page.commands);
const text = $("text");
const hints = $("hints");
const isTouch = matchMedia("(hover: none)").matches;
const canStop = commands.some((command) => command.name === "stop");
let selected = 0;

const showsStop = () => state.isBusy && canStop && !text.value.trim();
const isTooLong = (words) => words.length > maxTextChars && [...words].length > maxTextChars; // an emoji is one
const sayLimit = (words) =>
  complain(words && `${words} A message has ${maxTextChars.toLocaleString()} characters at most; send it in parts.`);

export function updateSendButton() {
  const send = $("send");
  const isStop = showsStop();
  send.disabled = !isStop && !text.value.trim();
  send.classList.toggle("stop", isStop);
  send.setAttribute("aria-label", isStop ? "Stop the answer" : "Send");
}

export function onInput() {
  fitHeight();
  if (text.value) kept.set(draftKey, text.value);
  else kept.remove(draftKey);
  sayLimit(isTooLong(text.value) ? "This is too long." : "");
  updateSendButton();
  showHints();
}

export function takeBack(words) {
  text.value = words + (text.value ? `\n${text.value}` : "");
  onInput();
  text.focus();
}

export function restoreDraft() {
  text.value = kept.get(draftKey) ?? text.value;
  onInput();
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
  sayLimit(`What you pasted is too long (${pasted.length.toLocaleString()} characters) and was left out.`);
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

// ---- who answers -----------------------------------------------------------------------------------------------------

$("personality").addEventListener("change", () => {
  const chosen = $("personality").selectedOptions[0];
  const isOffline = "offline" in chosen.dataset;
  $("model").textContent = chosen.dataset.model;
  $("model").hidden = isOffline;
  $("offline").hidden = !isOffline;
  if (page.events) post(`/personality ${chosen.value}`);
});
