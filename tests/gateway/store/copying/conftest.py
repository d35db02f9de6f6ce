"""Empty places of both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from gateway.ops.moving import Place
from gateway.store.postgres.schema import upgrade
from tests.servers import postgres

Empty = Callable[[str], Place]


def _prepare(url: str) -> None:
    upgrade(url)


@pytest.fixture
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Empty]:
    """Makes an empty place: `sqlite`, a directory, or `postgres`, a database."""
    numbers = count()
    with ExitStack() as stack:

        def make(engine: str) -> Place:
            if engine == "sqlite":
                place = tmp_path / f"home{next(numbers)}"
                place.mkdir(mode=0o700)
                return place
            server: postgres.PostgresServer = request.getfixturevalue("postgres_server")
            return stack.enter_context(postgres.fresh_database(server, _prepare))

        yield make
