"""The channel that is always there: a gateway with no other is well, and its operator is an owner once they talk."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from gateway.app.gateway import Gateway
from gateway.app.services import services_of
from gateway.people.access_records import SetRank
from gateway.people.linking.texts import NOT_BY_PROGRAM
from gateway.sdk.models.chat import ChatMessage, SendMessage
from gateway.services.caller import Caller, Refused, operator
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_health import until

OPERATOR = operator("test")
ADA = "fake:1"


async def say(gateway: Gateway, text: str, caller: Caller = OPERATOR) -> None:
    """Talk on the local channel, as the terminal and the web page do."""
    await gateway.chat.send(caller, SendMessage(conversation="main", text=text))
    await settled(gateway)


async def answer(gateway: Gateway, text: str, caller: Caller) -> str:
    """What the agent answers there."""
    sent = await gateway.chat.send(caller, SendMessage(conversation="main", text=text))
    await settled(gateway)
    (event,), _ = await gateway.chat.recent(caller, sent.session, limit=1)
    assert isinstance(event.data, ChatMessage)
    return event.data.text


async def make_owner(gateway: Gateway, account: str) -> str:
    """Let an account be the only owner by name; its user id."""
    change = SetRank(accounts=(account,), rank="owner", via="test", at=datetime.now(UTC))
    await gateway.store.people.change(change)
    gateway.people.changed()
    return await gateway.identities.resolve(account, "Ada")


async def test_a_gateway_without_any_other_channel_is_well(house: House) -> None:
    async with house.served(channels={}) as gateway:
        health = await until(gateway, lambda health: health.is_ready)
        assert (health.status, health.channels, health.problems) == ("ok", (), ())
        assert not await gateway.lacks_owner(), "nobody else could write, so nobody need be told how to become one"
        assert gateway.summary() == "0 turns running"
        await say(gateway, "Hello")
        (session,) = await gateway.store.sessions.list_sessions()
        assert session.conversation.channel == "local"


async def test_the_operator_is_known_from_the_first_message_there_on(house: House) -> None:
    async with house.served() as gateway:
        assert not await gateway.identities.users()
        await say(gateway, "Hello")
        (user,) = await gateway.identities.users()
        assert [account.key for account in user.accounts] == ["local:operator"]
        person = await services_of(gateway).people.show(OPERATOR, "local:operator")
        assert [(place.channel, place.how, place.role) for place in person.accounts[0].access] == [
            ("local", "owner", "owner")
        ]
        assert await gateway.lacks_owner(), "strangers can write on the other channel, and no owner is known there"


async def test_the_last_owner_stays_one_until_the_operator_has_talked(house: House) -> None:
    async with house.served() as gateway:
        services = services_of(gateway)
        ada = await make_owner(gateway, ADA)
        for refused in (
            services.people.set_role(OPERATOR, ada, "member"),
            services.people.revoke(OPERATOR, ada),
            services.people.refuse_to_erase(ada),
        ):
            with pytest.raises(Refused, match="this is the last owner"):
                await refused
        await say(gateway, "Hello")
        await services.people.refuse_to_erase(ada)
        assert (await services.people.set_role(OPERATOR, ada, "member")).role == "member"


async def test_an_operator_who_is_the_last_owner_too_does_not_stand_in_for_themselves(house: House) -> None:
    async with house.served() as gateway:
        services = services_of(gateway)
        await say(gateway, "Hello")
        operator_id = await gateway.identities.resolve("local:operator", "")
        await gateway.identities.add(ADA, "Ada", user_id=operator_id, via="test")
        assert await make_owner(gateway, ADA) == operator_id
        with pytest.raises(Refused, match="this is the last owner"):
            await services.people.refuse_to_erase(operator_id)
        with pytest.raises(Refused, match="this is the operator"):
            await services.people.revoke(OPERATOR, operator_id)


async def test_a_user_whose_id_is_the_operators_account_is_no_owner_by_their_key(house: House) -> None:
    (house.home / "users").mkdir(parents=True, mode=0o700)
    entry = {ADA: {"userId": "operator"}}
    (house.home / "users" / "identity-map.json").write_text(json.dumps({"version": 1, "identities": entry}))
    async with house.served() as gateway:
        services = services_of(gateway)
        key = await services.keys.create(OPERATOR, "phone", ["chat:read", "chat:write"], "operator")
        caller = await services.keys.caller(key.key)
        assert caller is not None
        before = await services.people.role_of("operator")
        await say(gateway, "Hello", caller)
        person = await services.people.show(OPERATOR, "operator")
        assert {account.key for account in person.accounts} == {ADA, "local:user-operator"}
        assert (person.is_operator, await services.people.role_of("operator")) == (False, before)
        assert before != "owner"


async def test_the_operator_links_accounts_there_and_no_program_does(house: House) -> None:
    """An account that a key has linked would stay linked once the key is revoked."""
    async with house.served() as gateway:
        services = services_of(gateway)
        assert "type within 10 minutes" in await answer(gateway, "/link", OPERATOR)
        await gateway.identities.resolve(ADA, "Ada")
        for user in (None, ADA):
            key = await services.keys.create(OPERATOR, "program", ["chat:read", "chat:write"], user)
            caller = await services.keys.caller(key.key)
            assert caller is not None
            for text in ("/link", "/link ACDE-FGHJ", "/link yes", "/unlink"):
                assert await answer(gateway, text, caller) == NOT_BY_PROGRAM, text


async def test_only_the_operator_is_told_where_an_export_lies_on_the_machine(house: House) -> None:
    async with house.served() as gateway:
        ada = await make_owner(gateway, ADA)
        told = [await answer(gateway, "/export", caller) for caller in (OPERATOR, Caller(name="key", user_id=ada))]
        assert [str(house.home) in text for text in told] == [True, False]
        assert "Ask the operator of this gateway for `exports/" in told[1]
