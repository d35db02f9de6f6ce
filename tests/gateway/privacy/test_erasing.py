"""Erasing: nothing of the person is left in any byte, and everybody else's is as it was (row 32)."""

from __future__ import annotations

import asyncio
import re

from gateway.app import Gateway
from tests.fake_channel import FakeChannel
from tests.gateway.privacy.conftest import account, add_traces, canary, found_in, quiet, say, talk, user_ids
from tests.gateway.way.conftest import House

PEOPLE = ("ada", "ben", "cem")


async def everybody_talks(gateway: Gateway, channel: FakeChannel) -> dict[str, str]:
    """Their user ids, by person."""
    for person in PEOPLE:
        await talk(channel, person)
    await quiet(gateway)
    known = await user_ids(gateway)
    return {person: known[account(person)] for person in PEOPLE}


async def erased(gateway: Gateway, user_id: str) -> None:
    """Wait until the gateway has erased somebody, as an operator would have it."""
    answer = await gateway.privacy.erase({"user": user_id})
    async with asyncio.timeout(20):
        while answer["erasure"] not in await gateway.store.database.read(_applied):
            await asyncio.sleep(0.01)


def _applied(connection: object) -> frozenset[str]:
    from gateway.store.erasure import applied_erasures

    return applied_erasures(connection)  # type: ignore[arg-type]


async def test_after_forget_me_no_byte_of_the_directory_tells_of_the_person(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        ids = await everybody_talks(gateway, channel)
        sessions = {each.user_id: each.id for each in await gateway.store.sessions.list_sessions()}
        await add_traces(house.home, [(person, ids[person], sessions[ids[person]]) for person in PEOPLE])
        assert found_in(house.home, [canary("ada"), account("ada"), ids["ada"]])
        asked = await say(channel, "/forget-me", "ada")
        code = re.search(r"/forget-me (\w+)", asked)
        assert code is not None
        last_word = await say(channel, f"/forget-me {code[1]}", "ada")
        assert "erasing everything" in last_word
        async with asyncio.timeout(20):
            while account("ada") in await user_ids(gateway):
                await asyncio.sleep(0.01)
            while await gateway.privacy.eraser().due():
                await asyncio.sleep(0.01)
    assert not found_in(house.home, [canary("ada"), account("ada"), "chat-ada-88", ids["ada"], "Person acct-ada"])
    for person in ("ben", "cem"):
        assert found_in(house.home, [f"{canary(person)}hidden"])
        assert found_in(house.home, [f"{canary(person)}three"])
