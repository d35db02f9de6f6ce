"""The SQLite store does what every store must do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.budgets import Limit
from gateway.store.sqlite import open_store
from tests.conformance.people_stores import PeopleSuite
from tests.conformance.proposals import ProposalSuite
from tests.conformance.session_stores import SearchSuite, SessionSuite
from tests.conformance.stores import House, InboxSuite, LogSuite, OutboxSuite, TurnSuite
from tests.conformance.usage import UsageSuite, spend


@pytest.fixture
async def house(sqlite_house: House) -> House:
    return sqlite_house


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
