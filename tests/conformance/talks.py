"""What every store of talks must do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.domain.sessions import new_session, session_key
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.store.talks import SqlTalks, TalkRow
from tests.conformance.stores import House

ASKED, ANSWERED, ENDING = b"asked", b"answered", b"ending"
MINUTE_MS = 60_000


async def session_in(house: House) -> tuple[SqlTalks, str]:
    """The store, and the id of a session that it may speak of."""
    store_of: Any = house.store
    place = ConversationRef(channel="local", conversation="c")
    sender = Sender(channel="local", user="operator", display_name="Operator", is_verified=True)
    message = InboundMessage(
        id="m", event_id="m", conversation=place, sender=sender, text="Hello", sent_at=datetime.now(UTC)
    )
    session = new_session(message, key=session_key(message, "u_a", "conversation"), user_id="u_a", personality_id="p")
    await store_of.session_edits.open(session)
    return SqlTalks(store_of.engine), session.id


class TalkSuite:
    """The suite."""

    async def test_an_answer_goes_on_once_however_many_ask(self, house: House) -> None:
        talks, session = await session_in(house)
        row = TalkRow(message="m_1", session_id=session, asked=ASKED, wishes=b"wishes")
        await talks.add(row)
        await talks.add(row)
        assert await talks.by_message("m_1") == row
        assert await talks.answered([ANSWERED]) == []
        await talks.answer("m_1", ANSWERED, ENDING, session)
        [found] = await talks.answered([b"another", ANSWERED])
        assert (found.message, found.until, found.is_continued) == ("m_1", 0, False)
        assert await talks.ending(ENDING) == found
        assert [await talks.go_on("m_1"), await talks.go_on("m_1")] == [True, False]
        await talks.add(TalkRow(message="m_2", session_id=session, asked=ASKED))
        await talks.answer("m_2", ANSWERED, None, session)
        assert [one.message for one in await talks.answered([ANSWERED])] == ["m_2", "m_1"], "the one that goes on first"

    async def test_the_newest_of_equal_questions_is_the_one_that_is_repeated(self, house: House) -> None:
        talks, session = await session_in(house)
        assert await talks.asked(ASKED, within_ms=MINUTE_MS) is None
        await talks.add(TalkRow(message="m_1", session_id=session, asked=ASKED))
        found = await talks.asked(ASKED, within_ms=MINUTE_MS)
        assert found is not None
        assert found.message == "m_1"
        assert await talks.asked(ASKED, within_ms=-MINUTE_MS) is None
        await talks.drop("m_1")
        assert await talks.asked(ASKED, within_ms=MINUTE_MS) is None

    async def test_who_went_away_is_there_again_once_and_never_away_behind_the_answer(self, house: House) -> None:
        talks, session = await session_in(house)
        await talks.add(TalkRow(message="m_1", session_id=session, asked=ASKED))
        assert not await talks.has_left("m_1")
        assert not await talks.take_up("m_1")
        await talks.leave("m_1")
        assert await talks.has_left("m_1")
        assert [await talks.take_up("m_1"), await talks.take_up("m_1")] == [True, False]
        await talks.answer("m_1", ANSWERED, ENDING, session)
        await talks.leave("m_1")
        assert not await talks.has_left("m_1")

    async def test_talks_go_with_their_session(self, house: House) -> None:
        store_of: Any = house.store
        talks, session = await session_in(house)
        await talks.add(TalkRow(message="m_1", session_id=session, asked=ASKED))
        await store_of.session_edits.delete(session)
        assert await talks.by_message("m_1") is None

    async def test_of_a_message_that_is_not_there_nothing_is_known(self, house: House) -> None:
        talks, _ = await session_in(house)
        outcome = await talks.outcome("c", ["m_1"])
        assert (outcome.waits_for, outcome.input_tokens, outcome.output_tokens) == ("", 0, 0)
