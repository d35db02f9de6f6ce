"""`web_fetch`: a page of the web, read as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from gateway.domain.provenance import as_data
from gateway.tools.contract import Arguments, Picture, Tool, ToolContext, ToolError, ToolResult
from gateway.tools.web.fetching import Fetcher
from gateway.tools.web.reading import Page, PageReader

PAGE_CHARS = 14_000
"""Of one page of a text, as JSON writes it: with all else a result stays below what the model is shown."""
_LINKS_CHARS = 3_000
_TITLE_CHARS = 300
TIMEOUT_S = 60.0


class WebFetch(Arguments):
    """Arguments of `web_fetch`."""

    url: Annotated[str, Field(description="a whole address, such as https://example.org/page", min_length=1)]
    page: Annotated[int, Field(description="of a long text", ge=1, le=1_000)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Gets what stands at an address, and reads it."""

    fetcher: Fetcher
    reader: PageReader

    async def page(self, address: str, context: ToolContext) -> Page:
        """What there is to read.

        Raises:
            ToolError: it may not be fetched, or cannot be read.
            ToolUnavailable: its server is not reached.
        """
        url = self.fetcher.checked(address)
        context.progress(f"Opening {url.host}")
        return await self.reader.read(await self.fetcher.fetch(address))

    def tool(self) -> Tool:
        """`web_fetch`."""

        async def call(arguments: WebFetch, context: ToolContext) -> ToolResult:
            page = await self.page(arguments.url, context)
            texts = [*parts(page.text)] or [""]
            if arguments.page > len(texts):
                raise ToolError(f"it has {len(texts)} page{'s' if len(texts) > 1 else ''}")
            text = as_data(
                f"the page {page.address}",
                title=page.title[:_TITLE_CHARS],
                date=page.date[:_TITLE_CHARS],
                page=f"{arguments.page} of {len(texts)}" if len(texts) > 1 else "",
                note=" ".join(page.notes),
                text=texts[arguments.page - 1],
                links=self._links(page) if arguments.page == 1 else "",
            )
            pictures = () if page.picture is None else (Picture(name=page.address, data=page.picture),)
            return ToolResult(text=text, pictures=pictures)

        return Tool(
            name="web_fetch",
            description=(
                "Read a page of the web, as text: HTML, plain text, JSON or PDF, a long one by pages. Below it stand "
                "links that you may follow."
            ),
            arguments=WebFetch,
            call=call,
            effect="fetch",
            shows_others=True,
            timeout_s=TIMEOUT_S,
        )

    def _links(self, page: Page) -> str:
        """Those that could be fetched, one a line, as many as there is room for."""
        lines: list[str] = []
        room = _LINKS_CHARS
        for text, address in page.links:
            try:
                self.fetcher.checked(address)
            except ToolError:
                continue
            line = f"{text}: {address}"
            room -= len(line) + 2
            if room < 0:
                break
            lines.append(line)
        return "\n".join(lines)


def parts(text: str) -> Iterator[str]:
    """A text in pieces of one page each, cut at the ends of lines where there are some."""
    at = 0
    while at < len(text):
        piece = text[at : at + PAGE_CHARS]
        while (long := len(json.dumps(piece, ensure_ascii=False))) > PAGE_CHARS + 2:
            piece = piece[: max(1, len(piece) * PAGE_CHARS // long - 1)]
        end = piece.rfind("\n")
        if at + len(piece) < len(text) and end > len(piece) // 2:
            piece = piece[: end + 1]
        yield piece
        at += len(piece)
