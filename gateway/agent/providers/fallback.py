"""Several models behind one name: when one cannot answer, the next one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from gateway.agent.model import Model, ModelEvent, ModelRequest, StreamRestarted, TextDelta
from gateway.errors import ModelError, ModelRefused, ModelUnavailable

_log = structlog.get_logger(__name__)


class FallbackModel:
    """Asks its models in order until one answers.

    A model that was unavailable rests: it is asked last, not first, until the time that its provider named or `rest_s`
    is over. So a provider that hangs costs its timeout once, not in every message.
    """

    def __init__(self, name: str, models: Sequence[Model], *, rest_s: float = 30.0) -> None:
        """Take at least one model, the preferred one first."""
        if not models:
            raise ValueError("a fallback needs at least one model")
        self._name = name
        self._models = tuple(models)
        self._rest_s = rest_s
        self._rests_until = [0.0] * len(models)

    @property
    def name(self) -> str:
        """As in the configuration."""
        return self._name

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
                async with _closing(self._models[index].stream(request)) as events:
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
        """The models that are well, in their order, then those that rest, in theirs."""
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


@asynccontextmanager
async def _closing(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
    """End a stream together with its consumer; an iterator that is no generator has nothing to end."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
