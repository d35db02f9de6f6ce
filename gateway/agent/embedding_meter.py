"""Embeddings through the meter: what they may cost is reserved before, what they did cost is noted after."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.agent.embeddings import Embedded, Embedder
from gateway.agent.meter import Meter
from gateway.agent.model import ChatMessage, ModelRequest, ModelUsage, Spender
from gateway.agent.model_states import ModelStates
from gateway.errors import ConfigError, ModelError, ModelUnavailable
from gateway.runtime.observe import note, span


class MeteredEmbedder:
    """A `PaidEmbedder` over the configured one, which a reload may exchange."""

    def __init__(self, meter: Meter, states: ModelStates, embedder: Callable[[], Embedder]) -> None:
        """Nothing is called yet.

        Args:
            meter: counts the calls.
            states: hears which answer and which do not, for health and doctor.
            embedder: gives the one that is configured now.
        """
        self._meter = meter
        self._states = states
        self._embedder = embedder

    @property
    def identity(self) -> str:
        """What the vectors are made by now."""
        return self._embedder().identity

    async def embed(self, texts: Sequence[str], spender: Spender) -> Embedded:
        """One call for all texts, on somebody's account.

        Raises:
            ModelUnavailable: no answer now; `BudgetExhausted` where it was not even asked.
            ModelRefused: never an answer to these texts.
            StoreError: what the call may cost could not be reserved.
        """
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
                self._states.failed(name, error)
            raise
        else:
            self._states.answered(name)
            usage = ModelUsage(model=name, input_tokens=embedded.input_tokens, output_tokens=0)
            await meter.end(call, usage)
        finally:
            if not call.is_over:
                await meter.end(call, meter.cut(call, name, was_read=was_read))
        return embedded
