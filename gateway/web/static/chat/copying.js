// Buttons that copy code, and whole answers.

import { button, element } from "./page.js";

const SHOWN_MS = 1500;

function copyButton(words, what) {
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(words);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, SHOWN_MS);
  });
  copy.className = "copy";
  if (what) copy.title = what;
  return copy;
}

export function addCopyButtons(article) {
  if (article.dataset.text === undefined || !navigator.clipboard) return; // it is not there on plain HTTP
  for (const pre of article.querySelectorAll(".text pre")) {
    const figure = pre.closest("figure") ?? element("figure");
    if (!pre.closest("figure")) {
      pre.replaceWith(figure);
      figure.append(element("figcaption"), pre);
    }
    figure.querySelector("figcaption").append(copyButton(pre.textContent, "Copy the code"));
  }
  article.querySelector(".meta").append(" ", copyButton(article.dataset.text, "Copy the answer"));
}
