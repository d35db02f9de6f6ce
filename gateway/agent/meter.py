"""The meter: the one door to every model. What passes is paid for, and what is not in the budget does not pass.

Every model that is given out here (to turns, summaries, anything to come) reserves before each call what the call may
cost at most, and notes afterwards what it did cost. Where no budget is set, only the noting is left.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from gateway.agent.budgets import Bill, Budgets, BudgetUse, Denied, Granted, Limit, PlannedCall, Scope, UsageStore, uses
from gateway.agent.model import (
    THOUGHT_ABOUT,
    Model,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    StreamRestarted,
    TextDelta,
)
from gateway.agent.model_states import ModelStates
from gateway.agent.prompt import estimated_tokens
from gateway.errors import BudgetExhausted, ConfigError, ModelError, ModelUnavailable, StoreError
from gateway.runtime.observe import happened
from gateway.tools.spec import size_bytes

# The longest answer while a budget of tokens or money holds, for a model whose configuration names none.
OUTPUT_TOKENS = 4096
# A message that waits for the next day looks so often whether it is there: somebody may have raised the budget.
LOOK_AGAIN_S = 3600.0
# For a call that ends and gives back what it did not need.
BUSY_S = 5.0

SPEECH_TOKENS_PER_S = 10
"""See `tokens_of_speech`; a price for a minute of speech is one for 600 tokens."""
_MESSAGE_TOKENS = 16
_IMAGE_TOKENS = 3_000
_BYTES_PER_TOKEN = 2  # fewer than in any language and any tokenizer that we know of, with room to spare in most

_log = structlog.get_logger(__name__)


class PriceList(Protocol):
    """What models cost, by their names in the configuration; None for the default model."""

    def usd(self, name: str | None, input_tokens: int, output_tokens: int) -> float | None:
        """The most that the model, or one of its fallbacks, asks for so many tokens; None where that is not known."""

    def output_tokens(self, name: str | None) -> int | None:
        """The longest answer that is configured for it; None where none is."""

    def helper(self, name: str | None) -> str | None:
        """The model for small work that nobody watches; the same one where none is configured."""


@dataclass(slots=True, kw_only=True)
class _Call:
    """A call under way.

    Attributes:
        reservation: None where no budget holds.
        said: of the answer so far, in pieces.
        is_over: it has its bill.
    """

    name: str | None
    request: ModelRequest
    day: str
    tab: Tab | None
    reservation: int | None = None
    said: list[str] = field(default_factory=list)
    is_over: bool = False


class Meter:
    """Gives out models whose calls are counted; see the module.

    Attributes:
        budgets: those that hold now.
        states: which models answer.
    """

    def __init__(
        self,
        model: Callable[[str | None], Model],
        store: UsageStore,
        budgets: Budgets,
        prices: PriceList,
        *,
        owner: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`model` gives the models themselves, which nothing else may call; `owner` names this process."""
        self._model = model
        self._store = store
        self.budgets = budgets
        self._prices = prices
        self._owner = owner
        self._now = now
        self.states = ModelStates()
        self._under_way = 0  # calls that hold a reservation, or ask for one at this moment
        self._settled = asyncio.Event()
        self._unsettled: list[Bill] = []  # what could not be written down yet
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def today(self) -> str:
        """The day, as `Budgets.day` has it."""
        return self.budgets.day(self._now())

    @property
    def day_turns_in_s(self) -> float:
        """Seconds until the budgets' next day begins."""
        return self.budgets.left_s(self._now())

    def change(self, budgets: Budgets, prices: PriceList | None = None) -> None:
        """From the next call on, other budgets hold, and other prices where they are given."""
        self.budgets = budgets
        self._prices = prices or self._prices

    async def uses(self) -> Sequence[BudgetUse]:
        """How far each kind of budget is used today; nothing where the store cannot be read, as health says then."""
        try:
            return uses(self.budgets, await self._store.spending(self.today))
        except StoreError:
            return ()

    async def recover(self) -> int:
        """End what processes had reserved that are dead; how many calls."""
        return await self._store.forgive(self._owner)

    def model(self, name: str | None, tab: Tab | None = None) -> Model:
        """The model of that name; one whose settings are wrong is there, too, and unavailable.

        Args:
            tab: of the turn that the model answers in.
        """
        try:
            model: Model | ConfigError = self._model(name)
        except ConfigError as error:
            model = error
        return _MeteredModel(self, name, model, tab)

    def helper(self, name: str | None, tab: Tab | None = None) -> Model:
        """What summaries, sub-agents and other small work ask: `models.helper`, or else the model of that name."""
        return self.model(self._prices.helper(name), tab)

    async def begin(self, name: str | None, model: str, request: ModelRequest, tab: Tab | None = None) -> _Call:
        """Reserve what the call may cost.

        Raises:
            BudgetExhausted: there is no room for it.
            StoreError: it could not be written down.
        """
        if tab is not None:
            await tab.leave()  # it was not the last call: what this one waits for may be what that one holds
        if self._unsettled:
            await self._to_its_end(self._settle_late())
        limits = self.budgets.limits_of(request.spender)
        call = _Call(name=name, request=request, day=self.budgets.day(self._now()), tab=tab)
        if not limits:
            return call
        has_limited_calls = any(limit.limits_calls for limit in limits.values())
        planned = self._planned(call, model, is_free=not any(limit.usd is not None for limit in limits.values()))
        granted, call.day = await self._granted(planned)
        call.reservation = granted.reservation
        if has_limited_calls:
            call.request = replace(request, max_output_tokens=granted.output_tokens)
        return call

    async def end(self, call: _Call, usage: ModelUsage | None, *, is_answer: bool = False) -> None:
        """Note what the call did cost; None where it cost nothing.

        Args:
            is_answer: the turn most likely ends with it; so the bill is left on its tab, where it has one.
        """
        call.is_over = True
        calls: tuple[ModelUsage, ...] = () if usage is None else (self._priced(call, usage),)
        is_of_message = call.tab is not None
        bill = Bill(call.reservation, call.request.spender, call.day, calls, is_of_message=is_of_message)
        if call.tab is not None and is_answer:
            call.tab.bill = bill
        else:
            await self.settle(bill)

    async def settle(self, bill: Bill) -> None:
        """Hand a bill to the store; it is not waited for."""
        if bill.reservation is not None or bill.calls:
            settling = asyncio.create_task(self._settle(bill))  # not cancelled with the turn
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)
            await asyncio.sleep(0)  # in which the store is given it, so that what the turn changes comes behind it

    def give_back(self, bill: Bill) -> None:
        """The bill is settled, or waits to be: calls that wait for the room that it held look again."""
        if bill.reservation is not None:
            self._is_over()

    @staticmethod
    def cut(call: _Call, model: str, *, was_read: bool) -> ModelUsage | None:
        """What a call without a reply is counted as; None where it failed before a word was said."""
        said = "".join(call.said)
        if not said and not was_read:
            return None
        output_tokens = estimated_tokens(said) if said else 0
        return ModelUsage(model=model, input_tokens=most_input_tokens(call.request), output_tokens=output_tokens)

    # ---- reserving and settling ------------------------------------------------------------------------------------

    def _planned(self, call: _Call, model: str, *, is_free: bool) -> PlannedCall:
        request, name = call.request, call.name
        output_tokens = request.max_output_tokens or self._prices.output_tokens(name) or OUTPUT_TOKENS
        input_tokens = most_input_tokens(request)
        input_usd = output_usd = 0.0
        if not is_free:
            input_usd = self._price_usd(name, model, input_tokens, 0)
            output_usd = self._price_usd(name, model, input_tokens, output_tokens) - input_usd
        return PlannedCall(
            spender=request.spender,
            day=call.day,
            model=model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            input_usd=input_usd,
            output_usd_per_token=output_usd / output_tokens,
        )

    def _price_usd(self, name: str | None, model: str, input_tokens: int, output_tokens: int) -> float:
        """What it costs at most; where that is not known, a budget of dollars cannot be kept, and nothing is called."""
        price = self._prices.usd(name, input_tokens, output_tokens)
        if price is None:
            raise ModelUnavailable(
                f"the price of the model {model} is unknown, and `budgets` limits dollars; give it "
                "`input_usd_per_million` and `output_usd_per_million` in the configuration"
            )
        return price

    async def _granted(self, planned: PlannedCall) -> tuple[Granted, str]:
        """Room for the call, and the day in which it is reserved."""
        while True:
            now, settled, budgets = self._now(), self._settled, self.budgets
            planned = replace(planned, day=budgets.day(now))
            self._under_way += 1
            try:
                answer = await self._reserve(planned, budgets.limits_of(planned.spender))
            except BaseException:
                self._is_over()
                raise
            if isinstance(answer, Granted):
                return answer, planned.day
            self._under_way -= 1
            if self.budgets is not budgets:  # they were changed meanwhile
                continue
            if answer.is_final or (self._under_way == 0 and not settled.is_set()):
                self._tell_waiting()
                happened("budget.denied", scope=answer.scope, what=answer.what)
                left_s = self.budgets.left_s(now)
                raise BudgetExhausted(
                    answer.in_words(planned.spender),
                    budget=answer.scope,
                    day_turns_in_s=left_s,
                    retry_after_s=min(left_s + 1.0, LOOK_AGAIN_S) if answer.is_final else BUSY_S,
                )
            await settled.wait()  # a call under way holds what this one needs, and may give it back

    async def _reserve(self, planned: PlannedCall, limits: Mapping[Scope, Limit]) -> Granted | Denied:
        """Reserve, and give it back at once where the turn is cancelled meanwhile."""
        reserving = asyncio.create_task(self._store.reserve(planned, limits, owner=self._owner))
        try:
            return await asyncio.shield(reserving)
        except asyncio.CancelledError:
            with suppress(StoreError):
                answer = await reserving
                if isinstance(answer, Granted):
                    self._unsettled.append(Bill(answer.reservation, planned.spender, planned.day, ()))
                    await self._settle_late()
            raise

    def _priced(self, call: _Call, usage: ModelUsage) -> ModelUsage:
        if usage.cost_usd is not None:
            return usage
        return replace(usage, cost_usd=self._prices.usd(call.name, usage.input_tokens, usage.output_tokens))

    def _is_over(self) -> None:
        self._under_way -= 1
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        """All calls that wait for room look again: a call is over, or one that was waited for gets no room itself."""
        self._settled.set()
        self._settled = asyncio.Event()

    @staticmethod
    async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
        """Do it even where the turn is cancelled meanwhile: what the store was told to write cannot be taken back."""
        task = asyncio.create_task(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_say_if_not_saved)
            raise

    async def _settle(self, bill: Bill) -> None:
        self._unsettled.append(bill)
        try:
            await self._settle_late()
        except StoreError as error:
            _log.error("usage_not_saved", waiting=len(self._unsettled), error=str(error))
        finally:
            self.give_back(bill)

    async def _settle_late(self) -> None:
        """Write down the bills that are not written, in order. Each is taken out first, so it is written once."""
        while self._unsettled:
            bill = self._unsettled.pop(0)
            try:
                await self._store.settle(bill)
            except BaseException:
                self._unsettled.insert(0, bill)
                raise


class Tab:
    """The calls of one turn that answers a message; see `TurnCommit.bill`.

    The bill of the answer is left for the turn's commit. All others are settled at once, since tools take their time. A
    turn that ends in any other way leaves the block, and its bill is settled then.

    Attributes:
        bill: that is left for the commit.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.bill: Bill | None = None

    def model(self, name: str | None) -> Model:
        """See `Meter.model`."""
        return self._meter.model(name, self)

    def helper(self, name: str | None) -> Model:
        """See `Meter.helper`."""
        return self._meter.helper(name, self)

    def paid(self) -> None:
        """The turn was committed with the bill."""
        bill, self.bill = self.bill, None
        if bill is not None:
            self._meter.give_back(bill)

    async def leave(self) -> None:
        """Have the bill settled without a commit."""
        bill, self.bill = self.bill, None
        if bill is not None:
            await self._meter.settle(bill)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()


class _MeteredModel:
    """A model behind the meter; one whose settings are wrong waits until they are corrected."""

    def __init__(self, meter: Meter, asked_name: str | None, model: Model | ConfigError, tab: Tab | None) -> None:
        self._meter = meter
        self._tab = tab
        self._asked_name = asked_name
        self._model = model
        self.name = (asked_name or "") if isinstance(model, ConfigError) else model.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """See `Model.stream`; raises `BudgetExhausted` where there is no room for the call."""
        if isinstance(self._model, ConfigError):
            raise ModelUnavailable(f"the settings of this model are wrong: {self._model}")
        meter, call = self._meter, await self._begin(request)
        # A call that is cut, by who listens or by the end of the process, has most likely been read all the same.
        was_read = True
        try:
            async with aclosing(self._watched(self._model, call.request)) as events:
                async for event in events:
                    match event:
                        case TextDelta(text=text):
                            call.said.append(text)
                        case StreamRestarted():  # what was said is paid for, and it is all asked again
                            await meter.end(call, meter.cut(call, self.name, was_read=True))
                            call = await self._begin(request)
                        case ModelReply(message=message, usage=usage):
                            await meter.end(call, usage, is_answer=not message.tool_calls)
                    yield event
        except ModelError:
            was_read = False
            raise
        finally:
            if not call.is_over:
                await meter.end(call, meter.cut(call, self.name, was_read=was_read))

    async def _begin(self, request: ModelRequest) -> _Call:
        return await self._meter.begin(self._asked_name, self.name, request, self._tab)

    async def _watched(self, model: Model, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Its answer; notes whether it answers. One that refuses a request does."""
        unthought: str | None = None
        try:
            async with aclosing(model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, ModelReply) and request.purpose in THOUGHT_ABOUT:
                        unthought = event.unthought or ""
                    yield event
        except ModelUnavailable as error:
            self._meter.states.failed(self.name, error)
            raise
        self._meter.states.answered(self.name, unthought)


def _say_if_not_saved(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("usage_not_saved", error=str(error))


def most_input_tokens(request: ModelRequest) -> int:
    """More than any tokenizer makes of it, nearly always, and seldom more than three times as much."""
    messages, tools = request.messages, request.tools
    read = [size_bytes(request.system), *(message.size_bytes for message in messages), *(t.size_bytes for t in tools)]
    pieces = len(read) + sum(len(message.tool_calls) for message in messages)
    images = sum(len(message.images) for message in messages)
    if request.speech_s:
        return tokens_of_speech(request.speech_s)
    return sum(read) // _BYTES_PER_TOKEN + pieces * _MESSAGE_TOKENS + images * _IMAGE_TOKENS


def tokens_of_speech(seconds: float) -> int:
    """What so much speech counts as, where a budget is one of tokens: the large providers count it about so."""
    return math.ceil(seconds * SPEECH_TOKENS_PER_S)
