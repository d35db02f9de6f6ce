"""`searxng`: a SearXNG of one's own, a search engine that asks others. https://docs.searxng.org/dev/search_api.html."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from gateway.config.values import Section, Text, WebAddress
from gateway.tools.contract import Search, SearchHit
from gateway.tools.web.kinds import asked, hits_in

_NAME = "SearXNG"


class Config(Section):
    """Where it is.

    Attributes:
        url: of its first page.
        language: of the results, such as `de`; None: its own default.
        token: sent as a bearer token, for a proxy in front of it.
    """

    url: WebAddress
    language: Text | None = None
    token: SecretStr | None = None


def search(config: Config) -> Search:
    """Ask it."""
    headers = {} if config.token is None else {"Authorization": f"Bearer {config.token.get_secret_value()}"}
    language = {} if config.language is None else {"language": config.language}

    async def find(query: str, count: int) -> Sequence[SearchHit]:
        params = {"q": query, "format": "json", **language}
        url = f"{config.url.rstrip('/')}/search"
        body = await asked(_NAME, "GET", url, _explained, params=params, headers=headers)
        results = body.get("results") if isinstance(body, dict) else None
        return hits_in(_NAME, results, title="title", url="url", text="content", date="publishedDate")[:count]

    return find


def _explained(status: int, _body: Any) -> str:
    match status:
        case 401:
            return f"{_NAME} refuses the token; correct `web.search.token`"
        case 403:
            return f"{_NAME} gives no JSON; put `json` into `search.formats` of its settings.yml"
        case 429:
            return f"{_NAME} takes no more questions for now; its limiter holds them back"
        case _:
            return ""
