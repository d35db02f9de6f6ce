"""Calls of services of speech, behind the meter: reserved before, and noted after with the seconds that they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from gateway.agent.meter import Meter, Tab, tokens_of_speech
from gateway.agent.model import ModelRequest, ModelUsage, Spender
from gateway.errors import ModelError, ModelUnavailable
from gateway.runtime.observe import note, span

T = TypeVar("T")


class TooSlow(ModelUnavailable):
    """The service did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """One of the two services.

    Attributes:
        name: among the models, as in the configuration.
        timeout_s: for one call.
    """

    meter: Meter
    name: str
    purpose: Literal["listen", "speak"]
    timeout_s: float

    async def call(
        self, work: Callable[[], Awaitable[T]], spender: Spender, *, most_s: float, seconds_of: Callable[[T], float]
    ) -> T:
        """Make one call.

        Args:
            most_s: the seconds of speech that it may come to.
            seconds_of: those that it came to.

        Raises:
            ModelUnavailable, ModelRefused, BudgetExhausted, TooSlow, StoreError.
        """
        request = ModelRequest(
            system="", messages=(), max_output_tokens=1, purpose=self.purpose, spender=spender, speech_s=most_s
        )
        with span("model.call", model=self.name, purpose=self.purpose):
            async with Tab(self.meter) as tab:
                return await self._counted(work, request, tab, seconds_of)

    async def _counted(
        self, work: Callable[[], Awaitable[T]], request: ModelRequest, tab: Tab, seconds_of: Callable[[T], float]
    ) -> T:
        meter = self.meter
        call = await meter.begin(self.name, self.name, request, tab)
        usage = ModelUsage(model=self.name, input_tokens=tokens_of_speech(request.speech_s), output_tokens=0)
        is_paid = True  # also a call that is cut
        try:
            result = await self._in_time(work)
            seconds = seconds_of(result)
            usage = ModelUsage(model=self.name, input_tokens=tokens_of_speech(seconds), output_tokens=0)
            note(input_tokens=usage.input_tokens, output_tokens=0, speech_s=seconds)
            meter.states.answered(self.name)
        except ModelError as error:
            is_paid = isinstance(error, TooSlow)
            if isinstance(error, ModelUnavailable):
                meter.states.failed(self.name, error)
            raise
        finally:
            await meter.end(call, usage if is_paid else None)
        return result

    async def _in_time(self, work: Callable[[], Awaitable[T]]) -> T:
        """A package of another author may raise anything."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await work()
        except ModelError:
            raise
        except TimeoutError as error:
            raise TooSlow(f"{self.name} did not answer within {self.timeout_s:g} s") from error
        except Exception as error:
            raise ModelUnavailable(f"{self.name} broke: {type(error).__name__}: {error}"[:300]) from error
