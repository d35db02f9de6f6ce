"""`tavily`: the Tavily Search API. https://docs.tavily.com/documentation/api-reference/endpoint/search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from gateway.config.values import Section, WebAddress
from gateway.tools.contract import Search, SearchHit
from gateway.tools.web.kinds import asked, hits_in

_NAME = "Tavily"
_MOST = 20


class Config(Section):
    """The account.

    Attributes:
        url: another address of the same API, such as a proxy.
    """

    api_key: SecretStr
    url: WebAddress = "https://api.tavily.com/search"


def search(config: Config) -> Search:
    """Ask it."""
    headers = {"Authorization": f"Bearer {config.api_key.get_secret_value()}"}

    async def find(query: str, count: int) -> Sequence[SearchHit]:
        question = {"query": query, "max_results": min(count, _MOST)}
        body = await asked(_NAME, "POST", config.url, _explained, json=question, headers=headers)
        results = body.get("results") if isinstance(body, dict) else None
        return hits_in(_NAME, results, title="title", url="url", text="content", date="published_date")[:count]

    return find


def _explained(status: int, _body: Any) -> str:
    """432: the plan is used up; 433: the limit of what is paid as it is used."""
    match status:
        case 401 | 403:
            return f"{_NAME} refuses the key; correct `web.search.api_key`"
        case 429 | 432 | 433:
            return f"the quota of {_NAME} is used up, or it was asked too fast; wait, or choose a larger plan"
        case _:
            return ""
