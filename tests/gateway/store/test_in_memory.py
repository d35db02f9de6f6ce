"""The in-memory twin does what every store must do."""

from __future__ import annotations

import pytest

from gateway.store.in_memory import InMemoryStore
from tests.conformance.people_stores import PeopleSuite
from tests.conformance.proposals import ProposalSuite
from tests.conformance.session_stores import SearchSuite, SessionSuite
from tests.conformance.stores import House, InboxSuite, LogSuite, OutboxSuite, TurnSuite
from tests.conformance.usage import UsageSuite


@pytest.fixture
def house() -> House:
    made: list[InMemoryStore] = []

    def make(now_ms: object) -> InMemoryStore:
        """The same object again: a twin keeps in memory what the others keep on disk."""
        if not made:
            made.append(InMemoryStore(now_ms=now_ms))
        return made[0]

    return House(make)


class TestInbox(InboxSuite):
    pass


class TestOutbox(OutboxSuite):
    pass


class TestTurns(TurnSuite):
    pass


class TestLog(LogSuite):
    pass


class TestPeople(PeopleSuite):
    pass


class TestSessions(SessionSuite):
    pass


class TestSearch(SearchSuite):
    pass


class TestProposals(ProposalSuite):
    pass


class TestUsage(UsageSuite):
    pass
