"""What is known of two people who turn out to be one: how their notes are merged, and separated again.

Paragraph by paragraph, each once; a paragraph is what stands between blank lines. Pure: no files, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from gateway.people.linking.links import Link

_BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


class PersonalNotes(Protocol):
    """The documents that belong to a person. Every method may be repeated after a crash."""

    async def unite(self, link: Link) -> None:
        """Keep both people's documents as they are, then add to the survivor's what only the absorbed one's have.

        Raises:
            FileError: not done now; try again.
        """

    async def part(self, link: Link, successors: Sequence[str]) -> bool:
        """Take out again what came in with the link.

        A document that is still as the link left it becomes, byte for byte, what it was before. From another one the
        paragraphs that the link brought are taken; all else stays.

        Args:
            link: that ends.
            successors: the user ids whose documents may have what came in: the survivor, and who absorbed it since.

        Returns:
            Whether something else has changed since the link, so that what was added stays with the successors.

        Raises:
            FileError: not done now; try again.
        """


def paragraphs(text: str) -> list[str]:
    """The paragraphs, without the blank lines around them."""
    return [part for block in _BLANK_LINES.split(text) if (part := block.strip("\n").rstrip()).strip()]


def only_in(one: str, other: str) -> list[str]:
    """The paragraphs of one text that the other does not have, each once; indented or not is the same."""
    known = {part.strip() for part in paragraphs(other)}
    found = {part.strip(): part for part in reversed(paragraphs(one)) if part.strip() not in known}
    return [*reversed(found.values())]


def has_any(text: str, wanted: Sequence[str]) -> bool:
    """Whether one of these paragraphs is in the text."""
    return not {part.strip() for part in wanted}.isdisjoint(part.strip() for part in paragraphs(text))


def without(text: str, unwanted: Sequence[str]) -> str:
    """The text without these paragraphs."""
    removed = {part.strip() for part in unwanted}
    kept = [part for part in paragraphs(text) if part.strip() not in removed]
    return "\n\n".join(kept) + "\n" if kept else ""
