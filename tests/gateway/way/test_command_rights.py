"""What a person may do by a command is what the services say, as for an API key or the operator."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import StoreUnavailable
from gateway.services.caller import Caller, ChatTurn, NotAllowed, Refused
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_memory_review import peopled, personality, says
from tests.gateway.way.test_pairing import PAIRED, become_owner, code_in, owner_says, talker


async def test_the_last_owner_is_not_erased_in_a_chat_either(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        asked = await owner_says(channel, "/forget-me")
        code = asked.partition("`/forget-me ")[2].partition("`")[0]
        assert await owner_says(channel, f"/forget-me {code}") == (
            "That did not work: this is the last owner; make somebody else an owner first"
        )
        assert not await gateway.privacy.eraser().due()
        await become_owner(gateway, channel, "101")
        assert "I am erasing everything about you now" in await owner_says(channel, f"/forget-me {code}")


async def test_two_owners_who_are_erased_or_revoked_at_once_leave_one(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        people, personal = gateway.services.people, gateway.services.personal
        for user in ("101", "102", "103"):
            await become_owner(gateway, channel, user)
        users = [await gateway.identities.resolve(f"fake:{user}", "") for user in ("101", "102", "103")]
        operator = Caller(name="test")
        ends = await asyncio.gather(
            personal.schedule_erasure(operator, users[0]),
            personal.schedule_erasure(operator, users[1]),
            people.revoke(operator, users[2]),
            return_exceptions=True,
        )
        assert [str(end)[:22] for end in ends if isinstance(end, Refused)] == ["this is the last owner"]
        assert sum(isinstance(end, BaseException) for end in ends) == 1


async def test_no_owner_revokes_the_operator_in_a_chat(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        for account in gateway.operators.accounts():
            answer = await owner_says(channel, f"/pair revoke {account}")
            assert "this is the operator of this gateway, who is always an owner" in answer
        assert not any(rank == "revoked" for rank in (await gateway.store.people.snapshot()).ranks.values())


async def test_an_account_that_never_wrote_is_revoked_as_well(house: House) -> None:
    async with house.gateway(talker(), fake={"access": "open"}) as (gateway, channel):
        await become_owner(gateway, channel)
        assert "fake:9: access is revoked everywhere." in await owner_says(channel, "/pair revoke fake:9")
        assert "not let in any more" in await channel.ask("hi", user="9", conversation="dm-9")


async def test_a_yes_to_a_stranger_is_committed_with_its_turn_and_not_before(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a turn that is tried again would find no request any more, and tell the owner so."""
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        code = code_in(await channel.ask("hi", user="7", conversation="dm-7"))
        commit, failures = gateway.store.turns.commit_turn, [StoreUnavailable("the disk is full")] * 2

        async def failing(turn):
            if failures:
                assert not (await gateway.store.people.snapshot()).admitted
                raise failures.pop()
            return await commit(turn)

        monkeypatch.setattr("gateway.pipeline.attempts.AFTER_FAULT_S", 0.01)
        monkeypatch.setattr(gateway.store.turns, "commit_turn", failing)
        assert "is let in on the channel" in await owner_says(channel, f"/pair {code}")
        assert not failures


async def test_in_a_chat_only_the_memory_of_who_answers_there_is_changed(house: House) -> None:
    async with peopled(house) as (gateway, channel):
        await says(channel, "REMEMBER<<memory|Here.>>")
        await settled(gateway)
        [entry] = await gateway.memory_provider.log()
        await says(channel, "/personality engineer")
        assert f"there is no change {entry.id} that you may take back" in await says(
            channel, f"/memory undo {entry.id}"
        )
        assert await says(channel, "/memory log") == "No change yet."
        await says(channel, "/personality assistant")
        assert "is taken back" in await says(channel, f"/memory undo {entry.id}")


async def test_only_the_owner_is_told_who_made_a_change(house: House) -> None:
    async with peopled(house) as (gateway, channel):
        await says(channel, "REMEMBER<<memory|By the owner.>>", "1")
        await settled(gateway)
        assert "by another person" in await says(channel, "/memory log", "2")
        await says(channel, "REMEMBER<<memory|By the member.>>", "2")
        await settled(gateway)
        member = await gateway.identities.resolve("fake:2", "")
        assert f"by `{member}`" in await says(channel, "/memory log", "1")


async def test_a_key_sees_the_proposals_of_all_ids_of_its_person_and_decides_on_no_shared_one(house: House) -> None:
    personality(house, "memory_writes: review\n")
    async with peopled(house) as (gateway, channel):
        await says(channel, "REMEMBER<<user|From before.>> REMEMBER<<memory|For all.>>", "2")
        absorbed = await gateway.identities.resolve("fake:2", "")
        survivor = await gateway.identities.resolve("fake:1", "")
        await gateway.services.people.link(Caller(name="test"), survivor, absorbed, is_one_kept=True)
        key = Caller(name="key", permissions=frozenset({"memory:read", "memory:write"}), user_id=survivor, key_id="k")
        proposals = await gateway.services.memory.proposals(key)
        assert [(one.store, one.user, one.is_decidable) for one in proposals] == [
            ("user", absorbed, True),
            ("memory", absorbed, False),
        ]


@pytest.mark.parametrize("role", ["member", "guest"])
async def test_who_may_not_let_people_in_is_refused_by_the_service_itself(house: House, role: str) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await channel.ask("hi", user="7", conversation="dm-7")
        turn = ChatTurn(role=role, personality_id="assistant", session_id="s_1", turn_id="t_1")  # type: ignore[arg-type]
        person = Caller(name="fake", user_id="u_1", chat=turn)
        for asked in (
            gateway.services.pairing.waiting(person),
            gateway.services.pairing.decision(person, "fake:7", is_yes=True),
            gateway.services.people.rank_change(person, "fake:7", "revoked"),
            gateway.services.people.set_role(person, "fake:7", "owner"),
        ):
            with pytest.raises(NotAllowed):
                await asked
