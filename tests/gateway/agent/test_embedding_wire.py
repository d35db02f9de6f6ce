"""Embeddings over a real socket: what the vendor documents is understood, all else is an error in words."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.agent.providers.embeddings import WireEmbedder
from gateway.agent.providers.models import Endpoint
from gateway.errors import ModelRefused, ModelUnavailable
from tests.embedding_server import Behaviour, EmbeddingServer, vector_of

KEY = "sk-made-up-0123456789"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


def embedder_of(
    url: str, *, dimensions: int | None = None, timeout_s: float = 30.0, key: str | None = KEY
) -> WireEmbedder:
    endpoint = Endpoint(
        name="embedder",
        provider="openai",
        model="all-minilm",
        api_key=key,
        base_url=url,
        prices_usd=None,
        read_timeout_s=timeout_s,
    )
    return WireEmbedder(endpoint, dimensions=dimensions)


@pytest.fixture
async def embedder(server: EmbeddingServer) -> AsyncIterator[WireEmbedder]:
    embedder = embedder_of(server.url)
    yield embedder
    await embedder.close()


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(), Behaviour(only_floats=True), Behaviour(is_shuffled=True)],
    ids=["base64", "floats", "order"],
)
async def test_vectors_come_in_the_order_of_the_texts_in_every_form(
    server: EmbeddingServer, embedder: WireEmbedder, behaviour: Behaviour
) -> None:
    server.behaviour = behaviour
    texts = ["a dog", "the bicycle", "l'été à la mer", "lone \ud800 surrogate"]
    embedded = await embedder.embed(texts)
    sent = [*texts[:3], "lone ? surrogate"]
    assert server.requests[0]["input"] == sent
    for text, vector in zip(sent, embedded.vectors, strict=True):
        assert list(vector) == pytest.approx(vector_of(text), abs=1e-6)
    assert embedded.input_tokens == sum(len(text) // 4 + 1 for text in sent)


async def test_model_key_and_dimensions_are_sent_and_nothing_of_the_environment(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of somebody else")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-else")
    embedder = embedder_of(server.url, dimensions=64)
    embedded = await embedder.embed(["a dog"])
    await embedder.close()
    assert len(embedded.vectors[0]) == 64
    assert (server.requests[0]["model"], server.requests[0]["dimensions"]) == ("all-minilm", 64)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "org-else" not in str(server.headers)
    assert embedder.identity == "all-minilm@64"


@pytest.mark.parametrize(
    ("status", "headers", "again_s"),
    [(429, {"Retry-After": "7"}, 7.0), (429, {}, None), (500, {}, None), (503, {"Retry-After": "3"}, 3.0)],
)
async def test_an_overloaded_server_is_unavailable_and_asked_once(
    server: EmbeddingServer, embedder: WireEmbedder, status: int, headers: dict[str, str], again_s: float | None
) -> None:
    server.behaviour.failures = [(status, headers, "Rate limit reached")]
    with pytest.raises(ModelUnavailable, match=f"overloaded or down.*{status}") as raised:
        await embedder.embed(["a dog"])
    assert raised.value.retry_after_s == again_s
    assert len(server.requests) == 1


async def test_a_refused_key_names_the_setting_and_is_not_repeated(
    server: EmbeddingServer, embedder: WireEmbedder
) -> None:
    server.behaviour.failures = [(401, {}, f"Incorrect API key provided: {KEY}")]
    with pytest.raises(ModelUnavailable, match="api_key") as raised:
        await embedder.embed(["a dog"])
    assert KEY not in str(raised.value)


async def test_a_text_that_is_too_long_is_refused(server: EmbeddingServer, embedder: WireEmbedder) -> None:
    server.behaviour.longest_chars = 10
    with pytest.raises(ModelRefused, match="maximum context length"):
        await embedder.embed(["short", "much longer than ten"])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("count", "gave 1 vectors for 2 texts"),
        ("dimension", "a vector of 257 numbers, expected 256"),
        ("index", "`index` does not name the texts"),
        ("index list", "`index` does not name the texts"),
        ("nan", "no direction"),
        ("garbage", "cannot be read"),
    ],
)
async def test_an_answer_that_cannot_be_right_is_not_used(
    server: EmbeddingServer, embedder: WireEmbedder, wrong: str, told: str
) -> None:
    server.behaviour.wrong = wrong
    with pytest.raises(ModelUnavailable, match=told):
        await embedder.embed(["a dog", "a bicycle"])


async def test_dimensions_that_the_server_does_not_give_name_the_setting(server: EmbeddingServer) -> None:
    embedder = embedder_of(server.url, dimensions=64)
    server.behaviour.wrong = "dimension"
    with pytest.raises(ModelUnavailable, match="expected 64; check `dimensions`"):
        await embedder.embed(["a dog"])
    await embedder.close()


async def test_a_server_that_is_not_there_or_says_nothing_is_unavailable(server: EmbeddingServer) -> None:
    nowhere = embedder_of("http://127.0.0.1:9/v1")
    with pytest.raises(ModelUnavailable, match=r"connection to http://127\.0\.0\.1:9/v1 failed"):
        await nowhere.embed(["a dog"])
    await nowhere.close()
    server.behaviour.held = threading.Event()
    silent = embedder_of(server.url, timeout_s=0.2)
    with pytest.raises(ModelUnavailable, match="did not answer in time"):
        await silent.embed(["a dog"])
    server.behaviour.held.set()
    await silent.close()
