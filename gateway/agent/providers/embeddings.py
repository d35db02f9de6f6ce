"""Embeddings from any endpoint that speaks OpenAI's wire format: a list of numbers for each text, close in meaning.

What a call may cost is reserved before it, what it cost is noted after it.

https://platform.openai.com/docs/api-reference/embeddings/create (read 2026-11): at most 2 048 texts in a call, none of
them empty; each answer names the text by `index`, and is a list of numbers or, where it is asked for, base64 of
little-endian float32. What servers get wrong is looked for here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gateway.agent.meter import Meter
from gateway.agent.model import ChatMessage, ModelRequest, ModelUsage, Spender
from gateway.agent.prompt import estimated_tokens
from gateway.agent.providers.format import count
from gateway.agent.providers.models import HTTP_LIBRARY, CallFailed, Endpoint
from gateway.errors import ConfigError, ModelError, ModelUnavailable
from gateway.runtime.extras import how_to_install
from gateway.runtime.observe import note, span

if TYPE_CHECKING:
    from gateway.agent.providers.http import ProviderHttp

# Answers of more bytes are read in a thread.
_LARGE_BYTES = 100_000
# More than 500 vectors of 4,096 numbers have, written as decimals.
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The vectors of some texts, in their order, all finite and of one length; what was read, in tokens."""

    vectors: Sequence[Sequence[float]]
    input_tokens: int


def identity_of(model: str, dimensions: int | None) -> str:
    """What vectors are made by, model and dimensions: only vectors of one identity can be compared with each other."""
    return model if dimensions is None else f"{model}@{dimensions}"


class WireEmbedder:
    """One model of embeddings behind a network.

    Raises:
        ConfigError: the libraries are missing.
    """

    def __init__(self, endpoint: Endpoint, *, dimensions: int | None = None) -> None:
        """`read_timeout_s` is for a whole call; `dimensions` None leaves them to the model."""
        if find_spec(HTTP_LIBRARY) is None or find_spec("numpy") is None:
            missing = f"the libraries for embeddings are not installed; run {how_to_install('embeddings')}"
            raise ConfigError([f"model {endpoint.name}: {missing}"])
        self.name = endpoint.name
        self.identity = identity_of(endpoint.model, dimensions)
        self._endpoint = endpoint
        self._dimensions = dimensions
        self._http: ProviderHttp | None = None

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """One call for all texts, none of which is blank; not tried again.

        Raises:
            ModelUnavailable: no answer now, or none that can be used.
            ModelRefused: never an answer to these texts.
        """
        http = await self._opened()
        asked: dict[str, Any] = {} if self._dimensions is None else {"dimensions": self._dimensions}
        asked |= {"model": self._endpoint.model, "input": texts, "encoding_format": "base64"}
        try:
            async with asyncio.timeout(self._endpoint.read_timeout_s):
                answer = await _posted(http, asked, self._endpoint)
            is_large = len(answer) > _LARGE_BYTES
            items, tokens = await asyncio.to_thread(_read, answer) if is_large else _read(answer)
        except CallFailed as failure:
            raise failure.error from failure
        except Exception as error:
            # Broad on purpose: what a server sends can break any line that reads it, and whatever it breaks is a failed
            # call.
            raise _why_failed(error, self._endpoint) from error
        return Embedded(
            vectors=self._checked(items, len(texts)),
            input_tokens=count(tokens) or sum(map(estimated_tokens, texts)),
        )

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _checked(self, items: Sequence[tuple[int | None, Any]], wanted: int) -> Sequence[Sequence[float]]:
        """The vectors in the order of the texts; some servers answer in another."""
        who = f"{self.name} ({self._endpoint.model})"
        if len(items) != wanted:
            raise ModelUnavailable(f"{who} gave {len(items)} vectors for {wanted} texts")
        by_index = dict(items)
        if set(by_index) == set(range(wanted)):
            vectors = [by_index[index] for index in range(wanted)]
        elif len(by_index) == 1:  # a server that numbers nothing keeps the order: there is nothing else it could mean
            vectors = [vector for _, vector in items]
        else:
            raise ModelUnavailable(f"{who} gave vectors whose `index` does not name the texts")
        length = self._dimensions or len(vectors[0])
        for vector in vectors:
            if len(vector) != length or not length:
                advice = "; check `dimensions` of the embeddings" if self._dimensions else ""
                raise ModelUnavailable(f"{who} gave a vector of {len(vector)} numbers, expected {length}{advice}")
            if not all(map(math.isfinite, vector)) or not any(vector):
                raise ModelUnavailable(f"{who} gave a vector that is no direction")
        return vectors

    async def _opened(self) -> ProviderHttp:
        if self._http is None:
            http = await asyncio.to_thread(_load, self._endpoint)  # the import takes a while
            if self._http is None:  # another call may have loaded it meanwhile
                self._http = http
        return self._http


class MeteredEmbedder:
    """The configured model of embeddings, which a reload may exchange; its calls are put on somebody's account."""

    def __init__(self, meter: Meter, embedder: Callable[[], WireEmbedder]) -> None:
        """`embedder` gives the one that is configured now."""
        self._meter = meter
        self._embedder = embedder

    @property
    def identity(self) -> str:
        """What the vectors are made by now."""
        return self._embedder().identity

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """As `WireEmbedder.embed`; raises `StoreError` where what it may cost could not be reserved."""
        try:
            embedder = self._embedder()
        except ConfigError as error:
            raise ModelUnavailable(f"the settings of the embeddings are wrong: {error}") from error
        request = ModelRequest(
            system="",
            messages=tuple(ChatMessage(role="user", text=text) for text in texts),
            max_output_tokens=1,  # it says nothing; 0 would mean no limit
            purpose="embedding",
            spender=spender,
        )
        with span("model.call", model=embedder.name, purpose="embedding"):
            embedded = await self._counted(embedder, request, texts)
            note(input_tokens=embedded.input_tokens, output_tokens=0)
        return embedded

    async def _counted(self, embedder: WireEmbedder, request: ModelRequest, texts: Sequence[str]) -> Embedded:
        meter, name = self._meter, embedder.name
        call = await meter.begin(name, name, request)
        was_read = True  # also by a call that is cut
        try:
            embedded = await embedder.embed(texts)
        except ModelError as error:
            was_read = False
            if isinstance(error, ModelUnavailable):
                self._meter.states.failed(name, error)
            raise
        else:
            self._meter.states.answered(name)
            usage = ModelUsage(model=name, input_tokens=embedded.input_tokens, output_tokens=0)
            await meter.end(call, usage)
        finally:
            if not call.is_over:
                await meter.end(call, meter.cut(call, name, was_read=was_read))
        return embedded


def _load(endpoint: Endpoint) -> ProviderHttp:
    from gateway.agent.providers.http import ProviderHttp  # noqa: PLC0415 (loads the HTTP client)

    return ProviderHttp(endpoint, {})


async def _posted(http: ProviderHttp, asked: dict[str, Any], endpoint: Endpoint) -> bytes:
    from gateway.agent.providers.errors import why_refused  # noqa: PLC0415 (as above)
    from gateway.agent.providers.http import as_json, read_body, read_error  # noqa: PLC0415 (it was loaded with the client)

    async with http.post("/embeddings", as_json(asked)) as response:
        if response.status >= 300:
            raise why_refused(response.status, response.headers, await read_error(response), endpoint)
        return await read_body(response, most_bytes=_MOST_BYTES)


def _read(answer: bytes) -> tuple[list[tuple[int | None, Any]], Any]:
    """Index, where it is one, and vector of each item, and the tokens that were counted; some servers do not count."""
    body = json.loads(answer)
    named = ((item.get("index"), item["embedding"]) for item in body["data"])
    items = [(index if isinstance(index, int) else None, _vector(embedding)) for index, embedding in named]
    return items, (body.get("usage") or {}).get("prompt_tokens")


def _vector(embedding: Any) -> Sequence[float]:
    """Of base64, or a list of numbers as it is: some servers know no base64."""
    if not isinstance(embedding, str):
        return [float(number) for number in embedding]
    numbers = array("f", base64.b64decode(embedding, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _why_failed(error: Exception, endpoint: Endpoint) -> ModelError:
    from gateway.agent.providers.errors import why_failed  # noqa: PLC0415 (as above)

    return why_failed(error, endpoint).error
