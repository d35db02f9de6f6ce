"""Turns what an address gave into text: in a child program that is shut in, since what is read was made by others."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog

from gateway.domain.images import ModelImage
from gateway.runtime.extras import how_to_install
from gateway.sandbox.running import SandboxFailed, run, temporary
from gateway.sandbox.tiers import Bare, Limits, Plan, Tier
from gateway.tools.contract import ToolError

if TYPE_CHECKING:  # it needs a library that documents do without
    from gateway.tools.web.fetching import Fetched

LIBRARY = "trafilatura"
PDF_LIBRARY = "pypdf"
PICTURE_LIBRARY = "PIL"
LIMITS = Limits(wall_s=10, cpu_s=10, memory_bytes=256 << 20, processes=8, file_bytes=1 << 20, output_bytes=8 << 20)
PICTURE_LIMITS = replace(LIMITS, memory_bytes=640 << 20)
MOST_AT_ONCE = 2
"""Children; more would take the memory and the cores of a small machine."""
_EXTRACT = Path(__file__).with_name("extract.py")
_TEXT_CHARS = 400_000
_EMPTY = "There is no text in it; a page may need a browser that runs its programs."
_HTML = ("text/html", "application/xhtml+xml")
_TEXTS = ("application/json", "application/xml", "application/javascript", "application/yaml")

Kind = Literal["html", "plain", "pdf", "picture"]

_log = structlog.get_logger(__name__)


class NotHere(ToolError):
    """No document of this kind is read by this gateway, because something is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What there is to read at an address.

    Attributes:
        date: as the page says, in ISO 8601.
        links: where it leads to, each a text and an address.
        notes: what a reader should know of the text, sentences for the model.
        picture: the bytes of a picture, where it is one.
    """

    address: str
    text: str
    title: str = ""
    date: str = ""
    links: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    picture: bytes | None = None


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
        picture: bytes | None = None
        if kind in _HTML:
            found = await self._html(fetched)
        elif kind == "application/pdf":
            found = await self.pdf(fetched.data, is_cut=fetched.is_cut)
        elif kind.startswith("image/"):
            more = "more than " if fetched.is_cut else ""
            notes, found = [f"This is a picture: {kind}, {more}{size} bytes."], {}
            picture = None if fetched.is_cut else fetched.data
        elif kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml")):
            found = {"text": decoded(fetched.data, fetched.charset)[:_TEXT_CHARS]}
        else:
            raise ToolError("this is of a type that cannot be read; text, HTML, JSON and PDF can")
        return Page(
            address=fetched.address,
            picture=picture,
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
        found = await self._page("html", fetched, self.tier) if self.tier is not None else None
        if found is not None and str(found.get("text")).strip():
            return found  # the extractor passes over what is nested too deeply, and then there is nothing
        found = await self._page("plain", fetched, Bare())  # no library, so nothing to break out by
        if found is None:
            raise ToolError("the page cannot be read: its HTML takes too long, or too much memory")
        return {**found, "notes": ["This is all text of the page, its menus too."]}

    async def _page(self, kind: Kind, fetched: Fetched, tier: Tier) -> dict[str, Any] | None:
        return await self._child(kind, fetched.data, tier, address=fetched.address, charset=fetched.charset)

    async def pdf(self, data: bytes, *, is_cut: bool = False) -> dict[str, Any]:
        """What the child says of a PDF.

        Raises:
            ToolError: it cannot be read; says why.
        """
        return await self._document("pdf", "PDF", PDF_LIBRARY, data, is_cut=is_cut)

    async def picture(self, data: bytes) -> ModelImage:
        """A picture as models take it.

        Raises:
            ToolError: it cannot be shown; says why.
        """
        found = await self._document("picture", "picture", PICTURE_LIBRARY, data)
        shrunk = found.get("data")
        whole = data if shrunk is None else base64.b64decode(str(shrunk))
        return ModelImage(media_type=str(found.get("media_type")), data=whole)

    async def _document(
        self, kind: Kind, what: str, library: str, data: bytes, *, is_cut: bool = False
    ) -> dict[str, Any]:
        if self.tier is None:
            raise NotHere(f"this is a {what}, and without a sandbox none is read; `ethos doctor` says what is missing")
        if importlib.util.find_spec(library) is None:
            raise NotHere(
                f"this is a {what}; the operator must install the extra `documents`: {how_to_install('documents')}"
            )
        if is_cut:
            raise ToolError(f"this is a {what} of more than {len(data)} bytes, which is too large to be read")
        found = await self._child(kind, data, self.tier, limits=PICTURE_LIMITS if kind == "picture" else None)
        if found is None:
            raise ToolError(f"the {what} cannot be read: it takes too long, or too much memory")
        if "error" in found:
            raise ToolError(str(found["error"]))
        return found

    async def _child(
        self,
        kind: Kind,
        data: bytes,
        tier: Tier,
        *,
        address: str = "",
        charset: str | None = None,
        limits: Limits | None = None,
    ) -> dict[str, Any] | None:
        """What the child says; None where it was ended, or broke."""
        command = [sys.executable, "-I", "-B", str(_EXTRACT), kind, address, charset or ""]
        try:
            async with self._room, temporary() as workspace, temporary() as place:
                plan = Plan(workspace=workspace, temporary=place, readable=(_EXTRACT,), limits=limits or self.limits)
                ran = await run(tier, plan, command, given=data)
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
