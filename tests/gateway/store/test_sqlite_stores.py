"""The SQLite store does what every store must do."""

from __future__ import annotations

import pytest

from tests.conformance.ingest import IngestSuite
from tests.conformance.session_stores import SearchSuite, SessionSuite
from tests.conformance.stores import House, InboxSuite, LogSuite, OutboxSuite, TurnSuite


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


class TestSessions(SessionSuite):
    pass


class TestSearch(SearchSuite):
    pass


class TestIngest(IngestSuite):
    pass
