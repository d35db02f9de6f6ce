"""Skills as files, as people write them."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
---
name: {name}
description: {description}
---

# Packing

Fold, then roll.
"""


def text(name: str = "packing", description: str = "Packs a suitcase.") -> str:
    return GOOD.format(name=name, description=description)


def write(place: Path, name: str = "packing", **files: str) -> Path:
    """A skill in a place; `files` by their names with `__` for `/`, and `_dot_` for `.`."""
    root = place / name
    root.mkdir(parents=True, exist_ok=True)
    (root / "SKILL.md").write_text(text(name))
    for file, content in files.items():
        path = root / file.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root
