"""What a tool of a server returned: text and pictures for the model, and files."""

from __future__ import annotations

import base64
import json
import mimetypes
from urllib.parse import urlsplit

import mcp_types as types

from gateway.tools.contract import NamedFile, Picture


def text_of(result: types.CallToolResult) -> str:
    """All of it: texts as they are, pictures and files named, links by their names alone.

    Structured content is left out where there are texts, which by the protocol say the same.
    """
    parts = [_part(block) for block in result.content]
    has_text = any(isinstance(block, types.TextContent) and block.text.strip() for block in result.content)
    if result.structured_content is not None and not has_text:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(part for part in parts if part) or "It returned nothing."


def pictures_of(result: types.CallToolResult) -> tuple[Picture, ...]:
    """Its pictures, in order; one whose data is no base 64 is damaged, and is named so later."""
    found = [block.data for block in result.content if isinstance(block, types.ImageContent)]
    return tuple(Picture(name=str(number), data=_decoded(data)) for number, data in enumerate(found, start=1))


def files_of(result: types.CallToolResult) -> tuple[NamedFile, ...]:
    """Files and recordings in it that are no text."""
    found = []
    for number, block in enumerate(result.content, start=1):
        match block:
            case types.AudioContent(data=data, mime_type=kind):
                found.append(NamedFile(name=f"{number}{mimetypes.guess_extension(kind) or ''}", data=_decoded(data)))
            case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
                found.append(NamedFile(name=_name(resource), data=_decoded(resource.blob)))
    return tuple(found)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except ValueError:
        return b""


def _part(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(data=data, mime_type=kind):
            return f"[A picture, {kind}, {_bytes(data)} bytes]"
        case types.AudioContent(data=data, mime_type=kind):
            return f"[A recording, {kind}, {_bytes(data)} bytes]"
        case types.ResourceLink(name=name):
            return f"[A link: {name}]"
        case types.EmbeddedResource(resource=resource):
            return _file(resource)


def _file(resource: types.TextResourceContents | types.BlobResourceContents) -> str:
    name = _name(resource)
    if isinstance(resource, types.TextResourceContents):
        return f"[The file {name}:]\n{resource.text}"
    kind = resource.mime_type or "of no known kind"
    return f"[The file {name}, {kind}, {_bytes(resource.blob)} bytes]"


def _name(resource: types.TextResourceContents | types.BlobResourceContents) -> str:
    return urlsplit(resource.uri).path.rpartition("/")[2] or resource.uri


def _bytes(data: str) -> int:
    """Of what a text in base 64 stands for."""
    return len(data.rstrip("=")) * 3 // 4
