"""News over PostgreSQL: one connection that listens, and one that notifies; see `gateway.cluster.news.NewsBus`.

Notifications are sent in autocommit and never inside a transaction: there, all commits of the server would wait for
each other. A listener whose connection is dead hears nothing and knows nothing, so it pings itself. A ping goes with
what the worker asks of the server at that moment, so it costs no round trip.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import psycopg
import structlog

from gateway.errors import StoreError, StoreUnavailable
from gateway.runtime.backoff import delay_s
from gateway.runtime.failpoints import reach
from gateway.runtime.rhythm import at_moment, next_moment_s
from gateway.store.engine import Engine
from gateway.store.postgres.engine import Server

CHANNEL = "ethos"
PING_S = 10.0
# So long a connection, a ping at the start, or the sending of some news may take.
PATIENCE_S = 5.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
# Of the time between pings: so long after a moment at which leases are renewed, whose transaction must not notify.
_BEHIND = 0.1
_NOTIFY = "SELECT pg_notify(%s, %s)"
_NOTIFY_ALONG = "SELECT pg_notify(?, ?)"
_PING = '{"ping":'

_log = structlog.get_logger(__name__)
_FAULTS = (psycopg.Error, OSError, TimeoutError)


class PostgresListening:
    """A worker's own two connections, direct to the server."""

    def __init__(
        self, url: str, *, engine: Engine | None = None, ping_s: float = PING_S, patience_s: float = PATIENCE_S
    ) -> None:
        """Nothing is connected yet.

        Args:
            url: as libpq takes it, of the server itself: a pooler hands no notifications on.
            engine: of the same database, which takes the pings along; without it they go the way of the news.
            ping_s: between pings; a connection is given up when one has not come back by the next.
            patience_s: for what is tried once.
        """
        self._url = url
        self._engine = engine
        self._ping_s = ping_s
        self._patience_s = patience_s
        self._server = Server(url)
        self._listener: psycopg.AsyncConnection[Any] | None = None
        self._sender: psycopg.AsyncConnection[Any] | None = None
        self._sending = asyncio.Lock()
        self._pinging: asyncio.Task[None] | None = None
        self._is_heard = False
        self.gaps = 0

    @property
    def is_heard(self) -> bool:
        """Whether the last ping came back, and the connection has not ended since."""
        return self._is_heard

    async def open(self) -> None:
        """Listen, and see that what is sent comes back.

        Raises:
            StoreUnavailable: the server cannot be reached, or something between hands no notifications on.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                self._listener = await self._listening()
        except _FAULTS as error:
            raise self._server.unavailable(str(self._server.translated(error) or "no answer")) from error
        try:
            async with asyncio.timeout(self._patience_s):
                await self._until_back(self._listener, lambda _text: None)
        except _FAULTS as error:
            await self.close()
            raise StoreUnavailable(
                f"{self._server.shown}: a notification that this worker sent to itself did not come back within "
                f"{self._patience_s:g} s. A pooler in transaction mode hands none on: give the address of the server "
                "itself, with the same database, as `store.listen_url`, or `listen_url: off` to do without; then "
                "workers look four times a second, and there are no previews of turns that run on another worker."
            ) from error
        self._is_heard = True

    async def close(self) -> None:
        """Close both connections. Idempotent."""
        self._is_heard = False
        if self._pinging is not None:
            self._pinging.cancel()
            await asyncio.wait([self._pinging])
        for connection in (self._listener, self._sender):
            if connection is not None:
                await connection.close()
        self._listener = self._sender = None

    async def send(self, texts: Sequence[str]) -> None:
        """Notify of each text; what cannot be sent now is dropped."""
        reach("news.sending")
        try:
            async with self._sending, asyncio.timeout(self._patience_s):
                for text in texts:
                    await self._notify(text)
        except _FAULTS as error:
            _log.debug("news_dropped", texts=len(texts), error=str(self._server.translated(error)))
            await self._drop_sender()

    async def run(self, heard: Callable[[str], None]) -> None:
        """Hand over what comes until cancelled; connects again whenever the connection breaks or is silent."""
        failures = 0
        try:
            while True:
                try:
                    if self._listener is None:
                        async with asyncio.timeout(self._patience_s):
                            self._listener = await self._listening()
                    await self._listen(self._listener, heard)
                except _FAULTS as error:
                    if self._is_heard or not failures:
                        _log.warning("news_not_heard", error=str(self._server.translated(error)) or "silence")
                    failures = 0 if self._is_heard else failures + 1
                await self._drop_listener()
                await asyncio.sleep(delay_s(failures + 1, first_s=_FIRST_RETRY_S, longest_s=_LONGEST_RETRY_S))
        finally:
            await self.close()

    # ---- pieces ------------------------------------------------------------------------------------------------------

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            client_encoding="UTF8",
            fallback_application_name="ethos news",
            tcp_user_timeout=5_000,
            keepalives_idle=2,
            keepalives_interval=1,
            keepalives_count=3,
        )

    async def _listening(self) -> psycopg.AsyncConnection[Any]:
        connection = await self._connect()
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _notify(self, text: str) -> None:
        is_new = self._sender is None
        if self._sender is None:
            self._sender = await self._connect()
        try:
            await self._sender.execute(_NOTIFY, (CHANNEL, text))
        except psycopg.OperationalError:
            if is_new:
                raise
            await self._drop_sender()  # it ended while it had nothing to send, and has learned of it now
            await self._notify(text)

    async def _listen(self, connection: psycopg.AsyncConnection[Any], heard: Callable[[str], None]) -> None:
        """Hear until a ping does not come back before the next is due."""
        while True:
            behind_s = _BEHIND * self._ping_s
            next_s = behind_s + next_moment_s(self._ping_s, now_s=asyncio.get_running_loop().time() - behind_s)
            async with asyncio.timeout(self._ping_s):
                await self._until_back(connection, heard)
            if not self._is_heard:
                _log.info("news_heard", server=self._server.shown)
            self._is_heard = True
            await self._hear(connection, heard, until_s=next_s)

    async def _until_back(self, connection: psycopg.AsyncConnection[Any], heard: Callable[[str], None]) -> None:
        """Ping, and hear until the ping is back."""
        ping = f'{_PING}"{secrets.token_hex(8)}"}}'
        # Not waited for: in silence psycopg takes 5 s more to give a statement up.
        self._pinging = asyncio.create_task(self._send_ping(ping), name="ping")
        await self._hear(connection, heard, until=ping)

    async def _send_ping(self, ping: str) -> None:
        if self._engine is None:
            await self.send([ping])
            return
        try:
            async with asyncio.timeout(self._patience_s):
                await self._engine.ask(lambda connection: connection.execute(_NOTIFY_ALONG, (CHANNEL, ping)).fetchone)
        except (StoreError, TimeoutError) as error:
            _log.debug("ping_dropped", error=str(error))

    async def _hear(
        self,
        connection: psycopg.AsyncConnection[Any],
        heard: Callable[[str], None],
        *,
        until: str | None = None,
        until_s: float | None = None,
    ) -> None:
        """Until that text, or that moment, comes.

        Without a wake-up of our own while nothing comes, where psycopg's `notifies` has ten a second.
        """
        loop, readable, is_over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def end() -> None:
            is_over.set()
            readable.set()

        descriptor = connection.fileno()
        loop.add_reader(descriptor, readable.set)
        try:
            with nullcontext() if until_s is None else at_moment(until_s, end):
                while not is_over.is_set():
                    for text in _arrived(connection):
                        if text == until:
                            is_over.set()
                        if not text.startswith(_PING):
                            heard(text)
                    if not is_over.is_set():
                        await readable.wait()
                        readable.clear()
        finally:
            loop.remove_reader(descriptor)

    async def _drop_listener(self) -> None:
        self._is_heard = False
        self.gaps += 1
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    async def _drop_sender(self) -> None:
        if self._sender is not None:
            await self._sender.close()
            self._sender = None


def _arrived(connection: psycopg.AsyncConnection[Any]) -> Iterator[str]:
    connection.pgconn.consume_input()
    while (notification := connection.pgconn.notifies()) is not None:
        yield notification.extra.decode()
