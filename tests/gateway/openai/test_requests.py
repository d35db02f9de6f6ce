"""What `/v1` lets in, answers and refuses, and in which form."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from gateway.domain.provenance import ATTACHMENT, others_words
from gateway.services.caller import operator
from gateway.web.openai import application
from tests.gateway.way.conftest import House
from tests.scripted_model import Hang, ScriptedModel, call

from .conftest import (
    TALKS,
    WAIT_S,
    answer,
    assistant,
    base_of,
    client_of,
    complete,
    key_of,
    refusal,
    sessions_of,
    texts_of,
    token_of,
    user,
)

HELLO = {"model": "ethos", "messages": [user("Hello")]}
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f00050001ff"
        "56c72f0d0000000049454e44ae426082"
    )
).decode()


async def test_the_models_are_the_default_the_personalities_and_the_one_for_side_calls(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        models = (await client.get("/models")).json()
        assert models["object"] == "list"
        names = [model["id"] for model in models["data"]]
        assert names[0] == "ethos"
        assert names[-1] == "ethos-helper"
        assert {"assistant", "engineer"} < set(names)
        one = (await client.get("/models/engineer")).json()
        assert (one["id"], one["object"], one["owned_by"]) == ("engineer", "model", "ethos")
        missing = await client.get("/models/nobody")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_guest_is_shown_only_what_a_guest_may_choose(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway, await key_of(gateway)) as client:
        assert [one["id"] for one in (await client.get("/models")).json()["data"]] == ["ethos", "ethos-helper"]
        error = await refusal(client, 403, {**HELLO, "model": "engineer"})
        assert (error["type"], error["param"]) == ("permission_error", "model")
        assert "ask for the model `ethos`" in error["message"]
        assert (await refusal(client, 404, {**HELLO, "model": "gpt-5"}))["code"] == "model_not_found"
        assert await sessions_of(gateway) == []


async def test_a_completion_has_the_form_and_the_true_figures(house: House) -> None:
    model = ScriptedModel([call("current_time")], "Hello Ada")
    async with house.served(model) as gateway, client_of(gateway) as client:
        whole = await complete(client, user("Hello"), model="", temperature=0.2, max_tokens=5, seed=1, store=True)
        assert whole["id"].startswith("chatcmpl-")
        assert (whole["object"], whole["model"]) == ("chat.completion", "ethos")
        [choice] = whole["choices"]
        assert choice["message"] == {"role": "assistant", "content": "Hello Ada", "refusal": None}
        assert choice["finish_reason"] == "stop"
        assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (20, 1)  # of both calls
        assert whole["usage"]["total_tokens"] == 21


REFUSED: list[tuple[str, Any]] = [
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("functions", [{"name": "f"}]),
    ("n", 2),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("logit_bias", {"50256": -100}),
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("modalities", ["text", "audio"]),
    ("stop", ["\n"]),
    ("response_format", {"type": "json_object"}),
    ("web_search_options", {"search_context_size": "low"}),
]


async def test_what_would_change_the_answer_is_refused_by_its_name(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        for name, value in REFUSED:
            error = await refusal(client, 400, {**HELLO, name: value})
            assert (error["param"], error["type"]) == (name, "invalid_request_error")
            assert error["message"].startswith(f"`{name}` is not supported: ")
        assert await sessions_of(gateway) == []


async def test_what_asks_for_nothing_is_no_reason_to_refuse(house: House) -> None:
    async with house.served(ScriptedModel("Hi", "Hello")) as gateway, client_of(gateway) as client:
        listed = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}
        assert await answer(client, user("Hello"), **listed) == "Hi"
        nothing = {"tools": [], "functions": None, "n": 1, "logprobs": False, "stop": None, "tool_choice": "none"}
        form = {"response_format": {"type": "text"}, "modalities": ["text"], "x_of_its_own": {"a": 1}}
        assert await answer(client, user("Hello"), **nothing, **form) == "Hello"


NONSENSE: list[tuple[Any, str]] = [
    ([], "no JSON object"),
    ({"messages": []}, "`messages`"),
    ({"messages": [{"role": "nobody", "content": "a"}]}, "`messages.0.role`"),
    ({"messages": [user("a"), assistant("b")]}, "must be what the person says"),
    ({"messages": [{"role": "system", "content": "a"}]}, "must be what the person says"),
    ({"messages": [user([{"type": "input_audio", "input_audio": {}}])]}, "'input_audio' is not read here"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}])]}, "fetches"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}])]}, "Base64"),
    ({"messages": [user([{"type": "file", "file": {"file_id": "file-1"}}])]}, "no stored files"),
    ({"messages": [user("a")], "model": 3}, "`model`"),
]


async def test_what_makes_no_sense_is_said_where_it_stands(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        for body, said in NONSENSE:
            assert said in (await refusal(client, 400, body))["message"]


async def test_pictures_and_files_become_attachments(house: House) -> None:
    model = ScriptedModel("A pixel", "Notes")
    async with house.served(model) as gateway, client_of(gateway) as client:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        assert await answer(client, user([{"type": "text", "text": "What is it?"}, picture])) == "A pixel"
        [asked] = model.requests[0].messages
        assert [image.media_type for image in asked.images] == ["image/png"]
        data = base64.b64encode(b"Tea at five.").decode()
        file = {"filename": "notes.txt", "file_data": f"data:text/plain;base64,{data}"}
        assert await answer(client, user([{"type": "file", "file": file}])) == "Notes"
        [(origin, said)] = others_words(model.requests[1].messages[-1].text)
        assert origin == ATTACHMENT
        assert said.startswith("notes.txt\n")
        assert said.endswith("Tea at five.")
        assert [one.session.is_tainted for one in await sessions_of(gateway)] == [True, True]


async def test_files_that_are_too_large_are_refused_and_leave_no_session(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway) as client:
        data = base64.b64encode(b"x" * (4 << 20)).decode()
        part = {"type": "file", "file": {"filename": "x.txt", "file_data": f"data:text/plain;base64,{data}"}}
        error = await refusal(client, 400, {"messages": [user([part, part])]})
        assert "all together may have" in error["message"]
        assert await sessions_of(gateway) == []


async def test_every_refusal_has_openais_form_and_its_status(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway:
        reading = await key_of(gateway, "chat:read")
        async with httpx.AsyncClient(base_url=base_of(gateway), trust_env=False, timeout=WAIT_S) as client:
            error = await refusal(client, 401, HELLO)
            assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
            client.headers["authorization"] = "Bearer sk-wrong"
            assert "`ethos keys create` makes a key" in (await refusal(client, 401, HELLO))["message"]
            client.headers["authorization"] = f"Bearer {reading}"
            error = await refusal(client, 403, HELLO)
            assert "`chat:write`" in error["message"]
            client.headers["authorization"] = f"Bearer {token_of(gateway)}"
            assert (await refusal(client, 404, HELLO, "/embeddings"))["message"].startswith(
                "There is no /v1/embeddings"
            )
            for model in ("nobody", "openai/gpt-5", "../x", "GPT 5"):
                error = await refusal(client, 404, {**HELLO, "model": model})
                assert (error["code"], error["param"]) == ("model_not_found", "model")
            error = await refusal(client, 400, {"messages": [user("x" * 600_000)] * 2})
            assert "characters at most" in error["message"]
            assert (await client.get("/chat/completions")).status_code == 405
            assert (await client.post("/chat/completions", content=b" " * (17 << 20))).status_code == 413
            for origin in ("https://a.example", "null"):
                foreign = await client.post("/chat/completions", json=HELLO, headers={"origin": origin})
                assert foreign.status_code == 403
                assert "access-control-allow-origin" not in foreign.headers
            unknown = await client.get("/models", headers={"host": "a.example"})
            assert unknown.status_code == 421
            assert "web.allowed_hosts" in unknown.json()["error"]["message"]


async def test_too_many_wrong_keys_have_to_wait(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway, client_of(gateway, "ethos_wrong") as client:
        responses = [await client.post("/chat/completions", json=HELLO) for _ in range(5)]
        assert [one.status_code for one in responses] == [401] * 4 + [429]
        assert int(responses[-1].headers["retry-after"]) > 0
        assert responses[-1].json()["error"]["code"] == "rate_limit_exceeded"


async def test_a_page_of_a_browser_has_no_business_here(house: House) -> None:
    async with (
        house.served(ScriptedModel()) as gateway,
        httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=WAIT_S) as client,
    ):
        await client.post("/login", data={"token": token_of(gateway)})
        response = await client.post("/v1/chat/completions", json=HELLO, headers={"sec-fetch-site": "same-origin"})
        assert response.status_code == 403
        assert "for programs" in response.json()["error"]["message"]


async def test_a_user_is_a_person_where_the_key_may_name_people_and_a_label_elsewhere(house: House) -> None:
    async with house.served(ScriptedModel("Hello", "Hello Ada", "Hello you", "Hello Ben")) as gateway:
        ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        ben = await gateway.identities.resolve("mail:ben@example.org", "Ben")
        async with client_of(gateway) as client:
            await answer(client, user("I"), user="")
            await answer(client, user("I"), user="mail:ada@example.org")
            error = await refusal(client, 400, {**HELLO, "user": "mail:eve@example.org"})
            assert (error["param"], error["code"]) == ("user", "unknown_user")
        async with client_of(gateway, await key_of(gateway)) as client:
            await answer(client, user("I"), user="mail:ada@example.org")
        own = (await gateway.web.api.services.keys.create(operator("t"), "ben", TALKS, ben)).key
        async with client_of(gateway, own) as client:
            await answer(client, user("I"), user="mail:ada@example.org")
        talked = [one.session.user_id for one in await sessions_of(gateway)]
        assert (talked[1], talked[3]) == (ada, ben)
        assert len(set(talked)) == 4


def of_open_webui(task: str, output: str = "") -> str:
    """A side call of Open WebUI 0.12, with its usual template."""
    history = "### Chat History:\n<chat_history>\nUSER: Hi\n</chat_history>"
    return f"### Task:\n{task}\n### Guidelines:\n- Be short\n{output}{history}"


SIDE_CALLS = [
    of_open_webui(
        "Generate a concise, 3-5 word title with an emoji summarizing the chat history.", "### Output:\nJSON\n"
    ),
    of_open_webui("Generate 1-3 broad tags categorizing the main themes of the chat history"),
    of_open_webui("Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next"),
    of_open_webui("Analyze the chat history to determine the necessity of generating search queries"),
    # LibreChat, agents 3
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions.\n\nConversation:\nHi",
]


async def test_side_calls_of_front_ends_leave_no_session_and_no_memory(house: House) -> None:
    model = ScriptedModel(*["A title"] * (len(SIDE_CALLS) + 1))
    async with house.served(model) as gateway, client_of(gateway) as client:
        for asked in SIDE_CALLS:
            whole = await complete(client, user(asked), max_tokens=50)
            assert whole["choices"][0]["message"]["content"] == "A title"
            assert whole["usage"]["prompt_tokens"] == 10
        await complete(client, {"role": "system", "content": "Be short"}, user("Translate: tea"), model="ethos-helper")
        assert await sessions_of(gateway) == []
        assert [request.purpose for request in model.requests] == ["aside"] * len(model.requests)
        assert not any(request.tools for request in model.requests)
        assert model.requests[0].max_output_tokens == 50
        assert model.requests[-1].system == "Be short"
        await asyncio.gather(*gateway.meter._settling)
        assert sum(row.calls for row in await gateway.store.usage.spent(since="2000-01-01")) == len(model.requests)


async def test_side_calls_are_bounded_in_number_and_length(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MOST_ASIDES", 1)
    hang = Hang()
    model = ScriptedModel([hang, "A title"], "Another")
    async with house.served(model, limits={"max_message_chars": 1000}) as gateway, client_of(gateway) as client:
        first = asyncio.create_task(complete(client, user(SIDE_CALLS[0])))
        await hang.started.wait()
        assert (await refusal(client, 429, {"messages": [user(SIDE_CALLS[1])]}))["code"] == "rate_limit_exceeded"
        hang.released.set()
        await first
        await complete(client, user(SIDE_CALLS[1]))
        error = await refusal(client, 400, {"messages": [user(SIDE_CALLS[1] + "x" * 1000)]})
        assert "1000 characters" in error["message"]


async def test_a_person_who_asks_for_a_title_or_a_search_with_documents_talks_to_the_agent(house: House) -> None:
    model = ScriptedModel("Tea", "Five", "Blue")
    async with house.served(model) as gateway, client_of(gateway) as client:
        await answer(client, user("Generate a concise title for my essay on tea"))
        with_documents = "### Task:\nRespond to the user query using the provided context\n<context>\n</context>\nWhen?"
        await answer(client, user(with_documents))
        await answer(client, user("Hi"), assistant("Hello"), user(SIDE_CALLS[0]))
        assert [request.purpose for request in model.requests] == ["answer"] * 3
        assert len(await sessions_of(gateway)) == 3


async def test_who_has_no_access_any_more_gets_no_side_call_either(house: House) -> None:
    async with house.served(ScriptedModel()) as gateway:
        services = gateway.web.api.services
        ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        async with client_of(gateway) as client:
            await services.people.revoke(operator("test"), ada)
            error = await refusal(client, 403, {**HELLO, "model": "ethos-helper", "user": ada})
            assert "no access" in error["message"]
            text = await answer(client, user("Hello"), user=ada)
            assert text
            assert "revoked" in text or "not let in" in text or "access" in text


async def test_what_was_said_is_found_by_other_surfaces(house: House) -> None:
    async with house.served(ScriptedModel("Hello")) as gateway, client_of(gateway) as client:
        await answer(client, user("My cup is blue"))
        [session] = await sessions_of(gateway)
        assert session.session.conversation.channel == "local"
        assert await texts_of(gateway, session) == ["My cup is blue", "Hello"]
