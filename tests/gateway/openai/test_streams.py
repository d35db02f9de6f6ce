"""Answers that grow, programs that go away or ask again, and what comes where there is no answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.agent.model import StreamRestarted
from gateway.errors import ModelUnavailable
from gateway.services import stream as event_stream
from gateway.services import talks
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call

from .conftest import (
    OPERATOR,
    answer,
    assistant,
    client_of,
    has_answer,
    key_of,
    refusal,
    sessions_of,
    texts_of,
    until,
    user,
)

HELLO = {"model": "ethos", "messages": [user("Hello")]}
AGAIN = {"x-stainless-retry-count": "1"}


async def lines_of(response: httpx.Response) -> AsyncIterator[str]:
    """The lines of a stream that are not empty."""
    async for line in response.aiter_lines():
        if line:
            yield line


async def frames(client: httpx.AsyncClient, body: dict[str, Any]) -> list[Any]:
    """All events of a stream, `[DONE]` among them."""
    async with client.stream("POST", "/chat/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        found = [line.removeprefix("data: ") async for line in lines_of(response) if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in found]


def text_of(found: list[Any]) -> str:
    chunks = [one for one in found if one != "[DONE]" and one.get("choices")]
    return "".join(one["choices"][0]["delta"].get("content", "") for one in chunks)


async def test_a_stream_begins_while_the_model_writes_and_ends_with_what_was_used(house: House) -> None:
    hang = Hang()
    model = ScriptedModel(["Hello. ", hang, "How are you?"])
    async with house.served(model) as gateway, client_of(gateway) as client:
        body = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
        found: list[Any] = []
        async with client.stream("POST", "/chat/completions", json=body) as response:
            async for line in lines_of(response):
                found.append(line.removeprefix("data: "))
                if "Hello." in line:
                    assert not hang.released.is_set()
                    hang.released.set()
        assert found.pop() == "[DONE]"
        chunks = [json.loads(one) for one in found]
        assert {one["object"] for one in chunks} == {"chat.completion.chunk"}
        assert len({one["id"] for one in chunks}) == 1
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert text_of(chunks) == "Hello. How are you?"
        assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]][-2:] == [None, "stop"]
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["total_tokens"] == 12
        assert all(one["usage"] is None for one in chunks[:-1])


async def test_without_the_wish_a_stream_says_nothing_of_usage(house: House) -> None:
    async with house.served(ScriptedModel("Hello")) as gateway, client_of(gateway) as client:
        assert all("usage" not in one for one in await frames(client, HELLO) if one != "[DONE]")


async def test_a_sign_of_life_comes_while_tools_work(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.01)
    hang = Hang()
    model = ScriptedModel([call("current_time")], [hang, "It is five"])
    async with (
        house.served(model) as gateway,
        client_of(gateway) as client,
        client.stream("POST", "/chat/completions", json={**HELLO, "stream": True}) as response,
    ):
        lines = [line async for line in lines_of(response) if hang.released.set() is None]
    assert ": still working" in lines
    chunks = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    assert text_of([json.loads(chunk) for chunk in chunks]) == "It is five"


async def test_what_a_program_has_is_not_taken_back_where_the_model_begins_again(house: House) -> None:
    hang = Hang()
    model = ScriptedModel(["Half an answer. ", hang, StreamRestarted(), "A whole answer."], "Next")
    async with house.served(model) as gateway, client_of(gateway) as client:
        async with client.stream("POST", "/chat/completions", json={**HELLO, "stream": True}) as response:
            found = []
            async for line in lines_of(response):
                found.append(line.removeprefix("data: "))
                if "Half" in line:
                    hang.released.set()
        whole = text_of([json.loads(one) for one in found if one.startswith("{")])
        assert whole == "Half an answer.\n\nA whole answer."
        await answer(client, user("Hello"), assistant(whole), user("And?"))
        [session] = await sessions_of(gateway)
        assert await texts_of(gateway, session) == ["Hello", "A whole answer.", "And?", "Next"]


async def test_who_goes_away_from_a_stream_stops_the_answer_and_the_talk_goes_on_with_what_they_have(
    house: House,
) -> None:
    hang = Hang()
    model = ScriptedModel(["So far. ", hang, "Never said"], "Next")
    async with house.served(model) as gateway, client_of(gateway) as client:
        async with client.stream("POST", "/chat/completions", json={**HELLO, "stream": True}) as response:
            async for line in lines_of(response):
                if "So far." in line:
                    break
        await until(lambda: has_answer(gateway))
        assert await answer(client, user("Hello"), assistant("So far. "), user("And?")) == "Next"
        [session] = await sessions_of(gateway)
        said = await texts_of(gateway, session)
        assert said[1].startswith("So far.")
        assert "Never said" not in said[1]
        assert said[2:] == ["And?", "Next"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_who_went_away_before_the_answer_and_asks_again_gets_it_once(house: House, is_streamed: bool) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "Hello"])
    async with house.served(model) as gateway, client_of(gateway) as client:
        body = {**HELLO, "stream": is_streamed}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post("/chat/completions", json=body), 0.3)
        again = asyncio.create_task(client.post("/chat/completions", json=body, headers=AGAIN))
        await hang.started.wait()
        hang.released.set()
        assert "Hello" in (await again).text
        [session] = await sessions_of(gateway)
        assert await texts_of(gateway, session) == ["Hello", "Hello"]
        assert len(model.requests) == 1


async def test_who_does_not_come_back_has_the_answer_stopped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "COMES_BACK_WITHIN_S", 0.01)
    model = ScriptedModel(["", Hang()])
    async with house.served(model) as gateway, client_of(gateway) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post("/chat/completions", json=HELLO), 0.3)
        await settled(gateway)
        [session] = await sessions_of(gateway)
        assert (await texts_of(gateway, session))[0] == "Hello"


async def test_a_key_of_the_programs_own_makes_a_repetition_and_only_of_the_same(house: House) -> None:
    model = ScriptedModel("Hello", "Hello again")
    async with house.served(model) as gateway, client_of(gateway) as client:
        headers = {"idempotency-key": "one"}
        first, second = [await client.post("/chat/completions", json=HELLO, headers=headers) for _ in range(2)]
        assert first.json()["id"] == second.json()["id"]
        assert second.json()["choices"][0]["message"]["content"] == "Hello"
        client.headers.update(headers)
        error = await refusal(client, 400, {"messages": [user("Another")]})
        assert "Idempotency-Key" in error["message"]
        del client.headers["idempotency-key"]
        assert await answer(client, user("Hello")) == "Hello again"


async def test_the_same_words_later_are_no_repetition_without_a_sign_of_one(house: House) -> None:
    async with house.served(ScriptedModel("One", "Two")) as gateway, client_of(gateway) as client:
        assert [await answer(client, user("Hello")), await answer(client, user("Hello"))] == ["One", "Two"]
        again = await client.post("/chat/completions", json=HELLO, headers=AGAIN)
        assert again.json()["choices"][0]["message"]["content"] == "Two"


async def test_without_a_model_there_is_an_error_and_nothing_waits(house: House) -> None:
    model = ScriptedModel([ModelUnavailable("down")], [ModelUnavailable("down")], "Back")
    async with house.served(model) as gateway, client_of(gateway) as client:
        for body in (HELLO, {**HELLO, "stream": True}):
            response = await client.post("/chat/completions", json=body)
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) > 0
            assert response.json()["error"]["type"] == "server_error"
            await settled(gateway)
            assert await sessions_of(gateway) == []
        assert await answer(client, user("Hello")) == "Back"
        assert len(model.requests) == 3


async def test_a_talk_goes_on_after_an_outage_as_if_it_had_not_been(house: House) -> None:
    model = ScriptedModel("One", [ModelUnavailable("down")], [ModelUnavailable("down")], "Two")
    async with house.served(model) as gateway, client_of(gateway) as client:
        talk = [user("First"), assistant(await answer(client, user("First"))), user("Second")]
        for headers in ({}, AGAIN):
            response = await client.post("/chat/completions", json={"messages": talk}, headers=headers)
            assert response.status_code == 503
            await settled(gateway)
        assert await answer(client, *talk) == "Two"
        _, newest = await sessions_of(gateway)
        assert await texts_of(gateway, newest) == ["First", "One", "Second", "Two"]
        assert not newest.session.is_tainted


async def test_a_used_up_budget_is_an_error_that_says_when_to_come_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.served(ScriptedModel("One", "Two"), budgets={"user": {"turns": 1}}) as gateway:
        now = datetime.now(UTC)
        monkeypatch.setattr(gateway.meter, "_now", lambda: now)
        async with client_of(gateway) as client:
            await answer(client, user("First"))
            response = await client.post("/chat/completions", json=HELLO)
            assert response.status_code == 429
            assert response.json()["error"]["code"] == "insufficient_quota"
            assert 0 < int(response.headers["retry-after"]) <= 86_401
            await settled(gateway)
            now += timedelta(days=1)
            assert await answer(client, user("Hello")) == "Two"


async def test_what_waits_for_a_yes_is_asked_in_the_answer_and_done_after_it(house: House, tmp_path: Path) -> None:
    tools = {"packages": [{"package": "tests.tool_packages.counting", "file": str(tmp_path / "posted")}]}
    model = ScriptedModel([call("post", '{"to": "ada"}')], "I asked.", "It is sent.", "Bye")
    async with house.served(model, tools=tools) as gateway, client_of(gateway) as client:
        talk = [user("Post it to Ada")]
        asked = await answer(client, *talk)
        assert asked.startswith("I asked.")
        assert "say `/yes 1`" in asked
        assert not (tmp_path / "posted").exists()
        talk += [assistant(asked), user("/yes 1")]
        found = await frames(client, {"messages": talk, "stream_options": {"include_usage": True}})
        done = text_of(found)
        assert done == "Number 1 has its yes; I do it now.\n\nIt is sent."
        assert found[-2]["usage"]["total_tokens"] == 11
        assert (tmp_path / "posted").read_text().startswith("post ada ")
        talk += [assistant(done), user("Thanks")]
        assert await answer(client, *talk) == "Bye"
        [session] = await sessions_of(gateway)
        assert (await texts_of(gateway, session))[-2:] == ["Thanks", "Bye"]


async def test_a_message_that_was_given_up_is_an_error_that_nobody_tries_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = RuntimeError("a fault of ours")
    model = ScriptedModel(*[[fault]] * 20)
    async with house.served(model, delivery={"max_attempts": 1}) as gateway, client_of(gateway) as client:
        response = await client.post("/chat/completions", json=HELLO)
        assert response.status_code == 500
        assert response.headers["x-should-retry"] == "false"


async def test_a_key_that_is_revoked_meanwhile_reads_no_further(house: House) -> None:
    hang, end = Hang(), Hang()
    model = ScriptedModel(["A secret. ", hang, "Another. ", end])
    async with house.served(model) as gateway, client_of(gateway, await key_of(gateway)) as client:
        lines: list[str] = []
        async with client.stream("POST", "/chat/completions", json={**HELLO, "stream": True}) as response:
            async for line in lines_of(response):
                lines.append(line)
                if "A secret." in line:
                    await gateway.web.api.services.keys.revoke(OPERATOR, "a key")
                    hang.released.set()
        end.released.set()
        assert "Another" not in "".join(lines)
        assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "invalid_api_key"


async def test_two_requests_with_one_talk_at_once_are_two_branches(house: House) -> None:
    first, second = Hang(), Hang()
    model = ScriptedModel("One", [first, "Two"], [second, "Another two"])
    async with house.served(model) as gateway, client_of(gateway) as client:
        talk = [user("First"), assistant(await answer(client, user("First"))), user("Second")]
        asking = [asyncio.create_task(answer(client, *talk)) for _ in range(2)]
        for hang in (first, second):
            await hang.started.wait()
            hang.released.set()
        assert set(await asyncio.gather(*asking)) == {"Two", "Another two"}
        assert len(await sessions_of(gateway)) == 2


async def test_an_answer_that_a_restart_broke_off_is_given_to_who_asks_again(house: House) -> None:
    hang = Hang()
    async with house.served(ScriptedModel([hang, "Never"]), shutdown_s=0.1) as gateway, client_of(gateway) as client:
        asking = asyncio.create_task(client.post("/chat/completions", json=HELLO))
        await hang.started.wait()
    await asyncio.gather(asking, return_exceptions=True)
    model = ScriptedModel("Hello after all")
    async with house.served(model) as gateway, client_of(gateway) as client:
        again = await client.post("/chat/completions", json=HELLO, headers=AGAIN)
        assert again.json()["choices"][0]["message"]["content"] == "Hello after all"
        [session] = await sessions_of(gateway)
        assert await texts_of(gateway, session) == ["Hello", "Hello after all"]
        assert len(model.requests) == 1
