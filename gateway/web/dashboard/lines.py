"""Messages of a conversation as its page has them, when it is asked for and while its event stream goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from markupsafe import Markup

from gateway.sdk.models.chat import ChatMessage, Choice, Preview, SentFile, Tool
from gateway.sdk.models.sessions import Versions
from gateway.services.stream import Event
from gateway.web.api.events import HEARTBEAT
from gateway.web.half_written import completed
from gateway.web.markdown import to_html

PREVIEW_REST = 9
"""After a preview there is a rest of this many times what it took to render, so at most a tenth of the time goes there.
What comes meanwhile is not lost: of several previews the stream keeps the newest, and messages are in the log."""
MAX_REST_S = 1.0
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What is shown as a picture; what the bytes are, the page of the file looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is known of the turns of a conversation, each by its turn.

    Attributes:
        models: which model answered.
        versions: of which messages there are several.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Versions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A message as the page has it.

    Attributes:
        key: who wrote it, and its id.
        text: as it was written.
        html: of an answer; None for what a person said.
        turn: that it begins, or that wrote it.
        model: that gave the answer, where that is known.
        versions: where there are several.
    """

    is_answer: bool
    text: str
    html: Markup | None
    at: datetime
    key: str
    choices: Sequence[Choice] = ()
    has_failed: bool = False
    turn: str = ""
    files: Sequence[SentFile] = ()
    model: str | None = None
    versions: Versions | None = None

    @property
    def is_of_session(self) -> bool:
        """Whether a session has it, so another version can be made: commands and notices are in none."""
        if self.is_answer:
            return self.model is not None or ":" in self.turn
        return bool(self.turn) and not self.text.startswith("/")

    @property
    def shown_files(self) -> Sequence[tuple[SentFile, bool]]:
        """Each file, and whether it is shown as a picture."""
        return [(one, one.media_type in PICTURES) for one in self.files]


def line_of(message: ChatMessage, told: Told) -> Line:
    """Its Markdown rendered, which takes a while for a long one."""
    is_answer = message.author == "agent"
    return Line(
        is_answer=is_answer,
        text=message.text,
        html=to_html(message.text) if is_answer else None,
        at=message.at,
        key=f"{message.author}:{message.id}",
        choices=message.choices,
        has_failed=message.has_failed,
        turn=message.turn,
        files=message.files,
        model=told.models.get(message.turn) if is_answer else None,
        versions=None if is_answer else told.versions.get(message.turn),
    )


def lines_of(messages: Sequence[ChatMessage], told: Told) -> list[Line]:
    """Those that have a text; from any thread."""
    return [line_of(one, told) for one in messages if one.text]


async def rendered(
    events: AsyncIterator[Event | None], render: Callable[[ChatMessage], Awaitable[str]]
) -> AsyncIterator[bytes]:
    """Frames for the wire (WHATWG HTML, section 9.2); those of the log carry their place as the id.

    A `message` has the `html` of the whole article, empty for an answer that was stopped before its first word; a
    `preview` that of the answer so far, empty where it is withdrawn.

    Args:
        render: makes the article.
    """
    shown: dict[str, str] = {}
    async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
        async for event in each:
            if event is None:
                yield HEARTBEAT
                continue
            began_s = time.monotonic()
            match event.data:
                case Preview() as preview:
                    shown[preview.id] = preview.shown(shown.get(preview.id, ""))
                    data = {"id": preview.id, "html": await asyncio.to_thread(_growing, shown[preview.id])}
                case ChatMessage() as message:
                    shown.pop(message.id, None)
                    html = await render(message) if message.text else ""
                    data = {"id": message.id, "author": message.author, "html": html}
                case Tool() as tool:
                    data = {"tool": tool.tool, "state": tool.state}
                case _:
                    data = {}
            yield _frame(event.name, data, event.place)
            if isinstance(event.data, Preview):
                await asyncio.sleep(min(PREVIEW_REST * (time.monotonic() - began_s), MAX_REST_S))


def _growing(text: str) -> Markup:
    return to_html(completed(text))


def _frame(name: str, data: Mapping[str, str], place: int | None) -> bytes:
    """JSON in ASCII has no line end in it, and lets a lone surrogate do no harm."""
    head = "" if place is None else f"id: {place}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")
