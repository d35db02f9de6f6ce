"""A message of the gateway as the parts that Discord takes, each with its files and buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adapters.discord.render import TextFile, preview, render
from adapters.discord.split import MAX_CHARS, split
from gateway.errors import PermanentSendError
from gateway.messages import Attachment, OutboundMessage

MAX_FILE_BYTES = 10 * 1024 * 1024  # of one file, without a boosted server
MAX_REQUEST_BYTES = 24 * 1024 * 1024  # Discord's 25 MiB, less the form around the files
_FILES_AT_ONCE = 10

first_look = preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message of Discord's."""

    content: str
    files: Sequence[tuple[str, bytes]] = ()
    buttons: Sequence[tuple[str, str]] = ()


async def parts(message: OutboundMessage, *, has_files: bool = True) -> list[Part]:
    """The parts, one at least; files and buttons come with the last of the text.

    Args:
        has_files: False where Discord takes no files: what would be one follows as text, an attachment is named. What
            comes before the files is the same either way.

    Raises:
        PermanentSendError: there is nothing to send.
    """
    rendered = render(message.text)
    files = [(file.filename, file.content.encode()) for file in rendered.files]
    missing = []
    for attachment in message.attachments:
        content = await _content(attachment)
        if content is None:
            missing.append(attachment.filename)
        else:
            files.append((attachment.filename, content))
    text = rendered.text + (f"\n\n{_not_attached(missing)}" if missing else "")
    found = [Part(content=piece.content) for piece in split(text) if piece.content.strip()]
    if files and has_files:
        first, *others = _batches(files)
        last = found.pop() if found else Part(content="")
        found += [replace(last, files=first), *(Part(content="", files=batch) for batch in others)]
    elif files:
        names = [attachment.filename for attachment in message.attachments if attachment.filename not in missing]
        found = _without_files(found, rendered.files, names)
    if not found:
        raise PermanentSendError("the message has no text")
    if message.actions:
        found[-1] = replace(found[-1], buttons=[(action.id, action.label) for action in message.actions])
    return found


def _without_files(found: list[Part], texts: Sequence[TextFile], names: Sequence[str]) -> list[Part]:
    parts = [*found, *(Part(content=piece.content) for text in texts for piece in split(text.inline))]
    if not names:
        return parts
    note = _not_attached(names)
    if parts and len(parts[-1].content) + len(note) < MAX_CHARS:
        return [*parts[:-1], replace(parts[-1], content=f"{parts[-1].content}\n{note}")]
    return [*parts, *(Part(content=piece.content) for piece in split(note))]


def _not_attached(names: Sequence[str]) -> str:
    return f"(could not be attached: {', '.join(names)})"


def _batches(files: Sequence[tuple[str, bytes]]) -> list[list[tuple[str, bytes]]]:
    """As many files in one message as Discord takes."""
    batches: list[list[tuple[str, bytes]]] = []
    size_bytes = 0
    for name, content in files:
        if not batches or len(batches[-1]) == _FILES_AT_ONCE or size_bytes + len(content) > MAX_REQUEST_BYTES:
            batches.append([])
            size_bytes = 0
        batches[-1].append((name, content))
        size_bytes += len(content)
    return batches


async def _content(attachment: Attachment) -> bytes | None:
    """None: it is not there, or too large."""

    def read() -> bytes | None:
        path = Path(attachment.ref)
        try:
            return path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
        except OSError:
            return None

    return await asyncio.to_thread(read)
