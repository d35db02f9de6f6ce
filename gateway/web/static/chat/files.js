// Files that go with a message: chosen, pasted, or dropped anywhere on the page; pictures are shown before they are sent.

import { $, button, complain, element, page } from "./page.js";
import { filesKeyOf, kept } from "./kept.js";
import { goOn } from "./outbox.js";

const THUMB_PIXELS = 128; // twice what is shown, for sharp screens
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const maxBytes = Number(page.maxFileBytes);
const maxFiles = Number(page.maxFiles);

let files = [];
let isReading = false;

export const chosen = () => files;
export const isReadingFiles = () => isReading;

export function takeFiles() {
  const taken = files;
  files = [];
  showFiles();
  return taken;
}

export function restoreFiles() {
  files = JSON.parse(kept.get(filesKeyOf(page.conversation)) ?? "[]");
  kept.remove(filesKeyOf(page.conversation));
  showFiles();
}

function showFiles() {
  $("files").replaceChildren(...files.map((file) => {
    const drop = button("Remove", () => {
      files = files.filter((one) => one !== file);
      showFiles();
      $("text").focus();
      goOn();
    });
    drop.setAttribute("aria-label", `Remove ${file.filename}`);
    const item = element("li", "", element("span", "", file.filename), " ", drop);
    if (PICTURES.includes(file.mediaType)) showThumb(item, file);
    return item;
  }));
}

// Drawn here, so that the policy needs to allow no pictures but our own.
async function showThumb(item, file) {
  try {
    const bytes = Uint8Array.from(atob(file.data), (sign) => sign.charCodeAt(0));
    const picture = await createImageBitmap(new Blob([bytes], { type: file.mediaType }));
    const canvas = element("canvas", "thumb");
    const scale = Math.min(1, THUMB_PIXELS / Math.max(picture.width, picture.height));
    canvas.width = Math.max(1, Math.round(picture.width * scale));
    canvas.height = Math.max(1, Math.round(picture.height * scale));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", file.filename);
    item.classList.add("picture");
    item.prepend(canvas);
  } catch { /* no picture that this browser knows: its name is shown */ }
}

const dataOf = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

function problemOf(added) {
  const sizeBytes = [...files.map((file) => file.data.length * 0.75), ...added.map((file) => file.size)].reduce((a, b) => a + b, 0);
  const mib = (bytes) => (bytes / 1048576).toFixed(1).replace(/\.0$/, "");
  const problems = [];
  if (sizeBytes > maxBytes) {
    problems.push(`All files of a message together may have ${mib(maxBytes)} MiB; these would have ${mib(sizeBytes)} MiB.`);
  }
  if (files.length + added.length > maxFiles) {
    problems.push(`A message may have ${maxFiles} files; these would be ${files.length + added.length}.`);
  }
  return problems.length ? `${problems.join(" ")} Send fewer at once.` : "";
}

async function addFiles(added) {
  const problem = problemOf(added);
  complain(problem);
  if (problem) return;
  isReading = true;
  for (const file of added) {
    try {
      const mediaType = /^[\w.+-]+\/[\w.+-]+$/.test(file.type) ? file.type : "application/octet-stream";
      files.push({ filename: file.name || "pasted", mediaType, data: await dataOf(file) });
    } catch {
      complain(`${file.name} could not be read. A folder cannot be sent; send its files.`);
    }
  }
  isReading = false;
  showFiles();
  $("text").focus();
  goOn();
}

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
const showZone = (isShown) => { $("dropping").hidden = !isShown; };
let depth = 0; // of elements that the file is held over

document.addEventListener("paste", (event) => {
  const pasted = [...(event.clipboardData?.files ?? [])];
  const field = event.target.closest?.("input, textarea");
  if (!pasted.length || (field && field !== $("text"))) return;
  event.preventDefault();
  addFiles(pasted);
});
document.addEventListener("dragenter", (event) => { if (hasFiles(event)) { depth += 1; showZone(true); } });
document.addEventListener("dragleave", (event) => {
  if (!hasFiles(event)) return;
  depth = Math.max(0, depth - 1);
  showZone(depth > 0);
});
document.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  depth = 0;
  showZone(false);
  if (!hasFiles(event)) return;
  event.preventDefault();
  addFiles([...event.dataTransfer.files]);
});
$("file").addEventListener("change", () => { addFiles([...$("file").files]); $("file").value = ""; });
