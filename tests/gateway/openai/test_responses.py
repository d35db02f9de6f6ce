"""`/v1/responses`: its text part, with the same sessions behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx

from gateway.agent.model import ModelEvent, ModelReply, ModelRequest
from gateway.errors import ModelUnavailable
from tests.gateway.way.conftest import House
from tests.scripted_model import ScriptedModel

from .conftest import assistant, client_of, complete, key_of, refusal, sessions_of, texts_of, user


async def respond(client: httpx.AsyncClient, given: Any, **more: Any) -> dict[str, Any]:
    response = await client.post("/responses", json={"model": "ethos", "input": given, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def text_of(response: dict[str, Any]) -> str:
    [message] = response["output"]
    [part] = message["content"]
    text: str = part["text"]
    return text


async def test_a_response_goes_on_behind_the_one_that_it_names(house: House) -> None:
    model = ScriptedModel("One", "Two", "Another two")
    async with house.served(model) as gateway, client_of(gateway) as client:
        first = await respond(client, "First", instructions="Be short")
        assert (first["object"], first["status"], text_of(first)) == ("response", "completed", "One")
        assert first["usage"]["total_tokens"] == 11
        for expected in ("Two", "Another two"):
            response = await respond(client, "Second", previous_response_id=first["id"], instructions="Be short")
            assert (text_of(response), response["previous_response_id"]) == (expected, first["id"])
        old, branch = await sessions_of(gateway)
        assert await texts_of(gateway, old) == ["First\n\n(For all answers here: Be short)", "One", "Second", "Two"]
        assert (await texts_of(gateway, branch))[-2:] == ["Second", "Another two"]


async def test_a_program_may_show_the_whole_talk_in_either_form(house: House) -> None:
    async with house.served(ScriptedModel("One", "Two")) as gateway, client_of(gateway) as client:
        await respond(
            client, [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "First"}]}]
        )
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One"}]}
        await respond(client, [user("First"), {"type": "reasoning", "summary": []}, said, user("Second")])
        [session] = await sessions_of(gateway)
        assert await texts_of(gateway, session) == ["First", "One", "Second", "Two"]


async def test_a_stream_has_the_events_of_a_response_in_order(house: House) -> None:
    async with house.served(ScriptedModel(["Hello. ", "How are you?"])) as gateway, client_of(gateway) as client:
        async with client.stream("POST", "/responses", json={"input": "Hi", "stream": True}) as response:
            lines = [line async for line in response.aiter_lines()]
            found = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        kinds = [one["type"].removeprefix("response.") for one in found]
        assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
        assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
        assert set(kinds[4:-4]) == {"output_text.delta"}
        assert [one["sequence_number"] for one in found] == list(range(len(found)))
        deltas = "".join(one["delta"] for one in found if one["type"].endswith("text.delta"))
        assert deltas == text_of(found[-1]["response"]) == "Hello. How are you?"


async def test_no_caller_goes_on_behind_the_response_of_another(house: House) -> None:
    async with house.served(ScriptedModel("One")) as gateway, client_of(gateway) as client:
        first = await respond(client, "First")
        body = {"input": "And?", "previous_response_id": first["id"]}
        async with client_of(gateway, await key_of(gateway)) as other:
            await refusal(other, 404, body, "/responses")
        await refusal(client, 404, {**body, "previous_response_id": "resp_nothing"}, "/responses")
        assert len(await sessions_of(gateway)) == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text"),
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ({"input": [assistant("Hello")]}, "input"),
    ({"input": [user([{"type": "input_image", "image_url": "https://a.example/b.png"}])]}, "input"),
]


async def test_what_is_not_done_here_is_refused_by_its_name(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        for more, param in REFUSED:
            assert (await refusal(client, 400, {"input": "Hi", **more}, "/responses"))["param"] == param


async def test_without_a_model_a_response_is_an_error(house: House) -> None:
    async with house.served(ScriptedModel([ModelUnavailable("down")])) as gateway, client_of(gateway) as client:
        await refusal(client, 503, {"input": "Hi", "stream": True}, "/responses")


class CutModel(ScriptedModel):
    """Its answers end where they are as long as they may be."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            match event:
                case ModelReply():
                    yield replace(event, usage=replace(event.usage, is_cut=True))
                case _:
                    yield event


async def test_an_answer_that_was_cut_says_so_in_both_forms(house: House) -> None:
    async with house.served(CutModel("Once upon", "a time")) as gateway, client_of(gateway) as client:
        response = await respond(client, "Tell")
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        whole = await complete(client, user("Tell on"))
        assert whole["choices"][0]["finish_reason"] == "length"
