"""One attached terminal: takes what the person writes, and shows the conversation from the log."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from adapters.cli import client, convert
from gateway.errors import EthosError
from gateway.messages import ConversationRef
from gateway.protocols import Accept, AdapterServices

_log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
_PAGE_ENTRIES = 20  # held in memory at a time for a terminal that reads slowly
_BUFFER_BYTES = 256 * 1024  # unread by the terminal before we wait for it


class Connection:
    """One attached terminal.

    Nothing is queued for it: what it has not seen yet is read from the log, and of each preview only the latest text
    is kept. So a terminal that reads slowly costs one page, and one that does not read at all is dropped.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        services: AdapterServices,
        account: str,
        stalled_s: float,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._services, self._account, self._stalled_s = services, account, stalled_s
        self._display_name = client.account_name(client.peer_uid(writer))
        self._wake = asyncio.Event()
        self._cursor = 0
        self._previews: dict[str, str] = {}
        self._is_typing = False
        self._not_accepted = ""
        self.conversation: ConversationRef | None = None
        writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)

    def wake(self) -> None:
        """The log has something new."""
        self._wake.set()

    def preview(self, message_id: str, text: str) -> None:
        """Show an answer so far, unless a later text comes first."""
        self._previews[message_id] = text
        self._wake.set()

    def show_typing(self) -> None:
        """Show that an answer is on its way."""
        self._is_typing = True
        self._wake.set()

    async def greet(self) -> bool:
        """Read `hello` and answer it; False when there is nobody to talk to.

        Raises:
            ConnectionError: the terminal went away.
            TimeoutError: it said nothing, or does not read.
            StoreError: the log cannot be read now.
        """
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            frame = await self._read()
        if frame is None:
            return False
        problem = self._hello_problem(frame)
        if problem is not None:
            await self._write(convert.Failure(reason=problem))
            return False
        assert isinstance(frame, convert.Hello)  # noqa: S101 (_hello_problem refused everything else)
        conversation = ConversationRef(channel=self._services.name, conversation=frame.conversation)
        newest = await self._services.log.read(conversation, limit=1, newest=True)
        end = newest[-1].cursor if newest else 0
        # A cursor beyond the end is of another database, an older one was restored: begin at this one's end.
        self._cursor = end if frame.after is None else min(frame.after, end)
        await self._write(convert.Welcome(cursor=self._cursor, commands=convert.to_commands(self._services.commands)))
        self.conversation = conversation
        self._wake.set()
        return True

    async def serve(self, accept: Accept) -> None:
        """Take and show messages until the terminal goes away. Raises as `greet` does, in a group."""
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(self._show())
            await self._take(accept)
            showing.cancel()

    async def _take(self, accept: Accept) -> None:
        """Accept one message at a time, in the order written."""
        while (frame := await self._read()) is not None:
            if isinstance(frame, convert.PersonMessage):
                await self._write(await self._accept(frame, accept))
            elif isinstance(frame, convert.Hello):
                await self._write(convert.Failure(reason="hello was said before; open a new connection"))
            else:
                await self._write(frame)

    async def _accept(self, message: convert.PersonMessage, accept: Accept) -> convert.Frame:
        problem = convert.message_problem(message)
        if problem is not None:
            return convert.Refused(id=message.id, reason=problem)
        assert self.conversation is not None  # noqa: S101 (greet came first)
        inbound = convert.to_inbound(message, self.conversation, self._account, self._display_name, datetime.now(UTC))
        try:
            await accept(inbound)
        except EthosError as error:
            reason = str(error)
            if reason != self._not_accepted:  # it is offered again every second
                _log.warning("messages from the terminal are not accepted: %s", reason)
            self._not_accepted = reason
            return convert.Refused(id=message.id, reason=reason, is_temporary=True)
        except Exception:  # noqa: BLE001 (whatever it was, nothing was kept, and the person must hear of it)
            _log.exception("a message from the terminal was not accepted")
            reason = "the gateway could not keep the message; its log says why"
            return convert.Refused(id=message.id, reason=reason, is_temporary=True)
        self._not_accepted = ""
        return convert.Accepted(id=message.id)

    async def _show(self) -> None:
        """Write what is new, each time there is something."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._show_log()
            if self._is_typing:
                self._is_typing = False
                await self._write(convert.Typing())
            while self._previews:
                message_id = next(iter(self._previews))
                await self._write(convert.Preview(id=message_id, text=self._previews.pop(message_id)))

    async def _show_log(self) -> None:
        assert self.conversation is not None  # noqa: S101 (greet came first)
        while True:
            page = await self._services.log.read(self.conversation, after=self._cursor, limit=_PAGE_ENTRIES)
            for entry in page:
                shown = convert.to_log_message(entry)
                if shown is not None:
                    await self._write(shown)
                self._previews.pop(entry.id, None)
                self._cursor = entry.cursor
            if len(page) < _PAGE_ENTRIES:
                return

    async def _read(self) -> convert.FromPerson | convert.Failure | None:
        """The next line; a `Failure` to answer with if it cannot be read, None at the end."""
        try:
            line = await client.read_line(self._reader)
            return None if line is None else convert.decode_from_person(line)
        except client.LineTooLong:
            return convert.Failure(reason=f"a line has at most {convert.MAX_LINE_BYTES} bytes; split the message")
        except convert.BadLine as error:
            return convert.Failure(reason=f"this line is not of the chat protocol: {error}")

    async def _write(self, frame: convert.Frame) -> None:
        """Write a line; TimeoutError when the terminal has not read the earlier ones for `stalled_s`."""
        self._writer.write(convert.encode(frame))
        async with asyncio.timeout(self._stalled_s):
            await self._writer.drain()

    @staticmethod
    def _hello_problem(frame: convert.FromPerson | convert.Failure) -> str | None:
        if isinstance(frame, convert.Failure):
            return frame.reason
        if not isinstance(frame, convert.Hello):
            return "say hello first"
        if frame.version != convert.VERSION:
            return f"this gateway speaks version {convert.VERSION} of the chat protocol, not {frame.version}; update"
        return convert.conversation_problem(frame.conversation)
