"""Pictures in a request: sent to models that see, kept from those that do not."""

from __future__ import annotations

import base64
import json

import pytest

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.providers.models import WireModel
from gateway.config import ModelConfig
from gateway.domain.images import ModelImage
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
