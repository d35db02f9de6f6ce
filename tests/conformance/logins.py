"""What every store of logins must do, however many use it at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.people.logins import Invitation, Login, LoginStore, NameTaken
from gateway.store.logins import SqlLogins
from tests.conformance.stores import House

NOW = datetime.now(UTC).replace(microsecond=0)
ADA = Login(user_id="u_a", name="Ada", name_key="ada", password="h", seed="s", last_step=7, changed_at=NOW)
LINK = Invitation(user_id="u_a", hash="1", seed="s", expires_at=NOW + timedelta(days=1))


def store_of(house: House) -> LoginStore:
    stores: Any = house.store
    return SqlLogins(stores.engine.of("logins"))


class LoginSuite:
    """The suite."""

    async def test_an_invitation_is_used_up_by_one_of_those_who_try_at_once(self, house: House) -> None:
        store = store_of(house)
        await store.invite(LINK)
        assert await store.invitation("1") == LINK
        joined = await asyncio.gather(*(store.join(replace(ADA, seed=f"{n}"), [f"r{n}"], "1") for n in range(5)))
        assert sorted(joined) == [False] * 4 + [True]
        kept = await store.by_name("ada")
        assert kept is not None
        assert await store.recovery_codes("u_a") == [f"r{kept.seed}"]
        assert await store.invitation("1") is None

    async def test_a_new_invitation_takes_the_place_of_an_earlier_one_and_an_old_one_counts_for_nothing(
        self, house: House
    ) -> None:
        store = store_of(house)
        await store.invite(LINK)
        await store.invite(replace(LINK, hash="2", expires_at=NOW - timedelta(days=4_000)))
        assert [await store.invitation(one) for one in ("1", "2")] == [None, None]
        assert [await store.join(ADA, [], one) for one in ("1", "2")] == [False, False]
        await store.invite(replace(LINK, hash="3", user_id="u_b"))
        assert not await store.join(ADA, [], "3"), "it is for another person"
        assert not await store.is_any()

    async def test_a_name_is_one_person_s_and_the_invitation_of_another_stays(self, house: House) -> None:
        store = store_of(house)
        await store.invite(LINK)
        await store.invite(replace(LINK, user_id="u_b", hash="2"))
        assert await store.join(ADA, ["r"], "1")
        with pytest.raises(NameTaken):
            await store.join(replace(ADA, user_id="u_b"), [], "2")
        assert await store.join(replace(ADA, user_id="u_b", name_key="ben"), [], "2")
        await store.invite(replace(LINK, hash="4"))
        assert await store.join(replace(ADA, password="new"), [], "4"), "one's own name stays one's own"
        assert [one.password for one in await store.of(["u_a", "u_b", "u_c"])] == ["new", "h"]
        assert await store.recovery_codes("u_a") == []

    async def test_a_code_counts_once_whoever_shows_it_at_the_same_time(self, house: House) -> None:
        store = store_of(house)
        await store.invite(LINK)
        await store.join(ADA, ["r1", "r2"], "1")
        assert not await store.take_step("u_a", 7)
        steps = await asyncio.gather(*(store.take_step("u_a", 8) for _ in range(5)))
        codes = await asyncio.gather(*(store.take_recovery_code("u_a", "r1") for _ in range(5)))
        assert (sorted(steps), sorted(codes)) == ([False] * 4 + [True], [False] * 4 + [True])
        assert await store.take_step("u_a", 10)
        assert not await store.take_step("u_a", 9), "none from before comes back"
        assert await store.recovery_codes("u_a") == ["r2"]
        assert not await store.take_recovery_code("u_b", "r2")

    async def test_nothing_is_left_of_what_is_forgotten(self, house: House) -> None:
        store = store_of(house)
        await store.invite(LINK)
        await store.join(ADA, ["r1"], "1")
        await store.invite(replace(LINK, hash="2"))
        assert (await store.is_any(), await store.forget(["u_a", "u_b"]), await store.forget(["u_a"])) == (True, 1, 0)
        assert await store.by_name("ada") is None
        assert await store.recovery_codes("u_a") == []
        assert await store.invitation("2") is None
        assert not await store.is_any()
