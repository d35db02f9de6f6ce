"""The life of one connection: the task that stands in the library's context, from its beginning to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol

import structlog
from mcp import Client, types
from mcp.client._transport import TransportStreams
from mcp.client.context import ClientRequestContext

from gateway import __version__
from gateway.mcp.catalogue import Listing
from gateway.mcp.connection import Connection, reason_of
from gateway.mcp.errors import CannotStart
from gateway.mcp.live import DECLINED
from gateway.mcp.lives import Lives
from gateway.mcp.mending import Mending

Mode = Literal["auto", "legacy", "2026-07-28"]
_log = structlog.get_logger(__name__)


class Link(Protocol):
    """A way to a server, for one connection."""

    @property
    def fault(self) -> str | None:
        """Why it ended, as far as the way itself knows; asked after its end."""

    def streams(self) -> AbstractAsyncContextManager[TransportStreams]:
        """Open it."""


class Life:
    """One connection.

    Attributes:
        connected: the connection and its list of tools, once there are both.
        ended: set where it is to end, and where it has.
        why: it ended; empty where we ended it.
        task: that stands in the library's context.
    """

    def __init__(
        self,
        name: str,
        link: AbstractAsyncContextManager[Link],
        mode: Mode,
        *,
        on_change: Callable[[], None],
        answer_within_s: float,
        lives: Lives,
    ) -> None:
        """It begins at once; `on_change` is told that the server's list of tools changed."""
        self.connected: asyncio.Future[tuple[Connection, Listing]] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.why = ""
        self._link = link
        self._mode = mode
        self._on_change = on_change
        self._answer_within_s = answer_within_s
        self._lives = lives
        self.task = asyncio.create_task(self._run(), name=f"mcp {name}")

    async def end(self, patience_s: float) -> None:
        """End it, and wait until all of it is gone."""
        self.ended.set()
        await asyncio.wait((self.task,), timeout=patience_s)
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait((self.task,))
        self.connected.cancel()

    async def _run(self) -> None:
        opened: list[Link] = []
        try:
            async with self._link as link:
                opened.append(link)
                await self._connect(link)
        except Exception as error:  # noqa: BLE001 (whatever the library raises is the end of one connection)
            self.why = reason_of(error)
        finally:
            self.why = next((link.fault for link in opened if link.fault), self.why)
            self.ended.set()

    async def _connect(self, link: Link) -> None:
        mended: list[Mending] = []

        @asynccontextmanager
        async def transport() -> AsyncIterator[TransportStreams]:
            async with link.streams() as (reading, writing):
                mended.append(Mending(reading, self.ended.set))
                yield mended[-1], writing

        async def heard(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._on_change()

        made: list[Connection] = []

        async def asked(
            context: ClientRequestContext,  # noqa: ARG001 (the library names both)
            params: types.ElicitRequestParams,
        ) -> types.ElicitResult:
            return await made[0].asked(params) if made else DECLINED

        client = Client(
            transport(),
            # Of a version that is named the SDK asks nothing, and so learns of no tools.
            mode="legacy" if self._mode == "legacy" else "auto",
            message_handler=heard,
            elicitation_callback=asked,
            client_info=types.Implementation(name="ethos-gateway", version=__version__),
            cache=None,
        )
        async with client:
            connection = Connection(
                client, mended[-1], self.ended, answer_within_s=self._answer_within_s, lives=self._lives
            )
            if self._mode == "2026-07-28" and connection.era == "legacy":
                raise CannotStart("it speaks an older era of the protocol; write `protocol: auto`")
            made.append(connection)
            self.connected.set_result((connection, await connection.listing()))
            hearing = asyncio.create_task(self._hear(connection))
            try:
                await self.ended.wait()
            finally:
                hearing.cancel()
                await asyncio.wait((hearing,))

    async def _hear(self, connection: Connection) -> None:
        """Hear of changes, where they must be subscribed to."""
        try:
            if connection.tells_changes:
                await connection.hear_changes(self._on_change)
        except Exception as error:  # noqa: BLE001 (as above: the next connection lists again)
            _log.info("mcp_changes_not_told", error=str(error))
