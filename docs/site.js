// What the theme leaves out for keyboards and screen readers (axe: aria-required-attr, landmark-unique,
// scrollable-region-focusable, empty-table-header).
for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
for (const [drawer, name] of [["sidebar", "All pages"], ["toc", "This page"]]) {
  document.querySelector(`aside.${drawer}-drawer`)?.setAttribute("aria-label", name);
}
const focusable = new ResizeObserver((changed) => {
  for (const { target } of changed) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});
for (const wide of document.querySelectorAll("pre, .table-wrapper")) focusable.observe(wide);
for (const corner of document.querySelectorAll("th")) {
  if (!corner.textContent.trim()) corner.replaceWith(document.createElement("td"));
}
