"""`/mcp` by HTTP: both eras, what each key may, two people, restarts, cancelled chats."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from mcp import MCPError
from mcp_types import TextResourceContents

from gateway.app.gateway import Gateway
from gateway.sdk.models.traces import AddTrace
from gateway.store.session_edits import SessionFilter
from gateway.web.mcp import resources
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel
from tests.servers import free_port

from .conftest import ERAS, OPERATOR, SERVES, WAIT_S, by_http, key_of, refusal, text_of, token_of, value

READING = {"memory_read", "memory_search", "memory_propose", "sessions_list", "session_read", "sessions_search"}
DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
}


async def ask(gateway: Gateway, key: str | None, **headers: str) -> httpx.Response:
    """One request without the SDK."""
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as client:
        return await client.post(f"{gateway.web.url}mcp", json=DISCOVER, headers={**HEADERS, **headers})


@pytest.fixture
async def gateway(house: House) -> AsyncIterator[Gateway]:
    """In which two people have talked: Ada of a teapot, Ben of a kettle."""
    async with house.served(mcp=SERVES) as running:
        await running.supervisor.all_tried.wait()
        [channel] = running.adapters
        assert isinstance(channel, FakeChannel)
        await channel.ask("Remember that my teapot is red", user="ada", conversation="c1")
        await channel.ask("Remember that my kettle is blue", user="ben", conversation="c2")
        await settled(running)
        yield running


async def user_of(gateway: Gateway, account: str) -> str:
    return await gateway.web.api.services.naming.user(OPERATOR, f"fake:{account}")


@pytest.mark.parametrize("era", ERAS)
async def test_the_operator_reads_searches_and_proposes(gateway: Gateway, era: str) -> None:
    ada = await user_of(gateway, "ada")
    async with by_http(gateway, token_of(gateway), era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {*READING, "schedules_list", "schedule_create", "send_message", "chat"}
        document = await value(client, "memory_read", store="user", user=ada)
        assert "Teapot" in document["content"]
        found = await value(client, "memory_search", query="red teapot", user=ada)
        assert "Teapot" in found["passages"][0]["text"]
        sessions = (await value(client, "sessions_list"))["sessions"]
        assert {one["channel"] for one in sessions} == {"fake"}
        page = await value(client, "sessions_list", limit=1)
        rest = await value(client, "sessions_list", limit=1, cursor=page["nextCursor"])
        assert [one["id"] for one in (*page["sessions"], *rest["sessions"])] == [one["id"] for one in sessions]
        [hit] = (await value(client, "sessions_search", query="kettle blue", limit=1))["messages"]
        transcript = await client.call_tool("session_read", {"session": hit["session"]})
        assert "my kettle is blue" in text_of(transcript)
        assert len((await value(client, "session_read", session=hit["session"], limit=1))["messages"]) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_proposal_waits_for_a_person_and_is_made_once(gateway: Gateway, era: str) -> None:
    ada = await user_of(gateway, "ada")
    wanted = {"store": "user", "content": "The lid is green", "user": ada, "idempotency_key": "one"}
    async with by_http(gateway, await key_of(gateway, "memory:read"), era) as client:
        first, again = [await value(client, "memory_propose", **wanted) for _ in range(2)]
        assert (first["id"], first["state"]) == (again["id"], "waiting")
        assert "lid" not in (await value(client, "memory_read", store="user", user=ada))["content"]
        assert "another proposal" in await refusal(client, "memory_propose", **{**wanted, "content": "It is grey"})
        assert "`memory:write`" in await refusal(client, "memory_propose", **{**wanted, "write": True})
    async with by_http(gateway, await key_of(gateway, "memory:read", "memory:write"), era) as client:
        written = await value(client, "memory_propose", **{**wanted, "write": True})
        assert written["state"] == "approved"
        assert "lid is green" in (await value(client, "memory_read", store="user", user=ada))["content"]


async def test_a_proposal_has_no_text_that_its_reader_cannot_see(gateway: Gateway) -> None:
    ada = await user_of(gateway, "ada")
    async with by_http(gateway, token_of(gateway), ERAS[1]) as client:
        wanted = {"store": "user", "user": ada, "write": True}
        await value(client, "memory_propose", content="Tea\u200b\0 at five", **wanted)
        assert "Tea at five" in (await value(client, "memory_read", store="user", user=ada))["content"]
        assert "blank" in await refusal(client, "memory_propose", content="\U000e0041", **wanted)


async def test_a_program_has_no_more_than_thirty_proposals_waiting(gateway: Gateway) -> None:
    ada = await user_of(gateway, "ada")
    async with by_http(gateway, await key_of(gateway, "memory:read"), ERAS[1]) as client:
        for number in range(30):
            await value(client, "memory_propose", store="user", content=f"fact {number}", user=ada)
        assert "30 proposals" in await refusal(client, "memory_propose", store="user", content="more", user=ada)


@pytest.mark.parametrize("era", ERAS)
async def test_the_key_of_a_person_sees_that_person_only(gateway: Gateway, era: str) -> None:
    ada, ben = await user_of(gateway, "ada"), await user_of(gateway, "ben")
    scopes = ("memory:read", "sessions:read", "chat:read", "chat:write")
    async with by_http(gateway, await key_of(gateway, *scopes, user=ada), era) as client:
        assert "Teapot" in (await value(client, "memory_read", store="user"))["content"]
        assert "one person only" in await refusal(client, "memory_read", store="user", user=ben)
        assert (await value(client, "memory_search", query="teapot"))["passages"]
        assert not (await value(client, "memory_search", query="kettle"))["passages"]
        [mine] = (await value(client, "sessions_list"))["sessions"]
        assert mine["user"] == ada
        assert not (await value(client, "sessions_search", query="kettle"))["messages"]
        uris = [one.uri for one in (await client.list_resources()).resources]
        assert f"ethos://sessions/{mine['id']}" in uris
        assert f"ethos://memory/user?user={ada}" in uris
        assert not [uri for uri in uris if ben in uri]
        [other] = [
            one.session.id
            for one in await gateway.store.session_edits.listed(SessionFilter(), limit=9)
            if one.session.user_id == ben
        ]
        assert "no session" in await refusal(client, "session_read", session=other)
        assert "no session" in await refusal(client, "send_message", session=other, text="Hi", idempotency_key="1")
        for uri in (f"ethos://sessions/{other}", f"ethos://memory/user?user={ben}"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


@pytest.mark.parametrize("era", ERAS)
async def test_memory_and_sessions_are_resources(gateway: Gateway, era: str) -> None:
    async with by_http(gateway, token_of(gateway), era) as client:
        listed = (await client.list_resources()).resources
        texts = []
        for one in listed:
            [content] = (await client.read_resource(one.uri)).contents
            assert isinstance(content, TextResourceContents)
            assert content.mime_type == "text/markdown"
            texts.append(content.text)
        assert "Teapot: red\n" in texts
        assert sum("my teapot is red" in text for text in texts) == 1
        templates = (await client.list_resource_templates()).resource_templates
        assert {one.name for one in templates} == {"memory", "session"}
        with pytest.raises(MCPError, match="no resource"):
            await client.read_resource("file:///etc/passwd")
        with pytest.raises(MCPError, match="no such page"):
            await client.list_resources(cursor="nonsense")


async def test_a_long_list_of_resources_comes_in_pages(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with by_http(gateway, token_of(gateway), ERAS[1]) as client:
        wanted = [one.uri for one in (await client.list_resources()).resources]
        monkeypatch.setattr(resources, "AT_ONCE", 1)
        page = await client.list_resources()
        found = [one.uri for one in page.resources]
        while page.next_cursor is not None:
            page = await client.list_resources(cursor=page.next_cursor)
            found += [one.uri for one in page.resources]
    assert (found, len(found)) == (wanted, 4)


async def test_facts_are_found_with_their_scope(house: House) -> None:
    async with house.served(mcp=SERVES, memory={"traces": {"enabled": True}}) as gateway:
        ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        fact = AddTrace(content="The teapot came from Ghent", user=ada)
        await gateway.web.api.services.traces.add(OPERATOR, fact)
        for scopes, amount in ((("memory:read",), 0), (("memory:read", "traces:read"), 1)):
            async with by_http(gateway, await key_of(gateway, *scopes, user=ada), ERAS[1]) as client:
                found = (await value(client, "memory_search", query="teapot"))["passages"]
                assert [one["text"] for one in found] == [fact.content] * amount


@pytest.mark.parametrize("era", ERAS)
async def test_a_schedule_is_made_once_for_the_person_of_the_key(house: House, era: str) -> None:
    channels = {"fake": {"kind": "tests.fake_channel", "role": "member"}}
    async with house.served(ScriptedModel("hi", "hi"), mcp=SERVES, channels=channels) as gateway:
        await gateway.supervisor.all_tried.wait()
        [channel] = gateway.adapters
        assert isinstance(channel, FakeChannel)
        for user in ("ada", "ben"):
            await channel.ask("hello", user=user, conversation=f"dm-{user}")
        ada = await user_of(gateway, "ada")
        wanted = {"text": "Tea", "cron": "0 17 * * *", "zone": "UTC", "idempotency_key": "tea"}
        key = await key_of(gateway, "schedules:read", "schedules:write", user=ada)
        async with by_http(gateway, key, era) as client:
            first, again = [await value(client, "schedule_create", **wanted) for _ in range(2)]
            assert (first["id"], first["conversation"], first["user"]) == (again["id"], "dm-ada", ada)
            assert "another form" in await refusal(client, "schedule_create", **{**wanted, "text": "Cake"})
            assert "exactly one of" in await refusal(client, "schedule_create", text="Tea", idempotency_key="two")
            assert "this key sees one person only" in await refusal(
                client, "schedule_create", **{**wanted, "user": "fake:ben", "idempotency_key": "three"}
            )
            listed = (await value(client, "schedules_list"))["schedules"]
            assert [(one["id"], one["when"]) for one in listed] == [(first["id"], "every day at 17:00 (UTC)")]
        async with by_http(gateway, token_of(gateway), era) as client:
            made = await client.call_tool("schedule_create", {**wanted, "user": "fake:ben", "zone": "Asia/Tokyo"})
            assert text_of(made).startswith("Schedule 2: every day at 17:00 (Asia/Tokyo). Next: ")
            assert text_of(made).count(" 17:00 JST") == 3
            assert [one["user"] for one in (await value(client, "schedules_list", user=ada))["schedules"]] == [ada]
            assert len((await value(client, "schedules_list"))["schedules"]) == 2


async def test_each_tool_needs_its_scope_and_is_shown_to_those_who_have_it(gateway: Gateway) -> None:
    needs = {
        "memory:read": {"memory_read", "memory_search", "memory_propose"},
        "sessions:read": {"sessions_list", "session_read", "sessions_search"},
        "schedules:read": {"schedules_list"},
        "schedules:write": {"schedule_create"},
        "system:read": set(),
        "chat:write": set(),
    }
    for scope, names in needs.items():
        async with by_http(gateway, await key_of(gateway, scope), ERAS[1]) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == names
            for name in {*READING, "schedules_list", "schedule_create", "send_message", "chat"} - names:
                assert "has no scope" in await refusal(client, name)
    async with by_http(gateway, await key_of(gateway, "system:read"), ERAS[1]) as client:
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError, match="has no scope"):
            await client.read_resource("ethos://memory/user")


async def test_the_annotations_say_what_each_tool_does(gateway: Gateway) -> None:
    async with by_http(gateway, token_of(gateway), ERAS[1]) as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    facts = {
        name: (one.read_only_hint, one.destructive_hint, one.idempotent_hint, one.open_world_hint)
        for name, one in hints.items()
        if one is not None
    }
    assert facts == {
        **dict.fromkeys({*READING, "schedules_list"} - {"memory_propose"}, (True, False, True, False)),
        "schedule_create": (False, False, True, True),
        "memory_propose": (False, True, False, False),
        "send_message": (False, False, True, True),
        "chat": (False, True, False, True),
    }


async def test_mistakes_are_told_field_by_field_and_an_unknown_tool_is_an_error(gateway: Gateway) -> None:
    async with by_http(gateway, token_of(gateway), ERAS[1]) as client:
        said = await refusal(client, "memory_read", store="nothing", person="ada")
        assert "store: " in said
        assert "person: " in said
        assert "say which" in await refusal(client, "memory_read", store="user")
        with pytest.raises(MCPError, match="there is no tool nothing"):
            await client.call_tool("nothing", {})


@pytest.mark.parametrize("era", ERAS)
async def test_a_message_is_sent_once_and_in_its_conversation(gateway: Gateway, era: str) -> None:
    [channel] = gateway.adapters
    assert isinstance(channel, FakeChannel)
    ada = await user_of(gateway, "ada")
    person = await key_of(gateway, "chat:write", "sessions:read", user=ada)
    for key in (token_of(gateway), person):
        before = len(channel.sent)
        async with by_http(gateway, key, era) as client:
            [session] = (await value(client, "sessions_list", user=ada))["sessions"]
            wanted = {"session": session["id"], "text": "The **tea** is ready", "idempotency_key": f"tea {key}"}
            first, again = [await value(client, "send_message", **wanted) for _ in range(2)]
            assert first == again
            assert "another message" in await refusal(client, "send_message", **{**wanted, "text": "No tea"})
        await settled(gateway)
        [message] = channel.sent[before:]
        assert (message.text, message.conversation.conversation) == ("The **tea** is ready", "c1")


async def test_a_person_sends_nothing_where_others_read_along(gateway: Gateway) -> None:
    [channel] = gateway.adapters
    assert isinstance(channel, FakeChannel)
    hello = channel.message("Hello all", user="ada", conversation="group", is_direct=False, mentions_bot=True)
    await channel.deliver(hello)
    await settled(gateway)
    ada = await user_of(gateway, "ada")
    async with by_http(gateway, await key_of(gateway, "chat:write", "sessions:read", user=ada), ERAS[1]) as client:
        [group] = [one for one in (await value(client, "sessions_list"))["sessions"] if one["conversation"] == "group"]
        said = await refusal(client, "send_message", session=group["id"], text="Hi", idempotency_key="1")
        assert "others may read along" in said


async def test_an_erasure_takes_what_programs_sent_and_proposed(gateway: Gateway) -> None:
    ada, services = await user_of(gateway, "ada"), gateway.web.api.services
    async with by_http(gateway, token_of(gateway), ERAS[1]) as client:
        [session] = (await value(client, "sessions_list", user=ada))["sessions"]
        await value(client, "send_message", session=session["id"], text="CANARY of tea", idempotency_key="1")
        await value(client, "memory_propose", store="user", content="CANARY of a lid", user=ada)
    await settled(gateway)
    assert (await services.personal.erase(OPERATOR, ada, confirmed=ada)).is_done
    sent = await gateway.store.deliveries.rows("outbox", chosen="all")
    proposed = await services.memory.proposals(OPERATOR, state=None)
    assert "CANARY" not in f"{[one.text for one in sent]} {proposed}"
    assert len(sent) == 1, "what Ben was told stays"


async def test_nobody_else_comes_in(gateway: Gateway) -> None:
    token = token_of(gateway)
    assert (await ask(gateway, token)).status_code == 200
    assert (await ask(gateway, None)).status_code == 401
    assert (await ask(gateway, "ethos_" + "x" * 40)).status_code == 401
    assert (await ask(gateway, "wrong")).status_code == 401
    key = await key_of(gateway, "memory:read")
    assert (await ask(gateway, key, origin="https://evil.example")).status_code == 403
    assert (await ask(gateway, token, origin="null")).status_code == 403
    assert (await ask(gateway, key, host="evil.example")).status_code == 421
    assert (await ask(gateway, key, **{"x-ethos-user": "fake:ada"})).status_code == 403
    assert (await ask(gateway, token, **{"x-ethos-user": "fake:nobody"})).status_code == 404
    async with httpx.AsyncClient(base_url=gateway.web.url or "", trust_env=False) as browser:
        await browser.post("/login", data={"token": token}, headers={"origin": (gateway.web.url or "").rstrip("/")})
        own_page = {**HEADERS, "origin": (gateway.web.url or "").rstrip("/"), "x-ethos-request": "1"}
        assert (await browser.post("/mcp", json=DISCOVER, headers=own_page)).status_code == 403


async def test_a_revoked_key_ends_with_the_next_request(gateway: Gateway) -> None:
    key = await key_of(gateway, "memory:read", "sessions:read")
    async with by_http(gateway, key, "legacy") as client:
        await value(client, "sessions_list")
        await gateway.web.api.services.keys.revoke(OPERATOR, "a key")
        with pytest.raises(MCPError):
            await client.call_tool("sessions_list", {})


async def test_a_session_of_one_key_gives_another_key_nothing_more(gateway: Gateway) -> None:
    """Who asks is found out with every request, whoever opened the session."""
    token, weak = token_of(gateway), await key_of(gateway, "system:read")
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=gateway.web.url or "", headers=accept, trust_env=False) as client:
        opened = await client.post("/mcp", json=start, headers={"authorization": f"Bearer {token}"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        wanted = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        strong = await client.post("/mcp", json=wanted, headers={**session, "authorization": f"Bearer {token}"})
        assert "memory_read" in strong.text
        answer = await client.post("/mcp", json=wanted, headers={**session, "authorization": f"Bearer {weak}"})
        assert '"tools":[]' in answer.text


async def test_off_it_says_how_to_switch_it_on_and_a_reload_does(house: House) -> None:
    async with house.served() as gateway:
        answer = await ask(gateway, token_of(gateway))
        assert answer.status_code == 404
        assert "mcp.serve: true" in answer.json()["detail"]
        path = house.home / "config.yaml"
        path.write_text(path.read_text() + "mcp: {serve: true}\n")
        assert (await gateway.reloading.reload()).at_once == ("mcp.serve",)
        assert (await ask(gateway, token_of(gateway))).status_code == 200


async def test_without_the_library_it_says_what_to_install(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gateway.web.mcp.application")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    async with house.served(mcp=SERVES) as gateway:
        answer = await ask(gateway, token_of(gateway))
        assert answer.status_code == 503
        assert "pip install" in answer.json()["detail"]
        assert "mcp" in answer.json()["detail"]


# ---- the agent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_chat_tells_what_happens_and_goes_on_in_its_session(house: House, era: str) -> None:
    told: list[str] = []

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        told.append(message or "")
        hang.released.set()

    hang = Hang()
    model = ScriptedModel(["Hello ", hang, "Ada"], "Hello again")
    async with house.served(model, mcp=SERVES) as gateway:
        key = await key_of(gateway, "chat:read", "chat:write")
        async with by_http(gateway, key, era) as client:
            first = await client.call_tool("chat", {"text": "Hi", "idempotency_key": "1"}, progress_callback=progress)
            assert not first.is_error, text_of(first)
            assert first.structured_content["text"] == "Hello Ada"
            assert told[0] == "writes"
            again = await value(client, "chat", text="Hi", idempotency_key="1")
            assert again == first.structured_content, "a repetition says nothing twice"
            second = await value(client, "chat", text="And?", session=again["session"])
            assert (second["session"], second["text"]) == (again["session"], "Hello again")
            assert "no session" in await refusal(client, "chat", text="Hi", session="s_nothing")


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_chat_is_stopped(house: House, era: str) -> None:
    hang = Hang()
    async with house.served(ScriptedModel(["So far", hang, "and on"]), mcp=SERVES) as gateway:
        async with by_http(gateway, token_of(gateway), era) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "chat", {"text": "Hi"})
            await asyncio.wait_for(hang.started.wait(), WAIT_S)
            group.cancel_scope.cancel()
        async with asyncio.timeout(WAIT_S):  # the model is never released: only a stop ends the turn
            await gateway.dispatcher.idle()
        assert not hang.released.is_set()


@pytest.mark.parametrize("era", ERAS)
async def test_a_restart_between_two_calls_goes_unnoticed(house: House, era: str) -> None:
    web = {"port": free_port()}
    async with house.served(ScriptedModel("one"), mcp=SERVES, web=web) as gateway:
        key = await key_of(gateway, "chat:read", "chat:write", "sessions:read")
        clients = by_http(gateway, key, era)
        client = await clients.__aenter__()
        first = await value(client, "chat", text="Hi", idempotency_key="1")
    async with house.served(ScriptedModel("two"), mcp=SERVES, web=web):
        assert await value(client, "chat", text="Hi", idempotency_key="1") == first
        assert (await value(client, "chat", text="Go on", session=first["session"]))["text"] == "two"
        await clients.__aexit__(None, None, None)


@pytest.mark.parametrize("era", ERAS)
async def test_the_end_of_the_gateway_stops_no_chat(house: House, era: str) -> None:
    """The answer is written after the restart, and a repetition of the call gets it."""
    hang = Hang()
    web = {"port": free_port()}
    async with house.served(ScriptedModel([hang]), mcp=SERVES, web=web, shutdown_s=0) as gateway:
        key = await key_of(gateway, "chat:read", "chat:write")
        clients = by_http(gateway, key, era)
        client = await clients.__aenter__()
        asked = asyncio.create_task(client.call_tool("chat", {"text": "Hi", "idempotency_key": "1"}))
        await asyncio.wait_for(hang.started.wait(), WAIT_S)
    await asyncio.wait({asked})
    async with house.served(ScriptedModel("late"), mcp=SERVES, web=web):
        assert (await value(client, "chat", text="Hi", idempotency_key="1"))["text"] == "late"
        await clients.__aexit__(None, None, None)
