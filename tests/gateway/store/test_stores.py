"""The stores do what every store must do, on both engines."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from gateway.agent.budgets import Limit
from gateway.domain.sessions import new_session, session_key
from gateway.messages import ConversationRef, Receipt
from gateway.pipeline.storable import MAX_ID_BYTES, storable
from gateway.store.queue_rows import Place
from gateway.store.retention import empty_rows, full_rows
from gateway.store.stores import open_store
from tests.conformance.approvals import ApprovalSuite
from tests.conformance.erasing import ErasureSuite, PersonalSuite
from tests.conformance.hooks import HeartbeatSuite, HookSuite
from tests.conformance.ingest import IngestSuite
from tests.conformance.lanes import LaneSuite
from tests.conformance.links import LinkSuite
from tests.conformance.logins import LoginSuite
from tests.conformance.mcp_tokens import McpTokenSuite
from tests.conformance.mcp_tools import McpToolSuite
from tests.conformance.memory_journal import JournalSuite
from tests.conformance.people_stores import PeopleSuite
from tests.conformance.person_settings import PersonSettingsSuite
from tests.conformance.proposals import ProposalSuite
from tests.conformance.questions import QuestionSuite
from tests.conformance.schedules import ScheduleSuite
from tests.conformance.session_stores import SearchSuite, SessionSuite
from tests.conformance.skills import SkillSuite
from tests.conformance.stores import (
    HERE,
    House,
    InboxSuite,
    LogSuite,
    OutboxSuite,
    TurnSuite,
    answer,
    claimed,
    claimed_reply,
    ended,
    said,
    turn,
)
from tests.conformance.talks import TalkSuite
from tests.conformance.usage import UsageSuite, spend


class TestInbox(InboxSuite):
    pass


class TestApprovals(ApprovalSuite):
    pass


class TestTalks(TalkSuite):
    pass


class TestSchedules(ScheduleSuite):
    pass


class TestHooks(HookSuite):
    pass


class TestHeartbeats(HeartbeatSuite):
    pass


class TestQuestions(QuestionSuite):
    pass


class TestMcpTools(McpToolSuite):
    pass


class TestSkills(SkillSuite):
    pass


class TestMcpTokens(McpTokenSuite):
    pass


class TestLogins(LoginSuite):
    pass


class TestPersonSettings(PersonSettingsSuite):
    pass


class TestOutbox(OutboxSuite):
    pass


class TestTurns(TurnSuite):
    pass


class TestLog(LogSuite):
    async def test_what_was_forgotten_for_its_age_does_not_hide_what_was_said_since(self, sqlite_house: House) -> None:
        store = sqlite_house.store
        for _ in range(4):
            await turn(store)
        database = store.engine  # type: ignore[attr-defined]
        begin = Place(0, 0)
        old, _ = await database.read(lambda connection: full_rows(connection, "inbox", after=begin, before_ms=2**60))
        assert len(old) == 4
        await database.write(lambda connection: empty_rows(connection, "inbox", old))
        await store.inbox.add(said("new"), "t_new")
        for newest in (False, True):
            assert [entry.id for entry in await store.log.read(HERE, limit=3, newest=newest)] == ["new"]


class TestLanes(LaneSuite):
    pass


class TestPeople(PeopleSuite):
    pass


class TestSessions(SessionSuite):
    pass


class TestSearch(SearchSuite):
    pass


class TestIngest(IngestSuite):
    pass


class TestProposals(ProposalSuite):
    pass


class TestUsage(UsageSuite):
    pass


async def test_two_processes_at_once_do_not_spend_more_than_there_is(tmp_path: Path) -> None:
    """Row 27. Two stores on one file share nothing but the file, as two processes would."""
    stores = [open_store(tmp_path / "ethos.sqlite") for _ in range(2)]
    try:
        limits = {"user": Limit(turns=15), "gateway": Limit(tokens=2_000, usd=1.5)}
        turns, tokens, usd = await spend([store.usage for store in stores], limits, usd_per_token=0.001, times=60)
        assert 0 < turns <= 15
        assert 1_000 < tokens <= 2_000
        assert 1.0 < usd <= 1.5 + 1e-9
    finally:
        for store in stores:
            await store.close()


class TestLinks(LinkSuite):
    pass


class TestMemoryJournal(JournalSuite):
    pass


class TestErasure(ErasureSuite):
    pass


class TestPersonal(PersonalSuite):
    pass


async def test_a_reply_whose_person_was_erased_while_it_was_sent_needs_no_notice(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ethos.sqlite")
    try:
        await turn(store, replies=(answer("r1"),))
        row = await claimed_reply(store)
        await store.engine.write(lambda connection: connection.execute("DELETE FROM outbox").close())
        await store.outbox.record_dead(row, "given up", answer("r1.given-up"))
        await store.outbox.record_sent(row, Receipt(message_ids=("p1",)), answer("r1.late"))
        assert await store.outbox.unsent() == []
    finally:
        await store.close()


async def test_the_longest_ids_that_are_accepted_fit_into_every_index(house: House) -> None:
    """An index of PostgreSQL takes no row of more than 2704 bytes, which it may compress; these cannot be."""
    channel, conversation, thread, user, event, message_id = (
        random.Random(number).randbytes(MAX_ID_BYTES).hex()[:length]
        for number, length in enumerate((64, *(5 * [MAX_ID_BYTES])))
    )
    where = ConversationRef(channel=channel, conversation=conversation, thread=thread)
    sender = replace(said("a").sender, channel=channel, user=user)
    longest = storable(said("a", where, id=message_id, event_id=event, sender=sender))
    assert (longest.id, longest.event_id) == (message_id, event)
    assert await house.store.inbox.add(longest, "t_1") is not None
    assert await house.store.inbox.add(longest, "t_2") is None
    row = await claimed(house.store, where)
    key = session_key(longest, "u_ada", "conversation")
    session = new_session(longest, key=key, user_id="u_ada", personality_id="pirate")
    await house.store.turns.commit_turn(ended(row, session=session))
