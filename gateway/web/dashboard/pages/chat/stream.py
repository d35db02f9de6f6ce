"""The events of a conversation as its page receives them: answers rendered, as JSON on one line each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from gateway.sdk.models.chat import ChatMessage, Preview, Tool
from gateway.services.stream import Event
from gateway.web.api.events import HEARTBEAT
from gateway.web.markdown import to_html

PREVIEW_REST = 9
"""After a preview there is a rest of this many times what it took to render, so at most a tenth of the time goes there.
What comes meanwhile is not lost: of several previews the stream keeps the newest, and messages are in the log."""
MAX_REST_S = 1.0


async def rendered(events: AsyncIterator[Event | None]) -> AsyncIterator[bytes]:
    """Frames for the wire (WHATWG HTML, section 9.2); those of the log carry their place as the id."""
    shown: dict[str, str] = {}
    async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
        async for event in each:
            if event is None:
                yield HEARTBEAT
                continue
            began_s = time.monotonic()
            if isinstance(event.data, Preview):
                preview = event.data
                shown[preview.id] = preview.shown(shown.get(preview.id, ""))
                data = {"id": preview.id, "html": await asyncio.to_thread(to_html, shown[preview.id])}
            else:
                data = await _data(event)
                shown.pop(data.get("id", ""), None)
            yield _context(event.name, data, event.place)
            if isinstance(event.data, Preview):
                await asyncio.sleep(min(PREVIEW_REST * (time.monotonic() - began_s), MAX_REST_S))


async def _data(event: Event) -> dict[str, Any]:
    match event.data:
        case ChatMessage(author="agent") as message:
            html = await asyncio.to_thread(to_html, message.text)
            return {**message.model_dump(mode="json", by_alias=True), "html": html}
        case ChatMessage() as message:
            return message.model_dump(mode="json", by_alias=True)
        case Tool() as tool:
            return {"tool": tool.tool, "state": tool.state}
    return {}


def _context(name: str, data: dict[str, Any], place: int | None) -> bytes:
    """JSON in ASCII has no line end in it, and lets a lone surrogate do no harm."""
    head = "" if place is None else f"id: {place}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")
