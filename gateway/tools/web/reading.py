"""Turns what an address gave into text: in a child program that is shut in, since what is read was made by others."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import structlog

from gateway.sandbox.running import SandboxFailed, run, temporary
from gateway.sandbox.tiers import Bare, Limits, Plan, Tier
from gateway.tools.contract import ToolError
from gateway.tools.web.fetching import Fetched

LIBRARY = "trafilatura"
PDF_LIBRARY = "pypdf"
LIMITS = Limits(wall_s=10, cpu_s=10, memory_bytes=256 << 20, processes=8, file_bytes=1 << 20, output_bytes=8 << 20)
MOST_AT_ONCE = 2
"""Children; more would take the memory and the cores of a small machine."""
_EXTRACT = Path(__file__).with_name("extract.py")
_TEXT_CHARS = 400_000
_EMPTY = "There is no text in it; a page may need a browser that runs its programs."
_HTML = ("text/html", "application/xhtml+xml")
_TEXTS = ("application/json", "application/xml", "application/javascript", "application/yaml")

Kind = Literal["html", "plain", "pdf"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What there is to read at an address.

    Attributes:
        date: as the page says, in ISO 8601.
        links: where it leads to, each a text and an address.
        notes: what a reader should know of the text, sentences for the model.
    """

    address: str
    text: str
    title: str = ""
    date: str = ""
    links: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReader:
    """Reads text, HTML, JSON and PDF; names pictures.

    Attributes:
        tier: where the child runs; None: pages are read as plain text, and no PDF is read.
    """

    tier: Tier | None
    limits: Limits = field(default_factory=lambda: LIMITS)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE), repr=False, compare=False)

    async def read(self, fetched: Fetched) -> Page:
        """The text of what was fetched.

        Raises:
            ToolError: it is nothing that can be read; says why.
        """
        kind, size = fetched.media_type, len(fetched.data)
        notes = [f"Only the first {size} bytes were read."] if fetched.is_cut else []
        if kind in _HTML:
            found = await self._html(fetched)
        elif kind == "application/pdf":
            found = await self._pdf(fetched)
        elif kind.startswith("image/"):
            more = "more than " if fetched.is_cut else ""
            notes, found = [f"This is a picture: {kind}, {more}{size} bytes. It cannot be shown here."], {}
        elif kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml")):
            found = {"text": decoded(fetched.data, fetched.charset)[:_TEXT_CHARS]}
        else:
            raise ToolError("this is of a type that cannot be read; text, HTML, JSON and PDF can")
        return Page(
            address=fetched.address,
            text=str(found.get("text") or ""),
            title=str(found.get("title") or ""),
            date=str(found.get("date") or ""),
            links=[(str(text), str(address)) for text, address in found.get("links", ())],
            notes=[
                *notes,
                *found.get("notes", ()),
                *([] if found.get("text") or kind.startswith("image/") else [_EMPTY]),
            ],
        )

    async def _html(self, fetched: Fetched) -> dict[str, Any]:
        found = await self._child("html", fetched, self.tier) if self.tier is not None else None
        if found is not None and str(found.get("text")).strip():
            return found  # the extractor passes over what is nested too deeply, and then there is nothing
        found = await self._child("plain", fetched, Bare())  # no library, so nothing to break out by
        if found is None:
            raise ToolError("the page cannot be read: its HTML takes too long, or too much memory")
        return {**found, "notes": ["This is all text of the page, its menus too."]}

    async def _pdf(self, fetched: Fetched) -> dict[str, Any]:
        if self.tier is None:
            raise ToolError("this is a PDF, and without a sandbox none is read; `ethos doctor` says what is missing")
        if importlib.util.find_spec(PDF_LIBRARY) is None:
            raise ToolError("this is a PDF; the operator must install the extra `documents`, `ethos doctor` says how")
        if fetched.is_cut:
            raise ToolError(f"this is a PDF of more than {len(fetched.data)} bytes, which is too large to be read")
        found = await self._child("pdf", fetched, self.tier)
        if found is None:
            raise ToolError("the PDF cannot be read: it takes too long, or too much memory")
        if "error" in found:
            raise ToolError(str(found["error"]))
        return found

    async def _child(self, kind: Kind, fetched: Fetched, tier: Tier) -> dict[str, Any] | None:
        """What the child says; None where it was ended, or broke."""
        command = [sys.executable, "-I", "-B", str(_EXTRACT), kind, fetched.address, fetched.charset or ""]
        try:
            async with self._room, temporary() as workspace, temporary() as place:
                plan = Plan(workspace=workspace, temporary=place, readable=(_EXTRACT,), limits=self.limits)
                ran = await run(tier, plan, command, given=fetched.data)
        except SandboxFailed as error:
            _log.warning("page_not_read", error=str(error))
            return None
        found = await asyncio.to_thread(_parsed, ran.output.rpartition(b"\n")[2]) if ran.exit_code == 0 else None
        if found is None:
            _log.info("page_not_read", kind=kind, exit_code=ran.exit_code)
        return found


def decoded(data: bytes, charset: str | None) -> str:
    """The text, whatever is in it; UTF-8 where the server names nothing that is known."""
    try:
        return data.decode(charset or "utf-8-sig", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
