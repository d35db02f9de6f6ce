"""The memory section of the system prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from gateway.config.live import LiveConfig
from gateway.memory.prompt_excerpt import Filler
from gateway.protocols import MemoryContext

MAX_CHARS = 20_000
_MARKER = "[...truncated]"
_PROFILE = "## About You"
_MEMORY = "## Memory"
_HEADINGS_CHARS = 64  # more than they take


Fill = Callable[[str, int], str | None]
"""Chooses of a text what fits into so many characters; None where nothing does."""


class MemorySection:
    """Makes the section of what is remembered and what is asked, as the configuration is at that moment."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._filler = Filler()

    async def render(self, context: MemoryContext, question: str) -> str | None:
        """The section; None where nothing is remembered."""
        memory = self._config.current.memory
        chars = len(context.user_memory or "") + len(context.project_memory or "") + _HEADINGS_CHARS
        if memory.traces.recall == "tail" or chars <= memory.max_chars:
            return render_memory(context, memory.max_chars)

        def fill(text: str, room_chars: int) -> str | None:
            return self._filler.fill(text, question, room_chars, datetime.now(UTC).date())

        return await asyncio.to_thread(render_memory, context, memory.max_chars, fill=fill)


def render_memory(context: MemoryContext | None, max_chars: int = MAX_CHARS, *, fill: Fill | None = None) -> str | None:
    """Headings and texts, never longer than `max_chars`; None where there is nothing to say.

    Of a project's memory that does not fit `fill` chooses; without it the tail is kept. The profile is cut only after
    nothing of the memory is left to cut.
    """
    if context is None:
        return None
    profile = (context.user_memory or "").strip()
    memory = (context.project_memory or "").strip()
    sections = [f"{_PROFILE}\n\n{profile}"] if profile else []
    if not memory:
        return _fit(_PROFILE, profile, max_chars) if profile else None
    whole = "\n\n".join([*sections, f"{_MEMORY}\n\n{memory}"])
    if len(whole) <= max_chars:
        return whole
    room = max_chars - sum(len(section) + 2 for section in sections)
    chosen = None if fill is None else fill(memory, room - len(_MEMORY) - 2)
    tail = _fit(_MEMORY, memory, room) if chosen is None else f"{_MEMORY}\n\n{chosen}"
    if tail is not None:
        return "\n\n".join([*sections, tail])
    return _fit(_PROFILE, profile, max_chars) if profile else None


def _fit(heading: str, text: str, max_chars: int) -> str | None:
    """A section of at most `max_chars`, with the tail of its text; None where not one character fits."""
    whole = f"{heading}\n\n{text}"
    if len(whole) <= max_chars:
        return whole
    head = f"{heading}\n\n{_MARKER}\n"
    room = max_chars - len(head)
    if room <= 0:
        return None
    start = len(text) - room
    line = text.find("\n", start - 1) + 1
    tail = text[line:] if line else ""
    return head + (tail.lstrip("\n") or text[start:])
