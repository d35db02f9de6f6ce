"""The terminal as a channel: listens on a Unix socket for `ethos chat`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from adapters.cli import client, convert
from adapters.cli.connection import Connection
from gateway.errors import AdapterNotReady, PermanentSendError, StoreError
from gateway.messages import Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

_log = logging.getLogger(__name__)

OPERATOR = "operator"
_MAX_TERMINALS = 64
_LOOK_S = 5.0  # between two looks at whether the socket is still where terminals look for it
_STALLED_S = 30.0  # a terminal that has not read for so long is dropped; it may come back


class CliAdapter:
    """Serves every terminal that is attached to the socket.

    The gateway's own queue is what is delivered from: an answer is there before `send` is called, so `send` only wakes
    the terminals that watch its conversation, and each reads on from its own cursor.
    """

    kind = "cli"
    capabilities = Capabilities(
        max_text_chars=100_000, is_idempotent_send=True, preview_interval_s=0.05, shows_log=True
    )
    operator_account = OPERATOR

    def __init__(self, socket_path: Path, services: AdapterServices, *, stalled_s: float = _STALLED_S) -> None:
        self.name = services.name
        self._path = socket_path
        self._services = services
        self._stalled_s = stalled_s
        self._listening: socket.socket | None = None
        self._file: tuple[int, int] | None = None
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()

    async def connect(self) -> None:
        """Open the socket.

        Raises:
            AdapterNotReady: another process listens there, or the place cannot be used.
        """
        await self.close()
        try:
            if self._path.parent == self._services.state_dir:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._path.parent.chmod(0o700)
            self._listening = client.listen(self._path)
            self._file = client.file_of(self._path)
        except OSError as error:
            raise AdapterNotReady(f"{self._path.parent} cannot be used: {error.strerror or error}") from error
        self._closed = asyncio.Event()

    async def run(self, accept: Accept) -> None:
        """Serve terminals until cancelled or closed.

        Raises:
            AdapterNotReady: the socket was not opened, or its file is gone.
        """
        listening, closed = self._listening, self._closed
        if listening is None:
            raise AdapterNotReady("the terminal's socket is not open; connect first")

        def attach(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer, accept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        # The server gets a copy, since it closes what it has: terminals that call between two runs wait in the queue.
        # Not start_unix_server, which from Python 3.13 on removes the socket's file too.
        server = await asyncio.start_server(attach, sock=listening.dup(), limit=convert.MAX_LINE_BYTES)
        try:
            await self._wait_until_gone(closed)
        finally:
            server.close()
            await self._end_connections()

    async def _wait_until_gone(self, closed: asyncio.Event) -> None:
        """Wait for the end.

        Raises:
            AdapterNotReady: the socket's file was deleted or replaced, so that nobody finds us; connect anew.
        """
        while not closed.is_set():
            if client.file_of(self._path) != self._file:
                raise AdapterNotReady(f"the terminal's socket {self._path} was removed; it is made again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await closed.wait()

    async def send(self, message: OutboundMessage) -> Receipt:
        """Wake whoever watches; who does not finds the message in the log later.

        Raises:
            PermanentSendError: there can be no such conversation.
        """
        problem = convert.conversation_problem(message.conversation.conversation)
        if problem is not None:
            raise PermanentSendError(problem)
        for connection in self._watching(message.conversation):
            connection.wake()
        return Receipt(message_ids=(message.id,))

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far on every terminal that watches."""
        for connection in self._watching(message.conversation):
            connection.preview(message.id, message.text)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show that an answer is on its way."""
        for connection in self._watching(conversation):
            connection.show_typing()

    async def close(self) -> None:
        """Let the terminals go and remove the socket."""
        self._closed.set()
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
            with contextlib.suppress(OSError):  # gone already, which is what is wanted
                if client.file_of(self._path) == self._file:
                    self._path.unlink()
        await self._end_connections()

    def _watching(self, conversation: ConversationRef) -> Iterator[Connection]:
        return (each for each in self._connections if each.conversation == conversation)

    async def _end_connections(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accept: Accept) -> None:
        try:
            account = await self._admit(writer)
            if account is not None:
                connection = Connection(
                    reader, writer, services=self._services, account=account, stalled_s=self._stalled_s
                )
                await self._talk(connection, accept)
        except* (ConnectionError, TimeoutError):
            _log.debug("a terminal went away, or stopped reading")
        except* StoreError as errors:
            _log.warning("a terminal was dropped, it may come back: %s", errors.exceptions[0])
        except* Exception:  # noqa: BLE001 (one terminal's trouble must not end the others')
            _log.exception("a terminal was dropped")
        finally:
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # it does not read; waiting for it would keep its buffer for ever
            writer.close()

    async def _admit(self, writer: asyncio.StreamWriter) -> str | None:
        """The account behind the socket; None, and told why, for those who may not come in."""
        uid = client.peer_uid(writer)
        reason = None
        if uid not in {os.getuid(), 0}:
            reason = "this socket belongs to another user"
        elif len(self._connections) >= _MAX_TERMINALS:
            reason = f"{_MAX_TERMINALS} terminals are attached already; close one"
        if reason is not None:
            writer.write(convert.encode(convert.Failure(reason=reason)))
            await writer.drain()
            return None
        return OPERATOR if uid == os.getuid() else f"uid-{uid}"

    async def _talk(self, connection: Connection, accept: Accept) -> None:
        self._connections.add(connection)
        try:
            if await connection.greet():
                await connection.serve(self._accept_and_wake(accept))
        finally:
            self._connections.discard(connection)

    def _accept_and_wake(self, accept: Accept) -> Accept:
        async def accept_and_wake(message: InboundMessage) -> None:
            await accept(message)
            for connection in self._watching(message.conversation):
                connection.wake()

        return accept_and_wake
