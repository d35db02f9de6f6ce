"""The Dockerfile as its instructions."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = ROOT / "deploy" / "Dockerfile"

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """Each with what follows it, continued lines joined, without comments."""
    text = "\n".join(line for line in PATH.read_text().splitlines() if not line.lstrip().startswith("#"))
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.partition(" ")[0].upper(), line.partition(" ")[2].strip()) for line in lines]


def copied() -> set[str]:
    """The files and directories of the repository that the image is made of."""
    copies = [text for name, text in instructions() if name == "COPY" and "--from" not in text]
    return {word for text in copies for word in text.split()[:-1]}
