"""The sessions as people tidy them, on both engines."""

from __future__ import annotations

import pytest

from gateway.store.stores import Stores
from tests.conformance.session_edits import SessionEditSuite
from tests.conformance.stores import House


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest) -> Stores:
    house: House = request.getfixturevalue(f"{request.param}_house")
    made: Stores = house.store  # type: ignore[assignment]
    return made


class TestSessionEdits(SessionEditSuite):
    pass
