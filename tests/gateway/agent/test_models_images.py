"""Pictures in a request: sent to models that see, kept from those that do not."""

from __future__ import annotations

import base64
import json

import pytest

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.providers.models import WireModel
from gateway.config import ModelConfig
from gateway.domain.images import ModelImage
from gateway.tools.spec import ToolCall
from tests.model_formats import Answer
from tests.model_server import ModelServer

PNG = b"\x89PNG\r\n\x1a\nnot a real one"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("sees_images", [True, False])
async def test_a_picture_is_sent_only_to_a_model_that_sees(provider: str, *, sees_images: bool) -> None:
    async with ModelServer() as server:
        server.script([Answer(text="a cat")])
        url = server.openai_url if provider == "openai" else server.anthropic_url
        config = {"provider": provider, "model": "m-1", "api_key": "k", "base_url": url, "sees_images": sees_images}
        model = WireModel("m", ModelConfig.model_validate(config))
        picture = ModelImage(media_type="image/png", data=PNG)
        request = ModelRequest(system="s", messages=(ChatMessage(role="user", text="what is it?", images=(picture,)),))
        events = [event async for event in model.stream(request)]
        await model.close()
        body = json.dumps(server.requests[0].body)
    assert events
    assert "what is it?" in body
    assert (base64.b64encode(PNG).decode() in body) is sees_images


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("sees_images", [True, False])
async def test_pictures_of_results_stand_behind_the_results(provider: str, *, sees_images: bool) -> None:
    async with ModelServer() as server:
        server.script([Answer(text="two cats")])
        url = server.openai_url if provider == "openai" else server.anthropic_url
        config = {"provider": provider, "model": "m-1", "api_key": "k", "base_url": url, "sees_images": sees_images}
        model = WireModel("m", ModelConfig.model_validate(config))
        calls = tuple(ToolCall(id=name, name="look", arguments="{}") for name in ("c1", "c2"))
        pictures = [ModelImage(media_type="image/png", data=PNG + name) for name in (b"1", b"2")]
        results = [
            ChatMessage(role="tool", text=f"cat {one.id}", tool_call_id=one.id, images=(picture,))
            for one, picture in zip(calls, pictures, strict=True)
        ]
        said = ChatMessage(role="assistant", text="", tool_calls=calls)
        request = ModelRequest(system="s", messages=(ChatMessage(role="user", text="look"), said, *results))
        assert [event async for event in model.stream(request)]
        await model.close()
        messages = server.requests[0].body["messages"]
    encoded = [base64.b64encode(one.data).decode() for one in pictures]
    assert [one in json.dumps(messages) for one in encoded] == [sees_images] * 2
    if provider == "openai":
        roles = ["user", "assistant", "tool", "tool", *(["user"] if sees_images else [])]
        assert [one["role"] for one in messages if one["role"] != "system"] == roles
        assert "cat c2" in json.dumps(messages[-2 if sees_images else -1])
    else:
        blocks = messages[-1]["content"]
        assert [one["type"] for one in blocks] == ["tool_result", "tool_result"]
        kinds = ["text", "image"] if sees_images else None
        assert [kinds and [part["type"] for part in one["content"]] for one in blocks] == [kinds] * 2
