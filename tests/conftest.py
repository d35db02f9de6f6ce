"""For all tests: nothing of the machine's own settings, and the log as a gateway writes it outside a terminal."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import postgres

# What the shell or the service around the tests has set must not reach them; some of it is read as modules load.
FOREIGN = (
    "COLUMNS", "DISPLAY", "EDITOR", "FORCE_COLOR", "LINES", "NOTIFY_SOCKET", "NO_COLOR", "PAGER", "VISUAL",
    "WATCHDOG_PID", "WATCHDOG_USEC", "WAYLAND_DISPLAY",
)  # fmt: skip
for name in list(os.environ):
    is_ours = name.startswith(("ETHOS_", "OTEL_")) and name != "ETHOS_SCREENSHOTS"
    if is_ours or name in FOREIGN or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ["LC_ALL"] = "C.UTF-8"
os.umask(0o022)

# A machine that has much to do can take a second for anything: how long an example takes shows nothing.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# A shell in the background, or nohup, lets what it runs ignore signals, and children inherit that; ours must not.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A test that does not choose a port must fail each time: otherwise it fails where another one, or a gateway of the
# person who runs the tests, has the default port just then.
_DEFAULT_PORT = pytest.StashKey[socket.socket]()


def pytest_configure(config: pytest.Config) -> None:
    """Hold the port that a gateway takes by default, in the one process that starts all others."""
    if not hasattr(config, "workerinput"):
        with contextlib.suppress(OSError):
            config.stash[_DEFAULT_PORT] = socket.create_server(("127.0.0.1", 8420))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the port back."""
    if _DEFAULT_PORT in config.stash:
        config.stash[_DEFAULT_PORT].close()


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: for a quarter of its time a test waits for a process or a server."""
    return min((os.cpu_count() or 1) + 1, 4)


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The data directory of whoever runs the tests is theirs."""
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session", autouse=True)
def _authorities() -> Iterator[None]:
    """The certificates of the machine are read once, and not for each of the clients, which takes 20 ms."""
    from httpx._transports import default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", functools.cache(default.create_ssl_context))
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """One for all test files of this process that do not stop it; each takes a database of its own there."""
    if postgres.MISSING:
        pytest.skip(postgres.MISSING)
    with postgres.postgres_server(*postgres.FAST) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """An empty database of today's schema."""
    from tests.stores import make_tables  # with modules of the gateway, of which some read the environment

    with postgres.fresh_database(postgres_server, make_tables) as url:
        yield url


@pytest.fixture(autouse=True)
def _log() -> None:
    from gateway.runtime.logs import configure_logs

    configure_logs("info", "json", stream=sys.stderr)
