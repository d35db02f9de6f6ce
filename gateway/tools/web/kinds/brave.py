"""`brave`: the Brave Search API. https://api-dashboard.search.brave.com/documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from gateway.config.values import Section, WebAddress
from gateway.tools.contract import Search, SearchHit
from gateway.tools.web.kinds import asked, hits_in

_NAME = "Brave Search"
_MOST = 20


class Config(Section):
    """The account.

    Attributes:
        api_key: of the plan "Search".
        url: another address of the same API, such as a proxy.
    """

    api_key: SecretStr
    url: WebAddress = "https://api.search.brave.com/res/v1/web/search"


def search(config: Config) -> Search:
    """Ask it."""
    headers = {"X-Subscription-Token": config.api_key.get_secret_value(), "Accept": "application/json"}

    async def find(query: str, count: int) -> Sequence[SearchHit]:
        params = {"q": query, "count": str(min(count, _MOST)), "text_decorations": "false"}
        body = await asked(_NAME, "GET", config.url, _explained, params=params, headers=headers)
        web = body.get("web", {"results": []}) if isinstance(body, dict) else None  # nothing found: no `web`
        results = web.get("results") if isinstance(web, dict) else None
        return hits_in(_NAME, results, title="title", url="url", text="description", date="page_age")[:count]

    return find


def _explained(status: int, body: Any) -> str:
    """A wrong key is a 422 here: `{"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID", …}}`."""
    error = body.get("error") if isinstance(body, dict) else None
    code = str(error.get("code")) if isinstance(error, dict) else ""
    if status in (401, 403) or code.startswith("SUBSCRIPTION_TOKEN"):
        return f"{_NAME} refuses the key; correct `web.search.api_key`"
    if status in (402, 429) or code in ("RATE_LIMITED", "QUOTA_LIMITED"):
        return f"the quota of {_NAME} is used up, or it was asked too fast; wait, or choose a larger plan"
    return ""
