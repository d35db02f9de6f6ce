"""Files that come with a message: shown to the model where it can see them, named to it otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from gateway.agent.model import ModelImage
from gateway.errors import SendError
from gateway.messages import Attachment, InboundMessage
from gateway.protocols import ChannelAdapter, SupportsAttachments

MAX_IMAGES = 8
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_DOCUMENT_BYTES = 200_000
MAX_DOCUMENT_CHARS = 50_000
FETCH_TIMEOUT_S = 30.0
# What the providers' vision models take.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_DOCUMENTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A message as the model reads it: the text, with documents in it as data, and the pictures."""

    text: str
    images: tuple[ModelImage, ...] = ()


async def read_message(message: InboundMessage, adapter: ChannelAdapter | None) -> Asked:
    """The message with its files; one that cannot be fetched, or is too large, is named with the reason."""
    pieces = [message.text.strip()]
    images: list[ModelImage] = []
    for file in message.attachments:
        data, note = await _fetch(file, adapter, room=MAX_IMAGES - len(images))
        if data is not None and file.media_type in _IMAGES:
            images.append(ModelImage(media_type=file.media_type, data=data))
        pieces.append(_named(file, note))
        if data is not None and file.media_type not in _IMAGES:
            pieces.append(_quoted(data))
    return Asked(text="\n".join(pieces).strip(), images=tuple(images))


async def _fetch(file: Attachment, adapter: ChannelAdapter | None, *, room: int) -> tuple[bytes | None, str]:
    """The content, where it is of use; and a word on why not."""
    is_image = file.media_type in _IMAGES
    is_document = file.media_type.startswith("text/") or file.media_type in _DOCUMENTS
    if not is_image and not is_document:
        return None, "of a kind that I cannot read"
    max_bytes = MAX_IMAGE_BYTES if is_image else MAX_DOCUMENT_BYTES
    if file.size_bytes > max_bytes:
        return None, f"too large to read, the limit is {max_bytes} bytes"
    if is_image and not room:
        return None, f"not shown, {MAX_IMAGES} pictures are the most"
    if adapter is None or not isinstance(adapter, SupportsAttachments):
        return None, ""
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            data = await adapter.fetch(file, max_bytes)
    except (SendError, TimeoutError) as error:
        _log.warning("attachment_not_fetched", channel=adapter.name, error=repr(error))
        return None, "could not be fetched"
    return data, ""


def _named(file: Attachment, note: str) -> str:
    name = " ".join(file.filename.split())
    return f"[attached: {name}, {file.media_type}, {file.size_bytes} bytes{f'; {note}' if note else ''}]"


def _quoted(data: bytes) -> str:
    """A document as data, in a fence that its own text cannot end."""
    text = data.decode("utf-8", "replace").replace("\0", "")[:MAX_DOCUMENT_CHARS]
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
