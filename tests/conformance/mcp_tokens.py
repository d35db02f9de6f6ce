"""What every store of tokens must do: one row for an account, deleted as it was read or with its owner."""

from __future__ import annotations

from typing import Any

from gateway.mcp.tokens import TokenStore
from gateway.store.mcp_tokens import SqlMcpTokens
from tests.conformance.stores import House


class McpTokenSuite:
    """The suite."""

    async def test_tokens_are_kept_by_account_and_go_with_it(self, house: House) -> None:
        store_of: Any = house.store
        store: TokenStore = SqlMcpTokens(store_of.engine.of("mcp_tokens"))
        for server, user_id in (("mail", ""), ("mail", "u_a"), ("mail", "u_b"), ("home", "u_a")):
            await store.keep(server, user_id, f"{server} {user_id}")
        await store.keep("mail", "u_a", "renewed")
        assert await store.sealed("mail", "u_a") == "renewed"
        await store.drop("mail", "u_a", "mail u_a")
        assert await store.sealed("mail", "u_a") == "renewed", "it is another by now"
        await store.drop("mail", "u_a", "renewed")
        assert await store.sealed("mail", "u_a") is None
        assert await store.servers() == {"mail", "home"}
        await store.forget_people(["u_a", "u_c"])
        assert await store.servers() == {"mail"}
        assert await store.forget_server("mail") == 2
        assert await store.servers() == frozenset()
