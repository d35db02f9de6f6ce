"""Parking at its moments: what is waited for may come while it is being written down that it is waited for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from gateway.domain.channels import Channels
from gateway.errors import BudgetExhausted, ModelUnavailable
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.people.operators import Operators
from gateway.pipeline import parking as parking_module
from gateway.pipeline.parking import Parking
from gateway.pipeline.queues import InboxRow

ADA = ConversationRef(channel="web", conversation="ada")
BEN = ConversationRef(channel="web", conversation="ben")
DOWN = ModelUnavailable("down")


def over() -> BudgetExhausted:
    return BudgetExhausted("over", budget="gateway", day_turns_in_s=3_600, retry_after_s=3_600)


class Told:
    """A parking, and who was expedited by it."""

    def __init__(self) -> None:
        self.expedited: list[ConversationRef] = []
        self.parking = Parking(self, Operators(Channels()))  # type: ignore[arg-type]

    async def retry_now(self, conversation: ConversationRef) -> None:
        self.expedited.append(conversation)

    def is_told(self, conversation: ConversationRef, error: ModelUnavailable, waits_for: str) -> bool:
        """Whether the person would not be told of a new message."""
        message = InboundMessage(
            id="m",
            event_id="e",
            conversation=conversation,
            sender=Sender(channel="web", user="1", display_name="", is_verified=True),
            text="hi",
            sent_at=datetime.now(UTC),
        )
        row = InboxRow(
            lane=1,
            seq=1,
            claim="c",
            turn_id="t",
            message=message,
            attempts=1,
            is_told=False,
            has_steps=False,
            accepted_at=datetime.now(UTC),
        )
        return self.parking.notice(row, waits_for, error) is None


async def test_a_model_that_answers_somebody_while_a_message_is_being_parked_answers_that_too() -> None:
    """It would wait for up to a minute otherwise, beside a model that is there."""
    told = Told()
    waits_for, again_s = told.parking.park(ADA, "m", DOWN)
    await told.parking.answered(BEN, "m")
    assert told.expedited == [ADA]
    told.expedited.clear()
    assert await told.parking.announced(ADA, waits_for, DOWN, again_s) == 0.0  # what was expedited was not parked yet
    assert told.expedited == [ADA]
    waits_for, again_s = told.parking.park(ADA, "m", DOWN)
    assert await told.parking.announced(ADA, waits_for, DOWN, again_s) == again_s > 0


async def test_a_thousand_who_wait_are_tried_together_the_longest_wait_first() -> None:
    """Who is answered first does not wait for a commit for each of the others: they share them."""
    amount = 2 * parking_module.AT_ONCE + 3
    places = [ConversationRef(channel="web", conversation=str(number)) for number in range(amount)]
    together = asyncio.Barrier(parking_module.AT_ONCE)
    expedited: list[ConversationRef] = []

    class Waiting:
        async def retry_now(self, conversation: ConversationRef) -> None:
            expedited.append(conversation)
            if len(expedited) <= 2 * parking_module.AT_ONCE:
                await together.wait()

    parking = Parking(Waiting(), Operators(Channels()))  # type: ignore[arg-type]
    for place in places:
        parking.park(place, "m", DOWN)
    async with asyncio.timeout(60):
        await parking.answered(BEN, "m")
    assert expedited == places


async def test_a_budget_that_is_raised_between_a_denial_and_the_parking_is_not_waited_for() -> None:
    """The draft of an answer is withdrawn in between, which takes its time; the wait would be an hour."""
    told = Told()
    error = over()
    await told.parking.budgets_changed()
    assert told.parking.park(ADA, "m", error) == ("budget gateway", 0.0)
    assert told.parking.park(ADA, "m", over()) == ("budget gateway", 3_600)


async def test_of_a_budget_people_are_told_anew_in_a_new_day_and_who_was_told_is_forgotten_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who dropped a message on one day heard nothing at all of those that waited on every other."""
    now_s = 1_000.0
    monkeypatch.setattr(parking_module.time, "monotonic", lambda: now_s)
    told = Told()
    waits_for, again_s = told.parking.park(ADA, "m", error := over())
    await told.parking.announced(ADA, waits_for, error, again_s)
    told.parking.ended(ADA)  # by `/stop`
    assert told.is_told(ADA, error, waits_for)
    assert not told.is_told(BEN, error, waits_for)
    now_s += 3_601
    assert not told.is_told(ADA, error, waits_for)
    waits_for, again_s = told.parking.park(BEN, "m", error)
    await told.parking.announced(BEN, waits_for, error, again_s)
    assert list(told.parking._told[waits_for]) == [BEN]
