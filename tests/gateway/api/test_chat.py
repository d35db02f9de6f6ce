"""Talking to the agent by HTTP, with a stream that loses and repeats nothing."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.messages import ConversationRef, InboundMessage
from gateway.runtime import observe
from gateway.sdk.models.chat import SendMessage
from gateway.store.sqlite.engine import SqliteEngine
from gateway.web.api.direct_chat import DirectChat
from tests.gateway.way.conftest import settled

from .conftest import OPERATOR, WAIT_S

ClientWith = Callable[[str | None], httpx.AsyncClient]


@dataclass(frozen=True)
class Heard:
    name: str
    data: dict[str, Any]
    place: str | None


async def frames(response: httpx.Response) -> AsyncIterator[Heard]:
    found: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            field, _, value = line.partition(": ")
            found[field] = value
        else:
            if "event" in found:
                yield Heard(found["event"], json.loads(found["data"]), found.get("id"))
            found = {}


@asynccontextmanager
async def listening(
    api: httpx.AsyncClient, session: str, last: str | None = None
) -> AsyncIterator[AsyncIterator[Heard]]:
    headers = {} if last is None else {"last-event-id": last}
    async with api.stream("GET", "/chat/events", params={"session": session}, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield frames(response)


async def until(heard: AsyncIterator[Heard], wanted: Callable[[Heard], bool]) -> list[Heard]:
    seen = []
    async with asyncio.timeout(WAIT_S):
        async for one in heard:
            seen.append(one)
            if wanted(one):
                return seen
    raise AssertionError(f"the stream ended before it came: {seen}")


def is_answer(heard: Heard) -> bool:
    return heard.name == "message" and heard.data["author"] == "agent"


async def say(api: httpx.AsyncClient, text: str, session: str | None = None, **more: Any) -> dict[str, str]:
    response = await api.post("/chat/messages", json={"text": text, "session": session, **more})
    assert response.status_code == 202, response.text
    answer: dict[str, str] = response.json()
    return answer


async def answered(api: httpx.AsyncClient, text: str, session: str | None = None, **more: Any) -> tuple[str, str]:
    """The session, and the text of the answer."""
    sent = await say(api, text, session, **more)
    async with listening(api, sent["session"]) as heard:
        seen = await until(heard, lambda one: is_answer(one) and one.data["replyTo"] == sent["message"])
    return sent["session"], seen[-1].data["text"]


async def test_what_is_said_is_answered_in_a_session_that_goes_on(operator_api: httpx.AsyncClient) -> None:
    session, text = await answered(operator_api, "My name is Ada")
    assert "Ada" in text
    again, text = await answered(operator_api, "/whoami", session)
    assert again == session
    transcript = (await operator_api.get(f"/sessions/{session}")).json()
    assert transcript["session"]["channel"] == "local"
    assert transcript["messages"][0]["text"] == "My name is Ada"
    assert [one["id"] for one in (await operator_api.get("/sessions")).json()["items"]] == [session]


async def test_the_stream_shows_previews_tools_and_the_answer(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    session, _ = await answered(operator_api, "Hello")
    async with listening(operator_api, session) as heard:
        seen = await until(heard, lambda one: one.name == "live")
        assert [one.data["author"] for one in seen[:-1]] == ["person", "agent"]
        await say(operator_api, "Remember that I like green tea", session)
        seen = await until(heard, is_answer)
        names = [one.name for one in seen]
        assert names[0] == "message"
        assert "typing" in names
        steps = [(one.data["tool"], one.data["state"], one.data["isOk"]) for one in seen if one.name == "tool"]
        assert steps == [("update_memory", "began", True), ("update_memory", "ended", True)]
        await say(operator_api, "Write 200 words", session)  # a short answer is there before its preview
        seen = await until(heard, is_answer)
    previews = [one for one in seen if one.name == "preview"]
    assert {one.data["id"] for one in previews} == {seen[-1].data["id"]}, "at least one is shown"
    assert all(one.place is None for one in seen if one.name != "message")


async def test_a_reader_who_comes_again_goes_on_behind_the_last_event(operator_api: httpx.AsyncClient) -> None:
    session, _ = await answered(operator_api, "One")
    async with listening(operator_api, session) as heard:
        before = await until(heard, is_answer)
    for text in ("Two", "Three"):
        await answered(operator_api, text, session)
    async with listening(operator_api, session, before[-1].place) as heard:
        missed = await until(heard, lambda one: one.name == "live")
    said = [one.data["text"] for one in missed if one.name == "message" and one.data["author"] == "person"]
    assert said == ["Two", "Three"]
    places = [int(one.place or 0) for one in (*before, *missed) if one.name == "message"]
    assert places == sorted(set(places))
    assert len(places) == 6


async def test_a_reader_who_is_cut_off_at_every_event_hears_each_once(operator_api: httpx.AsyncClient) -> None:
    session, _ = await answered(operator_api, "Start")
    talking = asyncio.create_task(talk(operator_api, session, 12))
    heard_ids: list[str] = []
    last: str | None = "0"
    while len(heard_ids) < 26:
        async with listening(operator_api, session, last) as heard:
            (*_, message) = await until(heard, lambda one: one.name == "message")
        heard_ids.append(message.data["id"])
        last = message.place
    await talking
    assert len(set(heard_ids)) == 26


async def talk(api: httpx.AsyncClient, session: str, times: int) -> None:
    for number in range(times):
        await say(api, f"Message {number}", session)


async def test_a_place_of_another_log_begins_anew(operator_api: httpx.AsyncClient) -> None:
    session, _ = await answered(operator_api, "One")
    async with listening(operator_api, session, "999999999") as heard:
        seen = await until(heard, lambda one: one.name == "live")
    assert [one.name for one in seen] == ["reset", "message", "message", "live"]
    bad = await operator_api.get("/chat/events", params={"session": session}, headers={"last-event-id": "x"})
    assert bad.status_code == 422


async def test_an_answer_that_is_being_written_can_be_stopped(operator_api: httpx.AsyncClient) -> None:
    session, _ = await answered(operator_api, "Hello")
    response = await operator_api.post("/chat/stop", json={"session": session})
    assert response.status_code == 202
    async with listening(operator_api, session) as heard:
        await until(heard, lambda one: is_answer(one) and one.data["replyTo"] == response.json()["message"])
    assert (await operator_api.post("/chat/stop", json={"session": "s_no"})).status_code == 404


async def test_a_repeated_send_says_it_once_even_where_the_first_answer_was_lost(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    headers = {"idempotency-key": "say-1"}
    body = {"text": "Once"}
    first = await operator_api.post("/chat/messages", json=body, headers=headers)

    def forget(connection: Any) -> None:  # as after a crash between the commit and the answer
        connection.execute("DELETE FROM idempotent_requests")

    await gateway.store.engine.write(forget)
    again = await operator_api.post("/chat/messages", json=body, headers=headers)
    assert again.json() == first.json()
    assert len((await operator_api.get("/sessions")).json()["items"]) == 1
    rows = await gateway.store.engine.read(
        lambda connection: connection.execute("SELECT count(*) FROM inbox WHERE channel = 'local'").fetchone()[0]
    )
    assert rows == 1


async def test_a_message_is_edited_and_answered_again_and_all_versions_know_each_other(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    async def messages(session: str) -> list[dict[str, Any]]:
        found = (await operator_api.get(f"/sessions/{session}")).json()["messages"]
        return [one for one in found if one["role"] == "user"]

    async def edited(session: str, turn: str, seed: str, **text: str) -> str:
        body = {"session": session, "turn": turn, **text}
        response = await operator_api.post("/chat/edit", json=body, headers={"idempotency-key": seed})
        assert response.status_code == 202, response.text
        await settled(gateway)
        made: str = response.json()["session"]
        return made

    async def versions(session: str) -> list[tuple[str, tuple[str, ...], int]]:
        found = (await operator_api.get(f"/sessions/{session}/versions")).json()["items"]
        return [(one["turn"].partition(":")[0], tuple(one["sessions"]), one["shown"]) for one in found]

    first, _ = await answered(operator_api, "One")
    await answered(operator_api, "Two", first)
    await answered(operator_api, "Three", first)
    _, two, _ = [message["turn"] for message in await messages(first)]
    second = await edited(first, two, "a", text="Two, but better")
    assert await edited(first, two, "a", text="Two, but better") == second, "the same request makes one branch"
    assert [message["text"] for message in await messages(second)] == ["One", "Two, but better"]
    assert [message["text"] for message in await messages(first)] == ["One", "Two", "Three"]
    third = await edited(second, (await messages(second))[1]["turn"], "b")
    assert [message["text"] for message in await messages(third)] == ["One", "Two, but better"]
    all_of_two = (first, second, third)
    assert await versions(first) == [(two, all_of_two, 0)]
    assert [(each, shown) for _, each, shown in await versions(second)] == [(all_of_two, 1)]
    assert [(each, shown) for _, each, shown in await versions(third)] == [(all_of_two, 2)]

    fourth = await edited(third, (await messages(third))[0]["turn"], "c", text="Uno")
    assert {each: shown for _, each, shown in await versions(third)} == {all_of_two: 2, (first, fourth): 0}
    assert {each: shown for _, each, shown in await versions(fourth)} == {(first, fourth): 1}
    shown = (await operator_api.get(f"/sessions/{fourth}")).json()["session"]
    assert (shown["branchOf"], shown["forkedFrom"], shown["title"]) == (first, third, "Uno")

    assert (await operator_api.delete(f"/sessions/{first}")).status_code == 204
    assert [each for _, each, _ in await versions(third)] == [(second, third)]
    for body in (
        {"session": second, "turn": "t_no"},
        {"session": "s_no", "turn": two},
        {"session": second, "turn": two},
    ):
        assert (await operator_api.post("/chat/edit", json=body)).status_code == 404
    assert (
        await operator_api.post("/chat/edit", json={"session": second, "turn": "x", "text": " "})
    ).status_code == 422


async def test_an_edited_message_keeps_its_files_and_an_event_names_its_turn(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    file = {"filename": "a.txt", "mediaType": "text/plain", "data": base64.b64encode(b"Kiwi").decode()}
    session, _ = await answered(operator_api, "Read it", attachments=[file])
    async with listening(operator_api, session) as heard:
        asked, answer, *_ = await until(heard, lambda one: one.name == "live")
    assert asked.data["files"] == [{"filename": "a.txt", "mediaType": "text/plain", "sizeBytes": 4}]
    assert asked.data["turn"] == answer.data["turn"] != ""
    body = {"session": session, "turn": asked.data["turn"], "text": "Read it again"}
    branch = (await operator_api.post("/chat/edit", json=body)).json()["session"]
    await settled(gateway)
    async with listening(operator_api, branch) as heard:
        again, *_ = await until(heard, lambda one: one.name == "live")
    assert (again.data["text"], again.data["files"]) == ("Read it again", asked.data["files"])


async def test_nobody_edits_the_message_of_somebody_else(
    gateway: Gateway, operator_api: httpx.AsyncClient, client_with: ClientWith
) -> None:
    assert gateway.web.api is not None
    session, _ = await answered(operator_api, "Mine")
    [message, *_] = (await operator_api.get(f"/sessions/{session}")).json()["messages"]
    made = await gateway.web.api.services.keys.create(OPERATOR, "bot", ("chat:read", "chat:write", "sessions:read"))
    async with client_with(made.key) as api:
        body = {"session": session, "turn": message["turn"], "text": "Yours"}
        assert (await api.post("/chat/edit", json=body)).status_code == 404


async def test_a_fork_goes_on_and_another_channels_session_does_not(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    session, _ = await answered(operator_api, "The password is teapot")
    messages = (await operator_api.get(f"/sessions/{session}")).json()["messages"]
    fork = (await operator_api.post(f"/sessions/{session}/fork", json={"message": messages[-1]["id"]})).json()
    await answered(operator_api, "And now?", fork["id"])
    assert (await operator_api.get(f"/sessions/{fork['id']}")).json()["session"]["messages"] == len(messages) + 2
    assert (await operator_api.get(f"/sessions/{session}")).json()["session"]["messages"] == len(messages)

    def move(connection: Any) -> None:
        connection.execute("UPDATE sessions SET channel = 'mail' WHERE id = ?", (session,))

    await gateway.store.engine.write(move)
    for call in (
        operator_api.post("/chat/messages", json={"text": "x", "session": session}),
        operator_api.post("/chat/stop", json={"session": session}),
        operator_api.get("/chat/events", params={"session": session}),
    ):
        response = await call
        assert response.status_code == 409
        assert "fork it" in response.json()["detail"]


async def test_who_answers_is_chosen_with_a_new_session(operator_api: httpx.AsyncClient) -> None:
    session, _ = await answered(operator_api, "Hello", personality="engineer")
    assert (await operator_api.get(f"/sessions/{session}")).json()["session"]["personality"] == "engineer"
    other = await operator_api.post(
        "/chat/messages", json={"text": "x", "session": session, "personality": "assistant"}
    )
    assert other.status_code == 409
    unknown = await operator_api.post("/chat/messages", json={"text": "x", "personality": "nobody"})
    assert unknown.status_code == 404


async def test_a_file_is_read_and_too_much_is_refused(operator_api: httpx.AsyncClient) -> None:
    def file(data: bytes) -> dict[str, str]:
        return {"filename": "n.txt", "mediaType": "text/plain", "data": base64.b64encode(data).decode()}

    session, _ = await answered(operator_api, "Look", attachments=[file(b"The kettle is red.")])
    asked = (await operator_api.get(f"/sessions/{session}")).json()["messages"][0]["text"]
    assert "n.txt" in asked
    large = await operator_api.post(
        "/chat/messages", json={"text": "Look", "attachments": [file(b"x" * 5 * 1024 * 1024)]}
    )
    assert large.status_code == 422
    assert (await operator_api.post("/chat/messages", json={"text": " "})).status_code == 422


async def test_a_person_talks_as_themselves_and_a_program_is_nobody_of_these(
    gateway: Gateway, client_with: ClientWith, operator_api: httpx.AsyncClient, ada: str
) -> None:
    assert gateway.web.api is not None
    keys = gateway.web.api.services.keys
    scopes = ("chat:read", "chat:write", "sessions:read")
    hers = (await keys.create(OPERATOR, "hers", scopes, ada)).key
    program = await keys.create(OPERATOR, "bot", scopes)
    async with client_with(hers) as api:
        session, _ = await answered(api, "Hello")
        assert (await api.get(f"/sessions/{session}")).json()["session"]["user"] == ada
    operators, _ = await answered(operator_api, "Hello")
    owner = (await operator_api.get(f"/sessions/{operators}")).json()["session"]["user"]
    async with client_with(program.key) as api:
        own, text = await answered(api, "/pair list")
        assert "owner" in text
        user = (await api.get(f"/sessions/{own}")).json()["session"]["user"]
        assert user not in (ada, owner)
    async with client_with(hers) as api:
        for other in (operators, own):
            assert (await api.get("/chat/events", params={"session": other})).status_code == 404
            assert (await api.post("/chat/messages", json={"text": "x", "session": other})).status_code == 404
    names = {user.id: [account.key for account in user.accounts] for user in await gateway.identities.users()}
    assert [name.partition(":")[0] for name in names[ada]] == ["mail", "local"]
    assert names[owner] == ["local:operator"]


async def test_a_key_without_a_person_talks_in_its_own_sessions_only(
    gateway: Gateway, client_with: ClientWith, operator_api: httpx.AsyncClient
) -> None:
    assert gateway.web.api is not None
    session, _ = await answered(operator_api, "Hello")
    program = await gateway.web.api.services.keys.create(OPERATOR, "bot", ("chat:read", "chat:write"))
    async with client_with(program.key) as api:
        for known in (False, True):  # before and after its own account has talked
            for call in (
                api.post("/chat/messages", json={"text": "Remember that I am Mallory", "session": session}),
                api.post("/chat/stop", json={"session": session}),
                api.get("/chat/events", params={"session": session}),
            ):
                assert (await call).status_code == 404, known
            await answered(api, "Again", (await answered(api, "Hello"))[0])
    assert len((await operator_api.get(f"/sessions/{session}")).json()["messages"]) == 2


@pytest.mark.parametrize("place", [{}, {"conversation": "main"}])
async def test_the_key_of_a_guest_chooses_no_personality(
    gateway: Gateway, client_with: ClientWith, operator_api: httpx.AsyncClient, ada: str, place: dict[str, str]
) -> None:
    assert gateway.web.api is not None
    keys, wanted = gateway.web.api.services.keys, {"text": "Hello", "personality": "engineer", **place}
    program = await keys.create(OPERATOR, "bot", ("chat:write",))
    hers = await keys.create(OPERATOR, "hers", ("chat:write",), ada)
    for made in (program, hers):
        async with client_with(made.key) as api:
            refused = await api.post("/chat/messages", json=wanted)
            assert refused.status_code == 403
            assert "leave `personality` out" in refused.json()["detail"]
            assert (await api.post("/chat/messages", json={**wanted, "personality": "assistant"})).status_code == 202
    await operator_api.put(f"/people/{ada}/role", json={"role": "member"})
    async with client_with(hers.key) as api:
        assert (await api.post("/chat/messages", json={**wanted, "conversation": "new"})).status_code == 202


async def test_a_stream_ends_with_its_key_before_it_tells_anything_more(
    gateway: Gateway, client_with: ClientWith, operator_api: httpx.AsyncClient
) -> None:
    assert gateway.web.api is not None
    keys = gateway.web.api.services.keys
    program = await keys.create(OPERATOR, "bot", ("chat:read", "chat:write"))
    async with client_with(program.key) as api:
        session, _ = await answered(api, "Hello")
    async with client_with(program.key) as api, listening(api, session) as heard:
        await until(heard, lambda one: one.name == "live")
        await keys.revoke(OPERATOR, program.id)
        await answered(operator_api, "This is a secret", session)
        async with asyncio.timeout(WAIT_S):
            assert [one async for one in heard] == []


async def test_a_message_in_a_session_asks_the_store_no_more_often_than_it_did(
    gateway: Gateway, operator_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the one write that accepts it: the session before. Its place in the log is known from the write."""
    session, _ = await answered(operator_api, "Hello")
    counted: Counter[str] = Counter()
    sending = asyncio.current_task()  # the turn before and its stream may end meanwhile

    def count(name: str) -> None:
        plain = getattr(SqliteEngine, name)

        def counting(*args: Any, **more: Any) -> Any:
            if asyncio.current_task() is sending:
                counted[name] += 1
            return plain(*args, **more)

        monkeypatch.setattr(SqliteEngine, name, counting)

    async def keep(_message: InboundMessage) -> int:
        counted["keep"] += 1
        return 8

    assert gateway.web.api is not None
    monkeypatch.setattr(gateway.inbox, "accept", keep)
    desk = gateway.web.api.services.chat
    count("read")
    count("write")
    sent = await desk.send(OPERATOR, SendMessage(text="Hello again", session=session))
    assert sent.sequence == 7
    assert counted == {"read": 1, "keep": 1}


ODD_SENDS: dict[str, dict[str, Any]] = {
    "plain": {"json": {"text": "hello"}},
    "in a session": {"json": {"text": "hello", "session": "{session}"}},
    "a repetition": {"json": {"text": "hello"}, "headers": {"idempotency-key": "again"}},
    "a charset": {"content": b'{"text": "hi"}', "headers": {"content-type": "application/json; charset=utf-8"}},
    "another media type": {"content": b'{"text": "hi"}', "headers": {"content-type": "text/plain"}},
    "no media type": {"content": b'{"text": "hi"}'},
    "blank": {"json": {"text": " "}},
    "no text": {"json": {}},
    "an unknown field": {"json": {"text": "hi", "sesion": "s"}},
    "a number": {"json": {"text": 7}},
    "no JSON": {"content": b"{", "headers": {"content-type": "application/json"}},
    "no UTF-8": {"content": b'{"text": "\xff"}', "headers": {"content-type": "application/json"}},
    "half a character": {"content": b'{"text": "\\ud800"}', "headers": {"content-type": "application/json"}},
    "nothing": {"content": b"", "headers": {"content-type": "application/json"}},
    "an unknown parameter": {"json": {"text": "hi"}, "params": {"sesion": "s"}},
    "no such session": {"json": {"text": "hi", "session": "s_none"}},
    "no such personality": {"json": {"text": "hi", "personality": "nowhere"}},
    "another channel's session": {"json": {"text": "hi", "session": "s_foreign"}},
    "too large a file": {"json": {"text": "hi", "attachments": [{"data": "A" * 6_000_000, "filename": "a"}]}},
    "no file": {"json": {"text": "hi", "attachments": [{"data": "%%%", "filename": "a", "mediaType": "text/plain"}]}},
}


PLAIN_SENDS = frozenset(
    {
        "plain",
        "in a session",
        "a repetition",
        "no such session",
        "no such personality",
        "another channel's session",
    }
)


@pytest.mark.parametrize("name", ODD_SENDS)
async def test_the_direct_way_answers_as_the_route_does(
    gateway: Gateway, operator_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A plain message takes the direct way and all others the route, and the answers are the same."""
    session, _ = await answered(operator_api, "Hello")
    foreign = replace(
        (await gateway.store.sessions.session(session)),  # type: ignore[type-var]
        id="s_foreign",
        key="cli:there",
        conversation=ConversationRef(channel="cli", conversation="there"),
    )
    await gateway.store.session_edits.open(foreign)
    request = dict(ODD_SENDS[name])
    if "session" in request.get("json", {}):
        request["json"] = {**request["json"], "session": request["json"]["session"].format(session=session)}

    taken = Counter[str]()
    directly = DirectChat._send
    monkeypatch.setattr(DirectChat, "_send", lambda *asked: taken.update(["direct"]) or directly(*asked))
    differing = {"date", "content-length", "idempotency-replayed"}

    async def answer() -> tuple[int, dict[str, str], dict[str, Any]]:
        response = await operator_api.post("/chat/messages", **request)
        headers = {name: value for name, value in response.headers.items() if name not in differing}
        return response.status_code, headers, response.json()

    direct = await answer()
    assert taken["direct"] == (name in PLAIN_SENDS)
    monkeypatch.setattr("gateway.web.api.direct_chat._is_plain_message", lambda _scope: False)
    by_route = await answer()
    assert taken["direct"] == (name in PLAIN_SENDS)
    assert direct[:2] == by_route[:2]
    if direct[0] == 202 and name != "a repetition":  # another message has another id
        assert direct[2].keys() == by_route[2].keys()
    else:
        assert direct[2] == by_route[2]


ODD_STREAMS: dict[str, dict[str, Any]] = {
    "plain": {"params": {"session": "{session}"}},
    "behind a place": {"params": {"session": "{session}"}, "headers": {"last-event-id": "1"}},
    "a place that is no number": {"params": {"session": "{session}"}, "headers": {"last-event-id": "1x"}},
    "an endless place": {"params": {"session": "{session}"}, "headers": {"last-event-id": "9" * 19}},
    "a place in other digits": {"params": {"session": "{session}"}, "headers": {"last-event-id": b"\xc2\xb2"}},
    "no session": {},
    "two sessions": {"params": [("session", "{session}"), ("session", "s_other")]},
    "an empty session": {"params": {"session": ""}},
    "a long session": {"params": {"session": "s" * 65}},
    "no such session": {"params": {"session": "s_none"}},
    "an unknown parameter": {"params": {"session": "{session}", "first": "1"}},
    "the newest": {"params": {"session": "{session}", "last": "1"}},
    "none but new ones": {"params": {"session": "{session}", "last": "0"}},
    "as many as may be": {"params": {"session": "{session}", "last": "5000"}},
    "too many": {"params": {"session": "{session}", "last": "5001"}},
    "fewer than none": {"params": {"session": "{session}", "last": "-1"}},
    "a number in words": {"params": {"session": "{session}", "last": "one"}},
    "a name": {"params": {"conversation": "ma in/ü"}},
    "a session and a name": {"params": {"session": "{session}", "conversation": "main"}},
    "an empty name": {"params": {"conversation": ""}},
    "a name between spaces": {"params": {"conversation": " main "}},
    "a name with a line end": {"params": {"conversation": "main\nother"}},
    "a long name": {"params": {"conversation": "n" * 101}},
}
PLAIN_STREAMS = {
    "plain",
    "behind a place",
    "no such session",
    "the newest",
    "none but new ones",
    "as many as may be",
    "a name",
    "a session and a name",
    "no session",
}


@pytest.mark.parametrize("name", ODD_STREAMS)
async def test_the_direct_way_to_the_events_is_that_of_the_route(
    operator_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    session, _ = await answered(operator_api, "Hello")
    asked = ODD_STREAMS[name].get("params", {})
    pairs = [
        (key, value.format(session=session)) for key, value in (asked.items() if isinstance(asked, dict) else asked)
    ]
    request = {**ODD_STREAMS[name], "params": pairs}

    async def answer() -> tuple[int, dict[str, str], object]:
        async with operator_api.stream("GET", "/chat/events", **request) as response:
            headers = {name: value for name, value in response.headers.items() if name != "date"}
            if response.status_code != 200:
                return response.status_code, headers, json.loads(await response.aread())
            seen = await until(frames(response), lambda one: one.name == "live")
            return response.status_code, headers, seen

    taken = Counter[str]()
    directly = DirectChat._stream
    monkeypatch.setattr(DirectChat, "_stream", lambda *asked: taken.update(["direct"]) or directly(*asked))
    direct = await answer()
    assert taken["direct"] == (name in PLAIN_STREAMS)
    monkeypatch.setattr(DirectChat, "_events", lambda *_: None)
    assert direct == await answer()
    assert taken["direct"] == (name in PLAIN_STREAMS)


@pytest.mark.parametrize("query", ["", "?session=s"])
async def test_the_direct_way_to_the_commands_is_that_of_the_route(
    operator_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    async def answer() -> tuple[int, dict[str, str], object]:
        response = await operator_api.get(f"/chat/commands{query}")
        headers = {name: value for name, value in response.headers.items() if name != "date"}
        return response.status_code, headers, response.json()

    taken = Counter[str]()
    directly = DirectChat._commands
    monkeypatch.setattr(DirectChat, "_commands", lambda chat: taken.update(["direct"]) or directly(chat))
    direct = await answer()
    assert direct[0] == (422 if query else 200)
    assert taken["direct"] == (not query)
    monkeypatch.setattr("gateway.web.api.direct_chat.COMMANDS", "/none")
    assert direct == await answer()
    assert taken["direct"] == (not query)


async def test_a_message_and_its_answer_cost_two_durable_commits(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    """One accepts it, one is the turn's, which delivers the reply, too."""
    session, _ = await answered(operator_api, "Hello")

    class Commits(observe.Listener):
        durable = 0

        def began(self, span: observe.Span) -> None: ...

        def ended(self, span: observe.Span) -> None: ...

        def happened(self, name: str, facts: Mapping[str, observe.Fact]) -> None:
            self.durable += name == "store.commit" and bool(facts["is_durable"])

    commits = Commits()
    with observe.listening(commits):
        await answered(operator_api, "Hello again", session)
        await asyncio.wait_for(gateway.dispatcher.idle(), WAIT_S)
    assert commits.durable == 2


async def test_all_who_watch_cost_one_listener_to_the_tools(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    """Every span asks every listener, so a thousand of them would slow every turn down; and one does, if to all."""
    session, _ = await answered(operator_api, "Hello")
    async with AsyncExitStack() as stack:
        for _ in range(5):
            heard = await stack.enter_async_context(listening(operator_api, session))
            await until(heard, lambda one: one.name == "live")
        assert observe._listeners == ()
        assert len(observe._listeners_to["tool.call"]) == 1
        await say(operator_api, "Remember that I like green tea", session)
        seen = await until(heard, is_answer)
    assert [one.data["state"] for one in seen if one.name == "tool"] == ["began", "ended"]
