"""Tools for the files of a workspace: list, read by pages, search, write, send."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from pydantic import Field

from gateway.errors import FileError
from gateway.files.media_types import media_type_of
from gateway.messages import Attachment
from gateway.sandbox.workspace import MAX_LISTED, NoSuchFile, Workspace
from gateway.tools.contract import Arguments, Picture, Tool, ToolContext, ToolError, ToolResult, ToolUnavailable
from gateway.tools.documents import PDF, PICTURES, kind_of

PAGE_CHARS = 16_000
MAX_HITS = 50
MAX_SENT = 8
_HIT_CHARS = 300

T = TypeVar("T")
FileName = Annotated[str, Field(description="a name in the workspace, such as notes/tea.md", min_length=1)]


class SendFile(Arguments):
    """Arguments of `send_file`."""

    name: FileName


class Nothing(Arguments):
    """Arguments of `list_files`."""


class ReadFile(Arguments):
    """Arguments of `read_file`."""

    name: FileName
    page: Annotated[int, Field(ge=1, le=1_000)] = 1


class SearchFiles(Arguments):
    """Arguments of `search_files`."""

    words: Annotated[str, Field(description="words that must all stand in one line", min_length=1)]


class WriteFile(Arguments):
    """Arguments of `write_file`."""

    name: FileName
    text: Annotated[str, Field(description="the whole new text of the file")]


async def _list(_arguments: Nothing, context: ToolContext) -> ToolResult:
    found = await _at(context, lambda workspace: workspace.files())
    if not found:
        return ToolResult(text="There are no files yet.")
    lines = [f"{one.name} ({one.size_bytes} bytes, {one.modified_at:%Y-%m-%d %H:%M} UTC)" for one in found]
    if len(found) == MAX_LISTED:
        lines.append(f"Only the first {MAX_LISTED} are shown.")
    # Names come from attachments, pages and programs, too.
    return ToolResult(text="\n".join(lines), sources=() if all(one.is_own for one in found) else ("names of files",))


async def _read(arguments: ReadFile, context: ToolContext) -> ToolResult:
    data, is_own = await _at(context, lambda workspace: workspace.read(arguments.name))
    sources = () if is_own else (_source(arguments.name),)
    kind = kind_of(data)
    if kind in PICTURES:
        picture = Picture(name=arguments.name, data=data)
        return ToolResult(text=f"{arguments.name}: {kind}, {len(data)} bytes", sources=sources, pictures=(picture,))
    documents = context.documents
    text = await documents.text_of_pdf(data) if kind == PDF and documents else _text(arguments.name, data)
    pages = max(1, -(-len(text) // PAGE_CHARS))
    if arguments.page > pages:
        raise ToolError(f"{arguments.name} has {pages} page{'s' if pages > 1 else ''}")
    shown = text[(arguments.page - 1) * PAGE_CHARS :][:PAGE_CHARS]
    if pages > 1:
        shown += f"\n[Page {arguments.page} of {pages}.]"
    return ToolResult(text=shown, sources=sources)


async def _search(arguments: SearchFiles, context: ToolContext) -> ToolResult:
    hits, sources = await _at(context, lambda workspace: _hits(workspace, arguments.words.casefold().split()))
    if not hits:
        return ToolResult(text="No line of any file has all of these words.")
    more = f"\nOnly the first {MAX_HITS} are shown." if len(hits) == MAX_HITS else ""
    return ToolResult(text="\n".join(hits) + more, sources=tuple(sources))


async def _write(arguments: WriteFile, context: ToolContext) -> str:
    data = arguments.text.encode("utf-8", "replace")
    await _at(context, lambda workspace: workspace.write(arguments.name, data, is_own=not context.is_tainted))
    return f"{arguments.name} is written, {len(data)} bytes."


async def _send(arguments: SendFile, context: ToolContext) -> str:
    outgoing = context.outgoing
    if outgoing is None or not outgoing.limit_bytes:
        raise ToolError("this channel takes no files; show what matters in your answer")
    if len(outgoing.files) == MAX_SENT:
        raise ToolError(f"one answer takes {MAX_SENT} files; send the others with the next one")
    data, _ = await _at(context, lambda workspace: workspace.read(arguments.name))
    left_bytes = outgoing.limit_bytes - sum(file.size_bytes for file in outgoing.files)
    if len(data) > left_bytes:
        raise ToolError(f"{arguments.name} has {len(data)} bytes, and this answer takes {left_bytes} more")
    filename = PurePosixPath(arguments.name).name
    key = context.idempotency_key.encode("utf-8", "replace")
    number = hashlib.sha256(hashlib.sha256(key).digest() + data).hexdigest()[:16]
    try:
        ref = await outgoing.keep(f"{number}{PurePosixPath(filename).suffix}", data)
    except FileError as error:
        raise ToolUnavailable(str(error)) from error
    media_type = media_type_of(filename) or "application/octet-stream"
    outgoing.files.append(Attachment(media_type=media_type, filename=filename, size_bytes=len(data), ref=ref))
    return f"{arguments.name} goes with your answer, {len(data)} bytes."


def _hits(workspace: Workspace, words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    hits: list[str] = []
    sources: list[str] = []
    for file in workspace.files():
        try:
            data, is_own = workspace.read(file.name)
            lines = _text(file.name, data).splitlines()
        except (NoSuchFile, ToolError):
            continue  # too large, no text, or gone meanwhile
        found = [
            f"{file.name}:{number}: {line.strip()[:_HIT_CHARS]}"
            for number, line in enumerate(lines, start=1)
            if all(word in line.casefold() for word in words)
        ]
        hits += found[: MAX_HITS - len(hits)]
        sources += [_source(file.name)] if found and not is_own else []
        if len(hits) == MAX_HITS:
            break
    return hits, sources


def _text(name: str, data: bytes) -> str:
    if b"\0" in data[:8_192]:
        raise ToolError(f"{name} is no text; it has {len(data)} bytes")
    return data.decode("utf-8", "replace")


def _source(name: str) -> str:
    return f"the file {name}"


async def _at(context: ToolContext, work: Callable[[Workspace], T]) -> T:
    """Work on the workspace in a thread."""
    workspace = context.workspace
    if workspace is None:
        raise ToolError("the person in this conversation is not known, so there are no files")
    try:
        return await asyncio.to_thread(work, workspace)
    except NoSuchFile as error:
        raise ToolError(str(error)) from error
    except FileError as error:
        raise ToolUnavailable(str(error)) from error


LIST_FILES = Tool(
    name="list_files",
    description="The files of this person, or in a group of the group, by name.",
    arguments=Nothing,
    call=_list,
    effect="read",
)
READ_FILE = Tool(
    name="read_file",
    description="The text of a file or a PDF, a long one by pages; pictures are shown.",
    arguments=ReadFile,
    call=_read,
    effect="read",
)
SEARCH_FILES = Tool(
    name="search_files",
    description="Lines of all files that have these words.",
    arguments=SearchFiles,
    call=_search,
    effect="read",
)
WRITE_FILE = Tool(
    name="write_file",
    description="Write a text file, in place of an earlier one of that name.",
    arguments=WriteFile,
    call=_write,
    effect="own",
    is_idempotent=True,
)
SEND_FILE = Tool(
    name="send_file",
    description="Send a file of the workspace with your answer.",
    arguments=SendFile,
    call=_send,
    effect="own",
    is_idempotent=True,
)
FILE_TOOLS = (LIST_FILES, READ_FILE, SEARCH_FILES, SEND_FILE, WRITE_FILE)
