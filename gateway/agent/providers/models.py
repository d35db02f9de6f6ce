"""Real models: any OpenAI-compatible endpoint and Anthropic, with retries, timeouts and a watchdog.

This module decides when to try again and when to give up; `client.py` speaks with the provider. The HTTP client behind
it takes a tenth of a second to import, so it is loaded by the first answer, or by `WireModel.open`, and never by an
import of this module.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import structlog

from gateway.agent.model import THOUGHT_ABOUT, ModelEvent, ModelReply, ModelRequest, StreamRestarted, TextDelta
from gateway.config import ModelConfig
from gateway.config.prices import Prices, prices_of
from gateway.domain.personalities.files import Thinking
from gateway.errors import ConfigError, ModelError, ModelUnavailable
from gateway.runtime.extras import how_to_install

if TYPE_CHECKING:
    from gateway.agent.providers.client import HttpWire

Provider = Literal["openai", "anthropic"]
Retry = Literal["never", "once", "yes"]

HTTP_LIBRARY = "aiohttp"  # comes with the extras `models` and `embeddings`
_DEFAULT_URLS: dict[Provider, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Which model, where, and at what price.

    Attributes:
        name: as in the configuration.
        model: the provider's id of the model.
        base_url: None for the provider's own service.
        prices_usd: None to ask the list.
        read_timeout_s: the longest silence of the connection: a second net below the watchdog, which watches for
            pieces of an answer and not for bytes.
        sees_images: pictures are sent to it.
    """

    name: str
    provider: Provider
    model: str
    api_key: str | None
    base_url: str | None
    read_timeout_s: float
    prices_usd: Prices | None = None
    sees_images: bool = False

    @property
    def url(self) -> str:
        """Where the calls go."""
        return self.base_url or _DEFAULT_URLS[self.provider]


def endpoint_of(name: str, config: ModelConfig, *, read_timeout_s: float) -> Endpoint:
    """That of a model of the configuration."""
    return Endpoint(
        name=name,
        provider="anthropic" if config.provider == "anthropic" else "openai",
        model=config.model or name,
        api_key=config.api_key.get_secret_value().strip() or None if config.api_key else None,
        base_url=config.base_url,
        prices_usd=prices_of(config),
        read_timeout_s=read_timeout_s,
        sees_images=config.base_url is None if config.sees_images is None else config.sees_images,
    )


class CallFailed(Exception):
    """One call of a model gave no usable answer.

    Attributes:
        error: what the caller of the model is told if it is not tried again.
        retry: whether the same call may succeed if it is made again soon.
    """

    def __init__(self, error: ModelError, *, retry: Retry) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry = retry


class WireModel:
    """A model behind a network.

    Transient failures (429, 5xx, a lost connection, silence) are tried again: at most `max_retries` times, and no
    attempt begins later than `timeout_s` after the first failure. A provider's `retry-after` is waited for exactly, or
    handed on where it lies beyond that. Making one checks the settings; nothing is loaded and no server is called yet.

    Args:
        name: as in the configuration.
        backoff_s: the first wait where the provider names none; doubled each time, and varied by half.

    Raises:
        ConfigError: all that cannot work.
    """

    def __init__(self, name: str, config: ModelConfig, *, backoff_s: float = 0.5) -> None:
        self._endpoint = endpoint_of(name, config, read_timeout_s=max(config.timeout_s, config.silence_s))
        problems = _problems(self._endpoint, config)
        if problems:
            raise ConfigError(problems)
        self.name = name
        self._config = config
        self._backoff_s = backoff_s
        self._wire: HttpWire | None = None

    async def open(self) -> None:
        """Load the HTTP client now, so that the first answer need not wait for it."""
        await self._opened()

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """See `Model.stream`."""
        wire = await self._opened()
        limits = (request.max_output_tokens, self._config.max_output_tokens)
        thinking = self._thinking(request)
        request = replace(request, max_output_tokens=min(filter(None, limits), default=None), thinking=thinking)
        patience = _Patience(self._config.max_retries, self._config.timeout_s, self._backoff_s)
        while True:
            has_shown = False
            try:
                async with aclosing(self._attempt(wire, request)) as events:
                    async for event in events:
                        has_shown = True
                        yield event
            except CallFailed as failure:
                wait_s = patience.wait_s(failure)
                _log.warning("model_call_failed", model=self.name, reason=str(failure), again_s=wait_s)
            else:
                return
            if has_shown:
                yield StreamRestarted()
            await asyncio.sleep(wait_s)

    def _thinking(self, request: ModelRequest) -> Thinking | None:
        """As the request has it, or else the configuration."""
        wanted = request.thinking or self._config.thinking
        return wanted if request.purpose in THOUGHT_ABOUT or wanted == "off" else None

    async def _attempt(self, wire: HttpWire, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply]:
        """One call under the watchdog."""
        allowed_s, waited_for = self._config.timeout_s, "gave no answer within"
        async with aclosing(wire.answer(request)) as events:
            while True:
                try:
                    async with asyncio.timeout(allowed_s):
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    silent = ModelUnavailable(f"{self.name} ({self._endpoint.model}) {waited_for} {allowed_s:g} s")
                    raise CallFailed(silent, retry="yes") from error
                allowed_s, waited_for = self._config.silence_s, "fell silent in the middle of its answer for"
                if isinstance(event, ModelReply) or event.text:
                    yield event

    async def _opened(self) -> HttpWire:
        if self._wire is None:
            wire = await asyncio.to_thread(_load, self._endpoint)  # the import takes a while
            if self._wire is None:  # another call may have loaded it meanwhile
                self._wire = wire
        return self._wire


@dataclass(slots=True)
class _Patience:
    """How often, and until when, one answer is tried again.

    A loop of our own and not a retry library: an attempt is a stream that has perhaps been shown, and a `retry-after`
    beyond the window must end the attempts at once, so that a fallback answers or the message is parked.
    """

    retries_left: int
    window_s: float
    backoff_s: float
    closes_at: float | None = None
    may_retry_once: bool = True

    def wait_s(self, failure: CallFailed) -> float:
        """How long to wait before the next attempt; raises the error of `failure` if there is none."""
        now = asyncio.get_running_loop().time()
        if self.closes_at is None:
            self.closes_at = now + self.window_s
        asked_s = failure.error.retry_after_s if isinstance(failure.error, ModelUnavailable) else None
        wait_s = asked_s if asked_s is not None else self.backoff_s * random.uniform(0.5, 1.5)  # noqa: S311 (no secret)
        is_allowed = failure.retry == "yes" or (failure.retry == "once" and self.may_retry_once)
        if not is_allowed or self.retries_left == 0 or now + wait_s > self.closes_at:
            raise failure.error from failure
        self.may_retry_once = self.may_retry_once and failure.retry != "once"
        self.retries_left -= 1
        self.backoff_s *= 2
        return wait_s


def _load(endpoint: Endpoint) -> HttpWire:
    from gateway.agent.providers.client import HttpWire  # noqa: PLC0415 (loads the HTTP client)

    return HttpWire(endpoint)


def _problems(endpoint: Endpoint, config: ModelConfig) -> list[str]:
    """What cannot work, one line for people each; never the key itself."""
    problems, key = [], endpoint.api_key
    if find_spec(HTTP_LIBRARY) is None:
        problems.append(f"the libraries for real models are not installed; run {how_to_install('models')}")
    if key and not (key.isascii() and key.isprintable()):
        problems.append("api_key holds characters that no key has; copy it again")
    if (config.input_usd_per_million is None) != (config.output_usd_per_million is None):
        problems.append("give both input_usd_per_million and output_usd_per_million, or neither")
    return [f"model {endpoint.name}: {problem}" for problem in problems]
