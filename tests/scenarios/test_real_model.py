"""A model behind a network, through the real command: it answers, it is down, it comes back."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.model_formats import Answer, Call
from tests.model_server import Failure, ModelServer
from tests.scenarios.process import Ethos

SECRET = "sk-canary-8d1f2b"


def configured(ethos: Ethos, server: ModelServer, provider: str) -> None:
    ethos.environment["MODEL_KEY"] = SECRET
    url = server.openai_url if provider == "openai" else server.anthropic_url
    ethos.configure(
        "web: {port: 0}\nmodel: real\nmodels:\n  real:\n"
        f"    provider: {provider}\n    model: m-1\n    base_url: {url}\n"
        '    api_key: "${MODEL_KEY}"\n    max_retries: 0\n'
    )


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.slow
async def test_a_real_model_answers_calls_tools_and_is_counted(ethos: Ethos, provider: str) -> None:
    async with ModelServer() as server:
        configured(ethos, server, provider)
        note = {"action": "add", "store": "user", "content": "Likes tea."}
        server.script(
            [
                Answer(calls=(Call(id="c1", name="update_memory", arguments=json.dumps(note)),)),
                Answer(text="I will remember that."),
                Answer(text="You like tea."),
            ]
        )
        first = await asyncio.to_thread(ethos.run, "chat", "I", "like", "tea")
        assert first.stdout.strip() == "I will remember that.", first.stderr
        second = await asyncio.to_thread(ethos.run, "chat", "what", "do", "I", "like?")
        assert second.stdout.strip() == "You like tea."
        assert "Likes tea." in json.dumps(server.requests[-1].body)
    usage = await asyncio.to_thread(ethos.run, "chat", "/usage")
    assert "2 turns, 3 model calls" in usage.stdout
    for path in ethos.home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.slow
async def test_a_message_to_a_model_that_is_down_is_kept_and_answered_when_it_is_back(ethos: Ethos) -> None:
    async with ModelServer() as server:
        configured(ethos, server, "openai")
        server.script([Failure(status=503)], repeats=True)
        ethos.serve()
        told = await asyncio.to_thread(ethos.run, "chat", "are", "you", "there?")
        assert "Your message is kept" in told.stdout
        assert SECRET not in told.stdout + told.stderr
        ethos.kill()
        server.script([Answer(text="Here I am."), Answer(text="Again.")])
        ethos.serve()
        again = await asyncio.to_thread(ethos.run, "chat", "and", "now?")
        assert again.stdout.strip() == "Again."  # the older one was answered first
        assert [request.body["messages"][-1]["content"] for request in server.requests[-2:]] == [
            "are you there?",
            "and now?",
        ]
