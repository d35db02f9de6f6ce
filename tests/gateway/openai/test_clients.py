"""Clients of others, as they are: the package of OpenAI, and `llm`, each as its pages say."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import openai
import pytest
import yaml
from openai import AsyncOpenAI, OpenAI

from gateway.app.gateway import Gateway
from gateway.errors import ModelUnavailable
from gateway.web.openai import answers
from tests.gateway.way.conftest import House
from tests.scripted_model import Hang, ScriptedModel

from .conftest import WAIT_S, base_of, has_left, key_of, sessions_of, texts_of, token_of, until

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")


def client_of(gateway: Gateway, key: str | None = None, retries: int = 2) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=base_of(gateway), api_key=key or token_of(gateway), max_retries=retries)


async def in_a_thread(work: Callable[[], T]) -> T:
    """A client that blocks."""
    async with asyncio.timeout(WAIT_S):
        return await asyncio.to_thread(work)


async def test_the_package_of_openai_talks_in_one_session_streamed_and_not(house: House) -> None:
    async with house.served(ScriptedModel("Hello Ada", "Your name is Ada")) as gateway, client_of(gateway) as client:
        assert "engineer" in [model.id async for model in client.models.list()]
        talk = [{"role": "user", "content": "I am Ada"}]
        whole = await client.chat.completions.create(model="ethos", messages=talk)  # type: ignore[arg-type]
        assert whole.choices[0].message.content == "Hello Ada"
        assert whole.usage
        assert whole.usage.total_tokens == 11
        talk += [whole.choices[0].message.model_dump(), {"role": "user", "content": "What is my name?"}]
        text, finish, used = "", None, 0
        stream = await client.chat.completions.create(
            model="ethos",
            messages=talk,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            used = chunk.usage.total_tokens if chunk.usage else used
            for choice in chunk.choices:
                text, finish = text + (choice.delta.content or ""), choice.finish_reason or finish
        assert (text, finish, used) == ("Your name is Ada", "stop", 11)
        [session] = await sessions_of(gateway)
        assert len(await texts_of(gateway, session)) == 4


async def test_the_package_that_blocks_does_the_same(house: House) -> None:
    def talk(base: str, key: str) -> list[str]:
        with OpenAI(base_url=base, api_key=key) as client:
            first = client.responses.create(model="ethos", input="I am Ada")
            with client.responses.stream(model="ethos", input="And?", previous_response_id=first.id) as stream:
                grown = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
                second = stream.get_final_response()
            return [first.output_text, grown, second.output_text, client.models.retrieve("ethos").id]

    async with house.served(ScriptedModel("Hello Ada", "Nothing more")) as gateway:
        said = await in_a_thread(lambda: talk(base_of(gateway), token_of(gateway)))
        assert said == ["Hello Ada", "Nothing more", "Nothing more", "ethos"]
        [session] = await sessions_of(gateway)
        assert len(await texts_of(gateway, session)) == 4


async def test_the_package_asks_again_after_it_gave_up_waiting_and_is_answered_once(house: House) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "Hello"])
    async with house.served(model) as gateway, client_of(gateway) as client:
        impatient = client.with_options(timeout=0.5, max_retries=5)
        asking = asyncio.create_task(
            impatient.chat.completions.create(model="ethos", messages=[{"role": "user", "content": "Hello"}])
        )
        await hang.started.wait()
        await until(lambda: has_left(gateway))
        hang.released.set()
        assert (await asking).choices[0].message.content == "Hello"
        assert len(model.requests) == 1
        [session] = await sessions_of(gateway)
        assert await texts_of(gateway, session) == ["Hello", "Hello"]


async def test_the_package_asks_again_by_itself_when_the_model_is_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MODEL_RETRY_S", 1)
    model = ScriptedModel([ModelUnavailable("down")], "Hello")
    async with house.served(model) as gateway, client_of(gateway) as client:
        whole = await client.chat.completions.create(model="ethos", messages=[{"role": "user", "content": "Hello"}])
        assert whole.choices[0].message.content == "Hello"


async def test_the_package_knows_every_error_by_its_class(house: House) -> None:
    hello = {"messages": [{"role": "user", "content": "Hello"}]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    async with house.served(ScriptedModel([ModelUnavailable("down")])) as gateway:
        async with client_of(gateway, retries=0) as client:
            with pytest.raises(openai.NotFoundError, match="no personality nobody"):
                await client.chat.completions.create(model="nobody", **hello)  # type: ignore[call-overload]
            with pytest.raises(openai.BadRequestError, match="`tools` is not supported") as refused:
                await client.chat.completions.create(model="ethos", tools=[tool], **hello)  # type: ignore[call-overload]
            assert refused.value.param == "tools"
            with pytest.raises(openai.InternalServerError, match="cannot be reached now"):
                await client.chat.completions.create(model="ethos", **hello)  # type: ignore[call-overload]
        async with client_of(gateway, "ethos_wrong", retries=0) as client:
            with pytest.raises(openai.AuthenticationError, match="`ethos keys create`"):
                await client.models.list()
        async with client_of(gateway, await key_of(gateway, "memory:read"), retries=0) as client:
            with pytest.raises(openai.PermissionDeniedError, match="`chat:read`"):
                await client.models.list()


async def llm(home: Path, *arguments: str, said: str = "") -> str:
    """What the program `llm` prints; it keeps nothing outside of a directory of the test's."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llm", *arguments),
        env={**os.environ, "LLM_USER_PATH": str(home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_S):
        printed, _ = await process.communicate(said.encode())
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.slow
async def test_llm_asks_goes_on_and_chats_in_one_session(house: House, tmp_path: Path) -> None:
    model = ScriptedModel("Hello Ada", "Your name is Ada", "One", "Two")
    async with house.served(model) as gateway:
        home = tmp_path / "llm"
        home.mkdir()
        models = [{"model_id": "ethos", "model_name": "ethos", "api_base": base_of(gateway), "api_key_name": "ethos"}]
        (home / "extra-openai-models.yaml").write_text(yaml.safe_dump(models))
        await llm(home, "keys", "set", "ethos", "--value", token_of(gateway))
        assert "Hello Ada" in await llm(home, "-m", "ethos", "I am Ada")
        assert "Your name is Ada" in await llm(home, "-c", "What is my name?")
        chatted = await llm(home, "chat", "-m", "ethos", said="First\nSecond\nquit\n")
        assert "One" in chatted
        assert "Two" in chatted
        asked, chat = await sessions_of(gateway)
        assert await texts_of(gateway, asked) == ["I am Ada", "Hello Ada", "What is my name?", "Your name is Ada"]
        assert await texts_of(gateway, chat) == ["First", "One", "Second", "Two"]
