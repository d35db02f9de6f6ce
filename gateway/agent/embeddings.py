"""What is asked of a model of embeddings: a list of numbers for each text, so that texts of one meaning lie close.

`providers/embeddings.py` speaks with the provider. What a call may cost is reserved before it, what it cost is noted
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.agent.meter import Meter
from gateway.agent.model import ChatMessage, ModelRequest, ModelUsage, Spender
from gateway.errors import ConfigError, ModelError, ModelUnavailable
from gateway.runtime.observe import note, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The vectors of some texts, in their order, all finite and of one length; what was read, in tokens."""

    vectors: Sequence[Sequence[float]]
    input_tokens: int


class Embedder(Protocol):
    """Something that gives vectors."""

    @property
    def name(self) -> str:
        """As in the configuration."""

    @property
    def identity(self) -> str:
        """What the vectors are made by: vectors of one identity can be compared with each other, and no others."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """One call for all texts, none of which is blank; not tried again.

        Raises:
            ModelUnavailable: no answer now, or none that can be used.
            ModelRefused: never an answer to these texts.
        """
        ...


class PaidEmbedder(Protocol):
    """An `Embedder` whose calls are put on somebody's account; see `MeteredEmbedder`."""

    @property
    def identity(self) -> str:
        """As an `Embedder`'s."""

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """As an `Embedder`'s; `BudgetExhausted` where there is no room for the call.

        Raises:
            ModelUnavailable: no answer now, or none that can be used.
            ModelRefused: never an answer to these texts.
            StoreError: what the call may cost could not be reserved.
        """
        ...


def identity_of(model: str, dimensions: int | None) -> str:
    """The provider's name of the model, and the dimensions where they are asked for."""
    return model if dimensions is None else f"{model}@{dimensions}"


class MeteredEmbedder:
    """A `PaidEmbedder` over the configured one, which a reload may exchange."""

    def __init__(self, meter: Meter, embedder: Callable[[], Embedder]) -> None:
        """Nothing is called yet.

        Args:
            meter: counts the calls.
            embedder: gives the one that is configured now.
        """
        self._meter = meter
        self._embedder = embedder

    @property
    def identity(self) -> str:
        """What the vectors are made by now."""
        return self._embedder().identity

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """See `PaidEmbedder.embed`."""
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

    async def _counted(self, embedder: Embedder, request: ModelRequest, texts: Sequence[str]) -> Embedded:
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
