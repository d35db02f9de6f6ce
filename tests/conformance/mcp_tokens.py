"""What every store of tokens must do: one row for an account, deleted as it was read or with its owner."""

from __future__ import annotations

from typing import Any

from gateway.mcp.sign_ins import SignInStore
from gateway.mcp.tokens import Account, TokenStore
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
        assert await store.signed_in() == [Account("home", "u_a"), Account("mail", ""), Account("mail", "u_b")]
        await store.forget_people(["u_a", "u_c"])
        assert await store.servers() == {"mail"}
        assert await store.forget_server("mail") == 2
        assert await store.servers() == frozenset()

    async def test_a_sign_in_is_there_until_it_ends_or_is_too_old(self, house: House) -> None:
        store_of: Any = house.store
        store: SignInStore = SqlMcpTokens(store_of.engine.of("mcp_tokens"))
        await store.begin("s1", "mail", "u_a", "first", lifetime_s=60)
        await store.begin("s2", "mail", "u_b", "other", lifetime_s=60)
        await store.begin("s3", "mail", "u_a", "second", lifetime_s=60)
        assert [await store.begun(state) for state in ("s1", "s2", "s3")] == [None, "other", "second"]
        assert [await store.end("s3"), await store.end("s3")] == [True, False]
        house.wait(61)
        assert await store.begun("s2") is None
        assert not await store.end("s2")
        await store.begin("s4", "mail", "u_a", "third", lifetime_s=60)
        await store.begin("s5", "home", "", "fourth", lifetime_s=60)
        assert len(await store_of.engine.rows("SELECT * FROM mcp_sign_ins")) == 2, "what was too old is deleted"
        await store.forget_people(["u_a"])
        await store.forget_server("home")
        assert [await store.begun(state) for state in ("s4", "s5")] == [None, None]
