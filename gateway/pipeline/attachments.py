"""A message as the model reads it: the person's words, and, as data, words of others and files.

Files are shown to the model where it can see them, and named to it otherwise.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath

import structlog

from gateway.domain.heard import Heard
from gateway.domain.images import ModelImage
from gateway.domain.provenance import ATTACHMENT, PASSED_ON, as_data, sources_of
from gateway.errors import FileError, SendError
from gateway.files.media_types import media_type_of
from gateway.messages import Attachment, InboundMessage
from gateway.protocols import ChannelAdapter, SupportsAttachments
from gateway.runtime.extras import how_to_install
from gateway.sandbox.workspace import NoSuchFile, Workspace
from gateway.tools.contract import ToolError
from gateway.tools.documents import MAX_FILE_BYTES, PDF, PICTURES, Documents

MAX_KEPT_BYTES = 25 << 20
"""Of a file that is kept in the workspace, whether or not a model reads it."""
MAX_IMAGES = 8
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_DOCUMENT_BYTES = 200_000
MAX_DOCUMENT_CHARS = 50_000
FETCH_TIMEOUT_S = 30.0
COULD_NOT = "could not be fetched"
_MAX_NAME_CHARS = 60
# What the providers' vision models take.
_IMAGES = frozenset(PICTURES)
_NOT_SAID = "application/octet-stream"
_DOCUMENTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A message as the model reads it.

    Attributes:
        text: the person's words; words of others stand in it as data.
        sources: where words of others come from, for people; empty for none.
        heard: what was heard of recordings; the words stand in the text, too.
    """

    text: str
    images: tuple[ModelImage, ...] = ()
    sources: tuple[str, ...] = ()
    heard: tuple[Heard, ...] = ()


def has_pictures(message: InboundMessage) -> bool:
    """Whether a model is shown some of its files as pictures."""
    return any(_named(file).media_type in _IMAGES for file in message.attachments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Puts the files of one message into a workspace, where tools find them.

    The same message twice has the same files there, as the agent has changed them; two files with one name have two.
    """

    workspace: Workspace
    folder: str
    _names: set[str] = field(default_factory=set, repr=False, compare=False)

    async def keep(self, filename: str, data: bytes, *, is_own: bool = False) -> str:
        """A word on where it is, or why not; `is_own` as in `Workspace.write`."""
        name = f"{self.folder}/{self._free(filename)}"
        write = partial(self.workspace.write, is_own=is_own, most_bytes=MAX_KEPT_BYTES, replaces=False)
        try:
            await asyncio.to_thread(write, name, data)
        except (NoSuchFile, FileError) as error:
            _log.warning("attachment_not_kept", error=str(error))
            return f"not kept: {error}"
        return f"kept as {name}"

    def _free(self, filename: str) -> str:
        """The name, or one like it that no other file of the message has."""
        name = "".join(filter(str.isprintable, filename))[-_MAX_NAME_CHARS:].lstrip("/") or "file"
        path = PurePosixPath(name)
        numbered = (str(path.with_name(f"{path.stem}-{number}{path.suffix}")) for number in itertools.count(2))
        free = next(one for one in itertools.chain([name], numbered) if one not in self._names)
        self._names.add(free)
        return free


async def read_message(
    message: InboundMessage,
    adapter: ChannelAdapter | None,
    documents: Documents | None = None,
    *,
    heard: Sequence[Heard] = (),
    keeper: Keeper | None = None,
) -> Question:
    """The message with its quotations and files; a file that cannot be read is named with the reason.

    Args:
        heard: of its recordings, in their order.
        keeper: of its files; None: they are not kept.
    """
    text = message.text.strip()
    pieces = [text if message.is_trusted_text or not text else as_data(PASSED_ON, text=text)]
    pieces += [_said(one, message) for one in heard]
    pieces += [as_data(quote.origin, by=quote.author, text=quote.text) for quote in message.quotes]
    images: list[ModelImage] = []
    for file in map(_named, message.attachments):
        if file.is_voice:
            continue
        room = MAX_IMAGES - len(images)
        limit_bytes, note = _readable(file, room=room, has_documents=documents is not None)
        data, note = await _fetch(file, adapter, limit_bytes, note, keeper)
        text = ""
        try:
            if data is not None and file.media_type in _IMAGES:
                images.append(await _picture(file, data, documents))
            elif data is not None:
                text = await _text(file, data, documents)
        except ToolError as error:
            note = "; ".join(filter(None, [str(error), note]))
        pieces.append(_shown(file, note, text))
    whole = "\n".join(pieces).strip()
    return Question(text=whole, images=tuple(images), sources=sources_of(message), heard=tuple(heard))


def _named(file: Attachment) -> Attachment:
    """With the media type that its name stands for, where the platform says none, as many mail programs do."""
    if file.media_type != _NOT_SAID:
        return file
    media_type = media_type_of(file.filename)
    return file if media_type is None else replace(file, media_type=media_type)


def _said(heard: Heard, message: InboundMessage) -> str:
    """The words of a recording: the person's own, unless it was passed on."""
    words = heard.text if message.is_trusted_text or not heard.text else as_data(PASSED_ON, text=heard.text)
    return f"{heard.for_model} {words}".strip() if message.is_trusted_text else f"{heard.for_model}\n{words}".strip()


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
    file: Attachment, adapter: ChannelAdapter | None, limit_bytes: int, note: str, keeper: Keeper | None
) -> tuple[bytes | None, str]:
    """The content, where the model can read it; and a word on why not, or on where it is kept."""
    most_bytes = max(limit_bytes, 0 if keeper is None else MAX_KEPT_BYTES)
    if not most_bytes or file.size_bytes > most_bytes or adapter is None:
        return None, note
    data, fault = await fetched(file, adapter, most_bytes)
    if data is None:
        return None, fault
    kept = "" if keeper is None else await keeper.keep(file.filename, data)
    if len(data) > limit_bytes:
        note = note or _too_large(limit_bytes)
    return None if note else data, "; ".join(filter(None, [note, kept]))


def _readable(file: Attachment, *, room: int, has_documents: bool) -> tuple[int, str]:
    """How large it may be for a model to read it; 0 and why, where none does."""
    is_image = file.media_type in _IMAGES
    is_pdf = file.media_type == PDF and has_documents
    if not is_image and not is_pdf and not file.media_type.startswith("text/") and file.media_type not in _DOCUMENTS:
        return 0, "of a kind that I cannot read"
    if is_image and not room:
        return 0, f"not shown, {MAX_IMAGES} pictures are the most"
    largest_image = MAX_FILE_BYTES if has_documents else MAX_IMAGE_BYTES
    limit_bytes = largest_image if is_image or is_pdf else MAX_DOCUMENT_BYTES
    return (0, _too_large(limit_bytes)) if file.size_bytes > limit_bytes else (limit_bytes, "")


def _too_large(limit_bytes: int) -> str:
    return f"too large to read, the limit is {limit_bytes} bytes"


async def fetched(file: Attachment, adapter: ChannelAdapter, most_bytes: int) -> tuple[bytes | None, str]:
    """The content, or a word on why there is none."""
    if not isinstance(adapter, SupportsAttachments):
        return None, ""
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            return await adapter.fetch(file, most_bytes), ""
    except (SendError, TimeoutError) as error:
        _log.warning("attachment_not_fetched", channel=adapter.name, error=repr(error))
        return None, COULD_NOT


def _shown(file: Attachment, note: str, text: str) -> str:
    """The file by name, with the text that is in it; the name is as little the person's own as the text."""
    about = f"{file.media_type}, {file.size_bytes} bytes{f'; {note}' if note else ''}"
    return as_data(ATTACHMENT, name=file.filename, about=about, text=text.replace("\0", "")[:MAX_DOCUMENT_CHARS])
