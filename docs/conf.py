# ruff: noqa: INP001 (what Sphinx reads, not a package)
"""The pages as a site: `make docs` builds it into `build/docs`, without a network.

The pages are written for readers of the repository, so nothing in them is made for Sphinx. The order of the site is
that of the lists in `docs/index.md`: each is one chapter of the navigation.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gateway import __version__  # noqa: E402 (the path above leads there)

project = "Ethos Gateway"
author = "the authors of Ethos Gateway"
release = __version__
extensions = ["myst_parser"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**.md", "gateway/DESIGN.md", "adapters/ADDING_AN_ADAPTER.md"]
exclude_patterns = [".*", "build", "tests", "benchmarks", "deploy"]
nitpicky = True
smartquotes = False
"""Quotation marks stay as they are written: they may be part of a command."""

myst_heading_anchors = 6
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]
"""The first heading of a page may be of any level."""

html_theme = "furo"
html_title = project
html_favicon = "../gateway/web/static/icon.svg"
html_logo = "../gateway/web/static/icon.svg"
html_copy_source = False
html_static_path = ["site.css", "site.js"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {"color-brand-primary": "#0f766e", "color-brand-content": "#0f766e"},
    "dark_css_variables": {"color-brand-primary": "#5eead4", "color-brand-content": "#5eead4"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

_CHAPTER = re.compile(r"^## (.+)\n\n((?:- .+\n)+)", re.MULTILINE)
_LINK = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\)", re.MULTILINE)


def chapters(index: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The lists of `docs/index.md`: each with its title, and its pages by title and name, such as `docs/models`."""
    return [
        (title, [(label, _page(to)) for label, to in _LINK.findall(rows)]) for title, rows in _CHAPTER.findall(index)
    ]


def _page(target: str) -> str:
    parts: list[str] = ["docs"]
    for part in PurePosixPath(target).with_suffix("").parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _with_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Make the navigation of the lists of pages, so that their order is said once."""
    if name != root_doc:
        return
    for title, pages in chapters(source[0]):
        entries = "\n".join(f"{label} </{page}>" for label, page in pages)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"


def _without_folders(app: Sphinx, page: nodes.document) -> None:
    """A link to a folder of the repository has no page here: its text stays."""
    folder = (ROOT / app.env.docname).parent
    for link in list(page.findall(pending_xref)):
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def _lead_in(app: Sphinx, _error: Exception | None) -> None:
    """Have the folder open with the list of pages."""
    (Path(app.outdir) / "index.html").write_text(
        f'<!doctype html><title>{project}</title><meta http-equiv="refresh" content="0; url={root_doc}.html">',
        encoding="utf-8",
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _with_navigation)
    app.connect("doctree-read", _without_folders)
    app.connect("build-finished", _lead_in)
    return {"parallel_read_safe": True}
