"""`web_search`: asks the search service that the operator chose."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.domain.provenance import as_data
from gateway.tools.contract import Arguments, Search, Tool, ToolContext

MAX_QUERY_CHARS = 400
"""The services that we know take no more."""
MOST_HITS = 20
_TITLE_CHARS, _TEXT_CHARS, _ADDRESS_CHARS = 200, 500, 1_000
TIMEOUT_S = 30.0


class WebSearch(Arguments):
    """Arguments of `web_search`."""

    query: Annotated[str, Field(description="some words", min_length=1, max_length=MAX_QUERY_CHARS)]
    count: Annotated[int, Field(description="how many results", ge=1, le=MOST_HITS)] = 8


def web_search(search: Search) -> Tool:
    """The tool over one service."""

    async def call(arguments: WebSearch, context: ToolContext) -> str:
        context.progress("Searching the web")
        hits = [hit for hit in await search(arguments.query, arguments.count) if _leads_somewhere(hit.url)]
        lines = [
            as_data(
                "a search result",
                title=hit.title[:_TITLE_CHARS],
                address=hit.url,
                date=hit.date[:_TITLE_CHARS],
                text=hit.text[:_TEXT_CHARS],
            )
            for hit in hits[: arguments.count]
        ]
        return "\n".join(lines) or "Nothing was found. Try fewer or other words."

    return Tool(
        name="web_search",
        description="Search the web. Each result has a title, an address and a few words of the page.",
        arguments=WebSearch,
        call=call,
        effect="read",
        shows_others=True,
        timeout_s=TIMEOUT_S,
    )


def _leads_somewhere(address: str) -> bool:
    return address.startswith(("http://", "https://")) and len(address) <= _ADDRESS_CHARS
