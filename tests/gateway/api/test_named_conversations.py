"""Conversations that a caller gives a name: where they are, who else has them, and where a stream of them begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from ethos import AsyncEthos, ChatMessage, ConflictError, Live, UnprocessableEntityError
from gateway.app.gateway import Gateway
from gateway.sdk.models.chat import SendMessage
from tests.gateway.way.conftest import House

from .conftest import OPERATOR, WAIT_S

ClientWith = Callable[[str | None], httpx.AsyncClient]


async def texts(client: AsyncEthos, conversation: str, **asked: Any) -> list[str]:
    """What a stream tells until it is live."""
    found = []
    async with asyncio.timeout(WAIT_S), aclosing(client.chat.events(conversation=conversation, **asked)) as events:
        async for event in events:
            if isinstance(event, Live):
                return found
            found.append(event.text if isinstance(event, ChatMessage) else type(event).__name__)
    raise AssertionError("it never became live")


@pytest.fixture
async def client(gateway: Gateway) -> Any:
    async with AsyncEthos(home=gateway.home, max_retries=0) as found:
        yield found


async def test_a_name_goes_on_where_it_was(client: AsyncEthos) -> None:
    first = await client.chat.ask("My name is Ada", conversation="main")
    again = await client.chat.ask("/whoami", conversation="main")
    other = await client.chat.ask("/whoami", conversation="work")
    assert first.session == again.session != other.session
    assert (await texts(client, "main"))[0] == "My name is Ada"
    assert len(await texts(client, "main")) == 4
    assert (await texts(client, "work"))[0] == "/whoami"


async def test_one_name_of_two_callers_is_two_conversations(
    gateway: Gateway, client: AsyncEthos, client_with: ClientWith, ada: str
) -> None:
    assert gateway.web.api is not None
    keys = gateway.web.api.services.keys
    scopes = ("chat:read", "chat:write")
    mine = await client.chat.ask("Hello", conversation="main")
    sessions = {mine.session}
    for made in (await keys.create(OPERATOR, "hers", scopes, ada), await keys.create(OPERATOR, "bot", scopes)):
        async with client_with(made.key) as api:
            sent = await api.post("/chat/messages", json={"text": "/whoami", "conversation": "main"})
            sessions.add(sent.json()["session"])
            begun = await api.get("/chat/events", params={"conversation": "other", "session": "none"})
            assert begun.status_code == 422
    assert len(sessions) == 3
    assert (await texts(client, "main"))[0] == "Hello"
    assert len(await texts(client, "main")) == 2, "what the others said is not in it"


async def test_a_new_session_begins_inside_a_name_and_the_conversation_stays(client: AsyncEthos) -> None:
    before = await client.chat.ask("Hello", conversation="main")
    await client.chat.ask("/new", conversation="main")
    after = await client.chat.ask("Hello again", conversation="main")
    assert before.session != after.session
    said = await texts(client, "main")
    assert [said[0], said[2], said[4]] == ["Hello", "/new", "Hello again"]


async def test_a_session_and_a_name_together_are_refused(client: AsyncEthos, operator_api: httpx.AsyncClient) -> None:
    session = (await client.chat.ask("Hello", conversation="main")).session
    for call in (
        client.chat.send("Hello", session=session, conversation="main"),
        client.chat.stop(session, conversation="main"),
        anext(aiter(client.chat.events(session, conversation="main"))),
        client.chat.stop(),
        anext(aiter(client.chat.events())),
    ):
        with pytest.raises(UnprocessableEntityError, match="name a session or a conversation"):
            await call
    assert len(await texts(client, "main")) == 2, "nothing of it was said"


async def test_who_answers_is_chosen_with_a_new_name_only(client: AsyncEthos) -> None:
    answer = await client.chat.ask("Hello", conversation="work", personality="engineer")
    assert (await client.sessions.get(answer.session)).personality == "engineer"
    await client.chat.ask("Hello", conversation="work", personality="engineer")
    with pytest.raises(ConflictError, match="engineer answers in this session"):
        await client.chat.send("Hello", conversation="work", personality="assistant")


@pytest.mark.parametrize(
    "name",
    ["two words", "日本語", "👨‍👩‍👧", "a/b/c", "../main", "n" * 100, "%2F&=?#", "e\u0301", "main/"],
)
async def test_any_printed_name_is_its_own_conversation(client: AsyncEthos, name: str) -> None:
    await client.chat.ask("Hello", conversation="main")
    assert await texts(client, name) == []
    answer = await client.chat.ask("/whoami", conversation=name)
    assert (await texts(client, name))[0] == "/whoami"
    assert (await texts(client, "main"))[0] == "Hello"
    assert (await client.sessions.get(answer.session)).channel == "local"


@pytest.mark.parametrize("name", ["", " ", " main", "main ", "a\nb", "a\x00b", "a\x1bb", "a\x7fb", "n" * 101])
async def test_a_name_that_cannot_be_printed_or_is_too_long_is_refused(
    operator_api: httpx.AsyncClient, name: str
) -> None:
    for refused in (
        await operator_api.post("/chat/messages", json={"text": "Hello", "conversation": name}),
        await operator_api.post("/chat/stop", json={"conversation": name}),
        await operator_api.get("/chat/events", params={"conversation": name}),
    ):
        assert refused.status_code == 422
        assert "conversation" in refused.json()["detail"]
    assert (await operator_api.get("/sessions")).json()["items"] == []


async def test_a_first_message_that_comes_twice_begins_one_session(gateway: Gateway, client: AsyncEthos) -> None:
    first = await client.chat.send("Hello", conversation="main", idempotency_key="once")
    await first.answer()
    again = await client.chat.send("Hello", conversation="main", idempotency_key="once")
    assert (again.session, again.message, again.sequence) == (first.session, first.message, first.sequence)
    assert len(await texts(client, "main")) == 2
    assert [one.id async for one in client.sessions.list()] == [first.session]
    said = SendMessage(conversation="main", text="Hello")
    kept = await gateway.chat.send(OPERATOR, said, seed="once")  # behind the day for which answers are kept
    assert (kept.session, kept.message, kept.sequence) == (first.session, first.message, first.sequence)


async def test_many_first_messages_at_once_are_in_one_session(gateway: Gateway, client: AsyncEthos) -> None:
    said = [gateway.chat.send(OPERATOR, SendMessage(conversation="main", text=f"Number {n}")) for n in range(8)]
    sessions = {accepted.session for accepted in await asyncio.gather(*said)}
    assert len(sessions) == 1
    assert [one.id async for one in client.sessions.list()] == [*sessions]


async def test_one_session_of_a_person_is_gone_on_with_under_every_name(tmp_path: Path) -> None:
    house = House(tmp_path / "home")
    async with house.served(session_scope="user") as gateway, AsyncEthos(home=gateway.home, max_retries=0) as client:
        first = await client.chat.ask("Hello", conversation="main")
        second = await client.chat.ask("Hello again", conversation="work")
        assert first.session == second.session, "one session"
        assert (await texts(client, "work"))[0] == "Hello again", "and two places"
        elsewhere = await client.chat.ask("By its id", session=(await client.chat.send("New")).session)
        assert elsewhere.session != first.session, "who names a session means that one"
        assert "".join([piece async for piece in client.chat.stream("More", conversation="third")])
        assert len(await texts(client, "main")) == 2


# ---- where a stream begins ------------------------------------------------------------------------------------------


async def test_a_conversation_that_has_not_begun_can_be_listened_to(client: AsyncEthos) -> None:
    async with asyncio.timeout(WAIT_S), aclosing(client.chat.events(conversation="later", last=10)) as events:
        live = await anext(events)
        assert isinstance(live, Live)
        assert live.sequence == 0
        await client.chat.send("Now", conversation="later")
        heard = [event.text async for event in _messages(events, 2)]
    assert heard[0] == "Now"
    assert [one.id async for one in client.sessions.list()] != []


async def _messages(events: Any, count: int) -> Any:
    async for event in events:
        if isinstance(event, ChatMessage):
            yield event
            count -= 1
            if not count:
                return


@pytest.mark.parametrize(("last", "heard"), [(0, 0), (1, 1), (2, 2), (5, 5), (6, 6), (7, 6), (5_000, 6)])
async def test_a_stream_begins_with_so_many_of_the_newest(client: AsyncEthos, last: int, heard: int) -> None:
    for number in range(3):
        await client.chat.ask(f"Number {number}", conversation="main")
        await client.chat.ask("Beside it", conversation="other")
    whole = await texts(client, "main")
    assert len(whole) == 6
    assert await texts(client, "main", after=None, last=last) == whole[6 - heard :]


async def test_a_place_that_is_known_counts_more_than_how_many(client: AsyncEthos) -> None:
    sent = await client.chat.send("One", conversation="main")
    await sent.answer()
    await client.chat.ask("Two", conversation="main")
    assert (await texts(client, "main", after=sent.sequence + 1, last=1))[-2] == "Two"
    assert len(await texts(client, "main", after=sent.sequence, last=1)) == 4


async def test_a_place_of_another_log_begins_as_it_was_asked_for(client: AsyncEthos) -> None:
    """As after a restore of an older backup: the reader has read further than there is."""
    await client.chat.ask("One", conversation="main")
    await client.chat.ask("Two", conversation="main")
    whole = await texts(client, "main")
    assert await texts(client, "main", after=10**9) == ["Reset", *whole]
    assert await texts(client, "main", after=10**9, last=1) == ["Reset", *whole[-1:]]
    assert await texts(client, "main", after=10**9, last=0) == ["Reset"]


async def test_where_nothing_was_said_yet_a_reader_goes_on_without_a_gap(
    client: AsyncEthos, operator_api: httpx.AsyncClient
) -> None:
    """It has read no message, so only `live` can say from where; its `id` does so to a browser, too."""
    await client.chat.ask("Before", conversation="main")
    asked = {"conversation": "main", "last": "0"}
    async with operator_api.stream("GET", "/chat/events", params=asked) as response:
        lines = response.aiter_lines()
        place = (await anext(lines)).removeprefix("id: ")
        assert await anext(lines) == "event: live"
    await client.chat.ask("While it was away", conversation="main")
    async with operator_api.stream("GET", "/chat/events", params=asked, headers={"last-event-id": place}) as response:
        data = [line async for line in _until_live(response)]
    assert len(data) == 2
    assert "While it was away" in data[0]


async def _until_live(response: httpx.Response) -> Any:
    async for line in response.aiter_lines():
        if line == "event: live":
            return
        if line.startswith("data: "):
            yield line


async def test_the_commands_are_listed_with_what_may_follow_them(client: AsyncEthos, client_with: ClientWith) -> None:
    commands = {one.name: one for one in await client.chat.commands()}
    assert set(commands["personality"].values) == {one.id for one in await client.personalities.list()}
    assert commands["new"].values == ()
    assert all(one.usage.startswith(f"/{name}") and one.description for name, one in commands.items())
    async with client_with(None) as api:
        assert (await api.get("/chat/commands")).status_code == 401
