"""The configured models by name, built when they are first asked; where one cannot answer, its fallback does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from gateway.agent.meter import SPEECH_TOKENS_PER_S
from gateway.agent.model import Model, ModelEvent, ModelRequest, StreamRestarted, TextDelta
from gateway.agent.offline.model import OfflineModel
from gateway.agent.providers.embeddings import WireEmbedder
from gateway.agent.providers.models import WireModel, endpoint_of
from gateway.config import HELPER, OFFLINE, Config
from gateway.config.prices import price_usd
from gateway.errors import ConfigError, ModelError, ModelRefused, ModelUnavailable

_log = structlog.get_logger(__name__)


class ModelRegistry:
    """Gives out models; importing it loads no HTTP client."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._single: dict[str, OfflineModel | WireModel] = {}
        self._models: dict[str, Model] = {}
        self._embedders: dict[tuple[str, int | None], WireEmbedder] = {}

    def get(self, name: str | None) -> Model:
        """The model of that name, with its fallbacks behind it.

        A name that the configuration does not know (a personality may say anything) means the default one.
        """
        links = self._links(name)
        model = self._models.get(links[0])
        if model is None:
            chain = [self.single(link) for link in links]
            model = self._models[links[0]] = chain[0] if len(chain) == 1 else FallbackModel(links[0], chain)
        return model

    def embedder(self, name: str, dimensions: int | None) -> WireEmbedder:
        """The model of that name, for embeddings.

        Raises:
            ConfigError: there is none, or its libraries are missing.
        """
        embedder = self._embedders.get((name, dimensions))
        if embedder is None:
            config = self._config.models.get(name)
            if config is None or config.provider != "openai":
                raise ConfigError([f"memory.traces.embeddings.model: {name} is no model of the provider openai"])
            endpoint = endpoint_of(name, config, read_timeout_s=config.timeout_s)
            embedder = self._embedders[name, dimensions] = WireEmbedder(endpoint, dimensions=dimensions)
        return embedder

    def usd(self, name: str | None, input_tokens: int, output_tokens: int) -> float | None:
        """The most that the model, or one of its fallbacks, asks for so many tokens; None where that is not known."""
        if name is not None and (speech := self._config.speech.named(name)) is not None:
            per_minute = speech.usd_per_minute
            return None if per_minute is None else per_minute * input_tokens / (60 * SPEECH_TOKENS_PER_S)
        prices = [price_usd(self._config.models[link], input_tokens, output_tokens) for link in self._links(name)]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    def output_tokens(self, name: str | None) -> int | None:
        """The longest answer that is configured for it or a fallback; None where one of them has no limit."""
        if name is not None and self._config.speech.named(name) is not None:
            return None
        limits = [self._config.models[link].max_output_tokens for link in self._links(name)]
        known = [limit for limit in limits if limit is not None]
        return max(known) if len(known) == len(limits) else None

    def helper(self, name: str | None) -> str | None:
        """The model for small work that nobody watches; the same one where none is configured."""
        return HELPER if HELPER in self._config.models else name

    async def open(self) -> None:
        """Load what the default model needs, so that the first answer need not wait for it."""
        self.get(None)
        for model in list(self._single.values()):
            if isinstance(model, WireModel):
                await model.open()

    async def close(self) -> None:
        """Close the connections of all that were asked."""
        for model in self._single.values():
            if isinstance(model, WireModel):
                await model.close()
        for embedder in self._embedders.values():
            await embedder.close()

    def _links(self, name: str | None) -> list[str]:
        """The model, its fallbacks and their fallbacks, each once."""
        chain = [name if name in self._config.models else self._config.model]
        for link in chain:  # grows while it is walked
            chain.extend(other for other in self._config.models[link].fallbacks if other not in chain)
        return chain

    def single(self, name: str) -> OfflineModel | WireModel:
        """The model of that name in the configuration, without its fallbacks."""
        model = self._single.get(name)
        if model is None:
            config = self._config.models[name]
            model = OfflineModel(name) if config.provider == OFFLINE else WireModel(name, config)
            self._single[name] = model
        return model


@dataclass(slots=True)
class LiveModels:
    """The models in force: a reload gives others, so keep this and not what is in it."""

    current: ModelRegistry


class FallbackModel:
    """Asks its models in order until one answers.

    A model that was unavailable rests: it is asked last, not first, until the time that its provider named or `rest_s`
    is over. So a provider that hangs costs its timeout once, not in every message.
    """

    def __init__(self, name: str, models: Sequence[Model], *, rest_s: float = 30.0) -> None:
        """Take at least one model, the preferred one first."""
        if not models:
            raise ValueError("a fallback needs at least one model")
        self.name = name
        self._models = tuple(models)
        self._rest_s = rest_s
        self._rests_until = [0.0] * len(models)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer with the first model that can.

        Raises:
            ModelUnavailable: none can now, and at least one may later.
            ModelRefused: every one refused the request.
        """
        errors: list[ModelError] = []
        has_shown = False
        for index in self._order():
            if has_shown:
                yield StreamRestarted()
                has_shown = False
            try:
                async with aclosing(self._models[index].stream(request)) as events:
                    async for event in events:
                        has_shown = isinstance(event, TextDelta) or (
                            has_shown and not isinstance(event, StreamRestarted)
                        )
                        yield event
            except ModelError as error:
                errors.append(error)
                self._note_failure(index, error)
            else:
                self._note_answer(index)
                return
        raise _summary(errors)

    def _order(self) -> list[int]:
        """The models that are well, in order, then those that rest, in order."""
        now = asyncio.get_running_loop().time()
        return sorted(range(len(self._models)), key=lambda index: self._rests_until[index] > now)

    def _note_failure(self, index: int, error: ModelError) -> None:
        name = self._models[index].name
        if isinstance(error, ModelRefused):
            _log.warning("model_refused", model=name, reason=str(error))
            return
        if not self._rests_until[index]:
            _log.warning("model_down", model=name, reason=str(error))
        rest_s = error.retry_after_s if isinstance(error, ModelUnavailable) and error.retry_after_s else self._rest_s
        self._rests_until[index] = asyncio.get_running_loop().time() + rest_s

    def _note_answer(self, index: int) -> None:
        if self._rests_until[index]:
            _log.info("model_back", model=self._models[index].name)
            self._rests_until[index] = 0.0


def _summary(errors: Sequence[ModelError]) -> ModelError:
    """One error for all: unavailable if any model may answer later, and then as soon as the first of them may."""
    said = "; ".join(str(error) for error in errors)
    unavailable = [error for error in errors if isinstance(error, ModelUnavailable)]
    if not unavailable:
        return ModelRefused(said)
    waits_s = [error.retry_after_s for error in unavailable if error.retry_after_s is not None]
    return ModelUnavailable(said, min(waits_s) if len(waits_s) == len(unavailable) else None)
