"""A search service of another author."""

from collections.abc import Sequence

from pydantic import BaseModel, SecretStr

from gateway.tools.contract import Search, SearchHit, ToolError

PLUGIN_API = 1


class Config(BaseModel, extra="forbid"):
    shelf: str
    token: SecretStr = SecretStr("")


def search(config: Config) -> Search:
    if config.shelf == "broken":
        raise OSError(f"no shelf for {config.token.get_secret_value()}")

    async def find(query: str, count: int) -> Sequence[SearchHit]:
        if len(query.split()) > 1:
            raise ToolError(f"{query!r} is not one word")
        return [
            SearchHit(title=f"{config.shelf}: {query.strip('().')}", url=f"https://example.org/{n}")
            for n in range(count)
        ]

    return find
