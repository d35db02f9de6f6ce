"""A message as the model reads it: the person's words, and, as data, words of others and files.

Files are shown to the model where it can see them, and named to it otherwise.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from gateway.domain.images import ModelImage
from gateway.domain.provenance import ATTACHMENT, PASSED_ON, as_data, sources_of
from gateway.errors import SendError
from gateway.messages import Attachment, InboundMessage
from gateway.protocols import ChannelAdapter, SupportsAttachments
from gateway.runtime.extras import how_to_install
from gateway.tools.contract import ToolError
from gateway.tools.documents import MAX_FILE_BYTES, PDF, PICTURES, Documents

MAX_IMAGES = 8
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_DOCUMENT_BYTES = 200_000
MAX_DOCUMENT_CHARS = 50_000
FETCH_TIMEOUT_S = 30.0
# What the providers' vision models take.
_IMAGES = frozenset(PICTURES)
_DOCUMENTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A message as the model reads it.

    Attributes:
        text: the person's words; words of others stand in it as data.
        sources: where words of others come from, for people; empty for none.
    """

    text: str
    images: tuple[ModelImage, ...] = ()
    sources: tuple[str, ...] = ()


def has_pictures(message: InboundMessage) -> bool:
    """Whether a model is shown some of its files as pictures."""
    return any(file.media_type in _IMAGES for file in message.attachments)


async def read_message(
    message: InboundMessage, adapter: ChannelAdapter | None, documents: Documents | None = None
) -> Question:
    """The message with its quotations and files; a file that cannot be read is named with the reason."""
    text = message.text.strip()
    pieces = [text if message.is_trusted_text or not text else as_data(PASSED_ON, text=text)]
    pieces += [as_data(quote.origin, by=quote.author, text=quote.text) for quote in message.quotes]
    images: list[ModelImage] = []
    for file in message.attachments:
        data, note = await _fetch(file, adapter, room=MAX_IMAGES - len(images), has_documents=documents is not None)
        text = ""
        try:
            if data is not None and file.media_type in _IMAGES:
                images.append(await _picture(file, data, documents))
            elif data is not None:
                text = await _text(file, data, documents)
        except ToolError as error:
            note = str(error)
        pieces.append(_shown(file, note, text))
    return Question(text="\n".join(pieces).strip(), images=tuple(images), sources=sources_of(message))


async def _picture(file: Attachment, data: bytes, documents: Documents | None) -> ModelImage:
    """As models take it; as it is where it cannot be shrunk here, and is small enough."""
    shrunk = None if documents is None else await documents.picture_if_it_can(data)
    if shrunk is None and len(data) > MAX_IMAGE_BYTES:
        remedy = f"the operator must install the extra `documents`: {how_to_install('documents')}"
        raise ToolError(f"too large to show as it is, and {remedy}")
    return shrunk or ModelImage(media_type=file.media_type, data=data)


async def _text(file: Attachment, data: bytes, documents: Documents | None) -> str:
    if file.media_type == PDF and documents is not None:
        return await documents.text_of_pdf(data)
    return data.decode("utf-8", "replace")


async def _fetch(
    file: Attachment, adapter: ChannelAdapter | None, *, room: int, has_documents: bool
) -> tuple[bytes | None, str]:
    """The content, where it is of use; and a word on why not."""
    is_image = file.media_type in _IMAGES
    is_pdf = file.media_type == PDF and has_documents
    is_document = is_pdf or file.media_type.startswith("text/") or file.media_type in _DOCUMENTS
    if not is_image and not is_document:
        return None, "of a kind that I cannot read"
    largest_image = MAX_FILE_BYTES if has_documents else MAX_IMAGE_BYTES
    max_bytes = largest_image if is_image or is_pdf else MAX_DOCUMENT_BYTES
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


def _shown(file: Attachment, note: str, text: str) -> str:
    """The file by name, with the text that is in it; the name is as little the person's own as the text."""
    about = f"{file.media_type}, {file.size_bytes} bytes{f'; {note}' if note else ''}"
    return as_data(ATTACHMENT, name=file.filename, about=about, text=text.replace("\0", "")[:MAX_DOCUMENT_CHARS])
