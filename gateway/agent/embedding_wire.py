"""Embeddings from any endpoint that speaks OpenAI's wire format.

https://platform.openai.com/docs/api-reference/embeddings/create (read 2026-11): at most 2 048 texts in a call, none of
them empty; each answer names the text by `index`, and is a list of numbers or, which the SDK asks for, base64 of
little-endian float32. The SDK decodes it; what servers get wrong is looked for here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gateway.agent.embeddings import Embedded, identity_of
from gateway.agent.models import Endpoint
from gateway.agent.prompt import estimated_tokens
from gateway.errors import ConfigError, ModelError, ModelRefused, ModelUnavailable

if TYPE_CHECKING:
    import openai

_LONGEST_RETRY_AFTER_S = 86_400.0


class WireEmbedder:
    """One model of embeddings behind a network.

    Raises:
        ConfigError: the libraries are missing.
    """

    def __init__(self, endpoint: Endpoint, *, dimensions: int | None = None) -> None:
        """Nothing is loaded and nobody is called yet.

        Args:
            endpoint: `read_timeout_s` is for a whole call.
            dimensions: to be asked for; None leaves them to the model.
        """
        if find_spec("openai") is None or find_spec("pydantic_ai") is None or find_spec("numpy") is None:
            missing = "the libraries for embeddings are not installed; run `pip install 'ethos-gateway[embeddings]'`"
            raise ConfigError([f"model {endpoint.name}: {missing}"])
        self._endpoint = endpoint
        self._dimensions = dimensions
        self._client: openai.AsyncOpenAI | None = None
        self._loading = asyncio.Lock()

    @property
    def name(self) -> str:
        """As in the configuration."""
        return self._endpoint.name

    @property
    def identity(self) -> str:
        """The provider's name of the model, and the dimensions where they are asked for."""
        return identity_of(self._endpoint.model, self._dimensions)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """One call for all texts.

        Raises:
            ModelUnavailable: no answer now, or none that can be used.
            ModelRefused: never an answer to these texts.
        """
        client = await self._opened()
        asked: dict[str, Any] = {} if self._dimensions is None else {"dimensions": self._dimensions}
        try:
            async with asyncio.timeout(self._endpoint.read_timeout_s):
                answer = await client.embeddings.create(
                    model=self._endpoint.model, input=[_clean(text) for text in texts], **asked
                )
            items: list[tuple[Any, Any]] = [(item.index, item.embedding) for item in answer.data]
            tokens: Any = getattr(answer.usage, "prompt_tokens", None)  # some servers do not count
        except Exception as error:
            # Broad on purpose: what a server sends can break any line of the SDK, and whatever it breaks is a failed
            # call.
            raise _why_failed(error, self._endpoint) from error
        return Embedded(
            vectors=self._checked(items, len(texts)),
            input_tokens=tokens if isinstance(tokens, int) and tokens > 0 else sum(map(estimated_tokens, texts)),
        )

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _checked(self, items: Sequence[tuple[Any, Any]], wanted: int) -> Sequence[Sequence[float]]:
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

    async def _opened(self) -> openai.AsyncOpenAI:
        if self._client is None:
            async with self._loading:
                if self._client is None:  # in a thread: the import takes a second
                    self._client = await asyncio.to_thread(_load, self._endpoint)
        return self._client


def _load(endpoint: Endpoint) -> openai.AsyncOpenAI:
    from gateway.agent.wire import openai_client  # noqa: PLC0415 (loads the model library)

    return openai_client(endpoint)


def _why_failed(error: Exception, endpoint: Endpoint) -> ModelError:
    from gateway.agent.wire_errors import why_failed  # noqa: PLC0415 (it was loaded with the client)

    told = why_failed(error, endpoint).error
    retry_after_s = _retry_after_s(error)
    return told if isinstance(told, ModelRefused) else ModelUnavailable(str(told), retry_after_s)


def _retry_after_s(error: Exception) -> float | None:
    """Of a 429 or 503; a date is left to our own back-off."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, _LONGEST_RETRY_AFTER_S) if seconds >= 0 else None


def _clean(text: str) -> str:
    """Lone surrogates, which no UTF-8 can carry, become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
