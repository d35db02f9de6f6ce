"""Sessions by HTTP: found, read, forked, tidied; and nobody else's."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.domain.sessions import Role, Session, SessionMessage, conversation_key
from gateway.messages import ConversationRef
from gateway.store.sessions import save_message, save_session
from tests.gateway.way.conftest import settled

from .conftest import OPERATOR, WAIT_S

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
ClientWith = Callable[[str | None], httpx.AsyncClient]


async def said(
    gateway: Gateway,
    number: int,
    *texts: tuple[Role, str] | tuple[Role, str, str],
    user: str = "u_ada",
    personality: str = "assistant",
    channel: str = "web",
    summary_until: int = 0,
) -> str:
    """A session as turns leave it."""
    place = ConversationRef(channel=channel, conversation=f"c{number}")
    at = START + timedelta(minutes=number)
    session = Session(
        id=f"s_{number}",
        key=conversation_key(place),
        user_id=user,
        personality_id=personality,
        conversation=place,
        title=f"Session {number}",
        created_at=at,
        updated_at=at,
    )
    messages = [
        SessionMessage(
            session_id=session.id,
            turn_id=f"t_{number}",
            role=one[0],
            personality_id=personality,
            user_id=one[2] if len(one) == 3 else user,
            text=one[1],
            created_at=at,
            tool_name="calculator" if one[0] == "tool_call" else None,
        )
        for one in texts
    ]

    def work(connection: sqlite3.Connection) -> None:
        save_session(connection, session)
        for message in messages:
            save_message(connection, message)

    await gateway.store.engine.write(work)
    if summary_until:
        await gateway.store.sessions.save_summary(session.id, summary="What was.", until=summary_until)
    return session.id


async def ids(api: httpx.AsyncClient, **params: str) -> list[str]:
    return [one["id"] for one in (await api.get("/sessions", params=params)).json()["items"]]


async def test_sessions_come_newest_first_in_pages_and_by_their_marks(
    gateway: Gateway, operator_api: httpx.AsyncClient, ada: str
) -> None:
    for number in range(5):
        await said(gateway, number, ("user", "Hello"), user=ada)
    await said(gateway, 5, ("user", "Hello"), user="u_bob", personality="coach", channel="mail")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await operator_api.get("/sessions", params={"limit": "2", **cursor})).json()
        seen += [one["id"] for one in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen == ["s_5", "s_4", "s_3", "s_2", "s_1", "s_0"]
    assert await ids(operator_api, user=ada) == ["s_4", "s_3", "s_2", "s_1", "s_0"]
    assert await ids(operator_api, personality="coach") == await ids(operator_api, channel="mail") == ["s_5"]
    await operator_api.patch("/sessions/s_1", json={"isPinned": True})
    assert await ids(operator_api, pinned="true") == ["s_1"]
    assert "s_1" not in await ids(operator_api, pinned="false")


async def test_a_search_gives_sessions_with_their_passages(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    await said(gateway, 1, ("user", "Where is the blue teapot?"), ("assistant", "The teapot is on the shelf."))
    await said(gateway, 2, ("user", "The teapot broke."), channel="mail")
    await said(gateway, 3, ("user", "Nothing of it here."))
    page = (await operator_api.get("/sessions", params={"q": "teapot"})).json()
    assert {one["id"] for one in page["items"]} == {"s_1", "s_2"}
    both = next(one for one in page["items"] if one["id"] == "s_1")
    assert sorted(snippet["text"] for snippet in both["snippets"]) == [
        "The [teapot] is on the shelf.",
        "Where is the blue [teapot]?",
    ]
    assert await ids(operator_api, q="teapot", channel="mail") == ["s_2"]
    assert await ids(operator_api, q='"blue teapot"') == ["s_1"]
    assert await ids(operator_api, q="kettle") == []
    assert page["nextCursor"] is None


async def test_every_session_that_matches_is_found_page_by_page(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    for number in range(230):  # more than are ranked at once
        await said(gateway, number, ("user", f"Tea {number}"))
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await operator_api.get("/sessions", params={"q": "tea", "limit": "90", **cursor})).json()
        seen += [one["id"] for one in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert len(seen) == 230
    assert set(seen) == {f"s_{number}" for number in range(230)}


async def test_a_session_is_read_with_its_tool_calls_in_pages(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    await said(
        gateway, 1, ("user", "6 times 7?"), ("tool_call", '{"a": 6}'), ("tool_result", "42"), ("assistant", "42.")
    )
    first = (await operator_api.get("/sessions/s_1", params={"limit": "3"})).json()
    assert first["session"]["messages"] == 4
    assert [(one["role"], one["tool"]) for one in first["messages"]] == [
        ("user", None),
        ("tool_call", "calculator"),
        ("tool_result", None),
    ]
    rest = (await operator_api.get("/sessions/s_1", params={"cursor": first["nextCursor"]})).json()
    assert ([one["text"] for one in rest["messages"]], rest["nextCursor"]) == (["42."], None)
    assert (await operator_api.get("/sessions/s_nothing")).status_code == 404


async def test_a_session_is_exported_for_people_and_for_programs(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    await said(gateway, 1, ("user", "Hello"), ("tool_call", "```\ncode\n```"), ("assistant", "Grüße"))
    markdown = await operator_api.get("/sessions/s_1/export")
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert 'filename="s_1.md"' in markdown.headers["content-disposition"]
    assert markdown.text.startswith("# Session 1\n")
    assert "## assistant calls calculator" in markdown.text
    assert "\n````\n```\ncode\n```\n````\n" in markdown.text
    transcript = (await operator_api.get("/sessions/s_1/export", params={"format": "json"})).json()
    assert [one["text"] for one in transcript["messages"]] == ["Hello", "```\ncode\n```", "Grüße"]


async def test_a_fork_has_all_up_to_a_message_and_the_summary_that_covers_it(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    await said(gateway, 0, ("user", "Before"))
    await said(
        gateway, 1, ("user", "One"), ("assistant", "Two"), ("user", "Three"), ("assistant", "Four"), summary_until=3
    )
    messages = (await operator_api.get("/sessions/s_1")).json()["messages"]
    response = await operator_api.post("/sessions/s_1/fork", json={"message": messages[2]["id"]})
    assert response.status_code == 201
    fork = response.json()
    assert (fork["channel"], fork["forkedFrom"], fork["title"]) == ("local", "s_1", "Session 1 (fork)")
    copied = (await operator_api.get(f"/sessions/{fork['id']}")).json()["messages"]
    assert [one["text"] for one in copied] == ["One", "Two", "Three"]
    kept = await gateway.store.sessions.session(fork["id"])
    assert kept is not None
    assert (kept.summary, kept.summary_until) == ("What was.", copied[1]["id"])
    assert [one["text"] for one in (await operator_api.get("/sessions/s_1")).json()["messages"]] == [
        "One",
        "Two",
        "Three",
        "Four",
    ]
    assert set(await ids(operator_api, q="three")) == {"s_1", fork["id"]}
    early = (await operator_api.post("/sessions/s_1/fork", json={"message": messages[0]["id"], "title": "T"})).json()
    kept = await gateway.store.sessions.session(early["id"])
    assert kept is not None
    assert (kept.title, kept.summary) == ("T", "")
    assert (await operator_api.post("/sessions/s_1/fork", json={"message": 1})).status_code == 404


async def test_a_title_of_a_person_stays_when_a_turn_that_knew_another_is_committed(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    await said(gateway, 1, ("user", "Hello"))
    updated = await operator_api.patch("/sessions/s_1", json={"title": "Mine"})
    assert updated.json()["title"] == "Mine"
    await said(gateway, 1, ("user", "Again"))
    assert (await operator_api.get("/sessions/s_1")).json()["session"]["title"] == "Mine"
    assert (await operator_api.patch("/sessions/s_1", json={"title": ""})).status_code == 422
    assert (await operator_api.patch("/sessions/s_1", json={"text": "x"})).status_code == 422
    assert (await operator_api.patch("/sessions/s_2", json={"title": "x"})).status_code == 404


async def test_a_deleted_session_is_found_nowhere(gateway: Gateway, operator_api: httpx.AsyncClient) -> None:
    await said(gateway, 1, ("user", "Canary"))
    await said(gateway, 2, ("user", "Other"))
    assert await ids(operator_api, q="canary") == ["s_1"]
    assert (await operator_api.delete("/sessions/s_1")).status_code == 204
    assert (await operator_api.delete("/sessions/s_1")).status_code == 404
    assert await ids(operator_api) == ["s_2"]
    assert await ids(operator_api, q="canary") == []
    assert await gateway.store.sessions.active_session("3.web:2.c1:0.") is None
    dumped = await gateway.store.engine.read(lambda connection: "\n".join(map(str, connection.iterdump())))
    assert "Canary" not in dumped


async def test_the_key_of_a_person_sees_their_sessions_and_in_a_group_their_own_words(
    gateway: Gateway, client_with: ClientWith, ada: str
) -> None:
    await said(gateway, 1, ("user", "Of Ada"), user=ada)
    await said(gateway, 2, ("user", "Bob alone"), user="u_bob")
    await said(
        gateway, 3, ("user", "Ada in the group"), ("user", "Bob in the group", "u_bob"), user=ada, summary_until=99
    )
    assert gateway.web.api is not None
    scopes = ("sessions:read", "sessions:write")
    key = (await gateway.web.api.services.keys.create(OPERATOR, "a", scopes, ada)).key
    async with client_with(key) as api:
        assert await ids(api) == ["s_3", "s_1"]
        assert await ids(api, q="group") == ["s_3"]
        assert await ids(api, q="bob") == []
        assert (await api.get("/sessions", params={"user": "u_bob"})).status_code == 403
        group = (await api.get("/sessions/s_3")).json()["messages"]
        assert [one["text"] for one in group] == ["Ada in the group"]
        assert "Bob" not in (await api.get("/sessions/s_3/export")).text
        for call in (
            api.get("/sessions/s_2"),
            api.get("/sessions/s_2/export"),
            api.delete("/sessions/s_2"),
            api.patch("/sessions/s_2", json={"title": "x"}),
            api.post("/sessions/s_2/fork", json={"message": 2}),
            api.post("/sessions/s_3/fork", json={"message": group[0]["id"] + 1}),
        ):
            assert (await call).status_code == 404
        fork = (await api.post("/sessions/s_3/fork", json={"message": group[0]["id"]})).json()
    copied = await gateway.store.sessions.messages(fork["id"])
    assert [one.text for one in copied] == ["Ada in the group"]
    session = await gateway.store.sessions.session(fork["id"])
    assert session is not None
    assert session.summary == ""


async def test_the_key_of_a_person_changes_no_session_in_which_others_wrote(
    gateway: Gateway, client_with: ClientWith, ada: str
) -> None:
    await said(gateway, 1, ("user", "Ada in the group"), ("user", "Bob in the group", "u_bob"), user=ada)
    await said(gateway, 2, ("user", "Ada alone"), ("assistant", "Hello Ada"), user=ada)
    assert gateway.web.api is not None
    scopes = ("sessions:read", "sessions:write")
    key = (await gateway.web.api.services.keys.create(OPERATOR, "a", scopes, ada)).key
    async with client_with(key) as api:
        assert (await api.delete("/sessions/s_1")).status_code == 403
        assert (await api.patch("/sessions/s_1", json={"title": "Mine"})).status_code == 403
        assert (await api.patch("/sessions/s_2", json={"title": "Mine"})).status_code == 200
        assert (await api.delete("/sessions/s_2")).status_code == 204
    kept = [one.text for one in await gateway.store.sessions.messages("s_1")]
    assert kept == ["Ada in the group", "Bob in the group"]


async def test_a_session_that_is_deleted_while_a_turn_runs_brings_nothing_back_of_what_was_said(
    gateway: Gateway, operator_api: httpx.AsyncClient
) -> None:
    body = {"text": "The safe's number is 4711"}
    session = (await operator_api.post("/chat/messages", json=body)).json()["session"]
    await settled(gateway)
    await gateway.store.sessions.save_summary(session, summary="The safe was opened.", until=2)
    began, go_on = asyncio.Event(), asyncio.Event()
    window = gateway.history.window

    async def slow_window(*args: Any, **kwargs: Any) -> Any:
        found = await window(*args, **kwargs)
        began.set()
        await go_on.wait()
        return found

    gateway.history.window = slow_window  # type: ignore[method-assign]
    await operator_api.post("/chat/messages", json={"text": "And now?", "session": session})
    await asyncio.wait_for(began.wait(), WAIT_S)
    assert (await operator_api.delete(f"/sessions/{session}")).status_code == 204
    go_on.set()
    await settled(gateway)
    kept = await gateway.store.sessions.session(session)
    assert kept is not None
    assert (kept.title, kept.summary) == ("", "")
    assert "4711" not in (await operator_api.get(f"/sessions/{session}/export")).text


@pytest.mark.parametrize("title", ["", " ", "\t", "\0", "a\0b", "a\nb", " \x1f "])
async def test_a_title_is_one_line_with_something_to_see(operator_api: httpx.AsyncClient, title: str) -> None:
    response = await operator_api.patch("/sessions/s_1", json={"title": title})
    assert (response.status_code, response.json()["errors"][0]["where"]) == (422, "body.title")


@pytest.mark.parametrize("value", [0, 1, "true", "no"])
async def test_only_true_and_false_are_booleans(operator_api: httpx.AsyncClient, value: object) -> None:
    response = await operator_api.patch("/sessions/s_1", json={"isPinned": value})
    assert (response.status_code, response.json()["errors"][0]["where"]) == (422, "body.isPinned")


async def test_a_parameter_that_an_address_does_not_take_is_a_mistake(operator_api: httpx.AsyncClient) -> None:
    response = await operator_api.get("/sessions", params={"limt": 5, "q": "tea", "x": 1})
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {"where": "query.limt", "problem": "this address has no such parameter (did you mean `limit`?)"},
        {"where": "query.x", "problem": "this address has no such parameter"},
    ]
