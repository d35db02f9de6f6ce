from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gateway.testing.places import MISSING, SERVERS, Place, Server


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[str], Server]]:
    """Servers by their name, each started when it is asked for first."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:

        def server(name: str) -> Server:
            missing = MISSING.get(name)
            if missing:
                pytest.skip(missing)
            if name not in started:
                started[name] = stack.enter_context(SERVERS[name]())
            return started[name]

        yield server


@pytest.fixture(params=[*SERVERS])
def place(request: pytest.FixtureRequest, server_of: Callable[[str], Server], tmp_path: Path) -> Place:
    """An empty memory of each kind."""
    return server_of(request.param)(tmp_path / "home")
