"""Reads the mailbox, with aioimaplib (2.0.3); `errors.py` translates its errors.

Defects of the library, measured in 2026, and what is done about each:

- It parses by recursion: some 1000 response lines in one read break it. So: SEARCH, which answers in one line, then
  FETCH of one message. If it breaks all the same, the connection is lost, and a new one is opened.
- It does not wake its callers when the connection is lost: every await races `conn_lost_cb` (`_run`).
- After a timeout the client cannot be used any more: every timeout closes the connection.
- It removes "* " anywhere in a line: only literals are trusted, never ENVELOPE.
- It ignores EXISTS while another command runs, and a server sends it once: `_Protocol` notes it.
- It does not answer the challenge with which XOAUTH2 fails: `_Protocol` does.
- It logs all traffic at DEBUG, tokens too: its logger is set to WARNING.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from aioimaplib import aioimaplib  # type: ignore[import-untyped]

from adapters.email.convert import MAX_HEADER_BYTES, Location
from adapters.email.credentials import Credentials, Password
from adapters.email.errors import imap_error
from gateway.errors import AdapterAuthFailed, AdapterError, AdapterNotReady, TransientSendError

POLL_S = 60.0
"""Between two polls of a mailbox whose server has no IDLE."""

_GRACE_S = 5.0  # over the library's own timeouts
_FETCH_S = 600.0  # for a whole mail; the library's own timeout is for each part of it
# RFC 5530: the server has a problem, or we ask too much.
_TEMPORARY = re.compile(
    rb"\[(UNAVAILABLE|INUSE|LIMIT|SERVERBUG|CONTACTADMIN)|too many|temporar|try again", re.IGNORECASE
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_INTERNAL_DATE = re.compile(rb'INTERNALDATE "\s*(\d{1,2})-(\w{3})-(\d{4}) (\d\d:\d\d:\d\d) ([+-]\d{4})"')

_T = TypeVar("_T")

logging.getLogger("aioimaplib").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImapServer:
    """How it is reached; `context` verifies its certificate, None for clear text."""

    host: str
    port: int
    context: ssl.SSLContext | None
    username: str
    timeout_s: float = 30.0


class _Protocol(aioimaplib.IMAP4ClientProtocol):  # type: ignore[misc]  # the library has no types
    """The library's protocol, with the handling of responses that it lacks.

    Attributes:
        has_new_mail: the server announced new messages since this was last set to False.
        bye_text: the text of its BYE.
    """

    has_new_mail = False
    bye_text = ""

    async def welcome(self, command: bytes) -> None:
        """Treat a greeting that refuses us as the end; the library would wait for another."""
        if command.startswith(b"* BYE"):
            self._note_bye(command)
        try:
            await super().welcome(command)
        except (aioimaplib.AioImapException, IndexError):
            self.transport.abort()

    def _untagged_response(self, line: bytes) -> Any:
        if line.endswith(b" EXISTS"):
            self.has_new_mail = True
        elif line.startswith(b"* BYE"):
            self._note_bye(line)
        return super()._untagged_response(line)

    def _note_bye(self, line: bytes) -> None:
        self.bye_text = f": {line[6:206].decode('utf-8', 'replace')}"

    def _continuation(self, line: bytes) -> None:
        if self.pending_sync_command is not None and self.pending_sync_command.name == "AUTHENTICATE":
            self.transport.write(b"\r\n")  # then the server says NO, with its reason
        else:
            super()._continuation(line)


class _Client(aioimaplib.IMAP4):  # type: ignore[misc]  # as above
    protocol: _Protocol

    def create_client(
        self,
        host: str,
        port: int,
        loop: asyncio.AbstractEventLoop | None,
        conn_lost_cb: Callable[[Exception | None], None] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        del loop
        running = asyncio.get_running_loop()
        self.protocol = _Protocol(running, conn_lost_cb)
        self._client_task = running.create_task(
            running.create_connection(lambda: self.protocol, host, port, ssl=ssl_context)
        )


class MailboxConnection:
    """One connection with one mailbox selected. After any error it is closed for good.

    Attributes:
        uid_validity: of the mailbox (RFC 3501, section 2.3.1.1).
        uid_next: at the time of opening; None where the server did not say.

    Every method raises:
        AdapterNotReady: the connection is lost, or the server refuses.
    """

    def __init__(self, server: ImapServer) -> None:
        """Use `open_mailbox`."""
        self._server = server
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client = _Client(server.host, server.port, None, server.timeout_s, self._on_lost, server.context)
        self._idling: asyncio.Future[Any] | None = None
        self.uid_validity = 0
        self.uid_next: int | None = None

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def uids_from(self, first: int) -> list[int]:
        """All UIDs from this one on, in order."""
        self._client.protocol.has_new_mail = False
        found = await self._search("UID", f"{first}:*")
        return [uid for uid in found if uid >= first]  # `n:*` holds the last message even where it is below n

    async def uids_since(self, day: date) -> list[int]:
        """UIDs of what arrived on this day or later, in order."""
        return await self._search("SINCE", _day(day))

    async def uids_with(self, field: str, text: str) -> list[int]:
        """UIDs of the mails in which a field contains the text."""
        return await self._search("HEADER", field, aioimaplib.quoted(text))

    async def header(self, uid: int) -> tuple[Location, bytes] | None:
        """Place and header of a message; None where it is gone."""
        response = await self._fetch(uid, f"(UID INTERNALDATE RFC822.SIZE BODY.PEEK[HEADER]<0.{MAX_HEADER_BYTES}>)")
        if response is None:
            return None
        facts, content = response
        size = re.search(rb"RFC822\.SIZE (\d+)", facts)
        location = Location(
            uid_validity=self.uid_validity,
            uid=uid,
            size_bytes=int(size[1]) if size is not None else 0,
            arrived_at=_internal_date(facts),
        )
        return location, content

    async def content(self, uid: int, max_bytes: int | None = None) -> bytes | None:
        """The whole message, or its first bytes; None where it is gone."""
        part = "" if max_bytes is None else f"<0.{max_bytes}>"
        response = await self._fetch(uid, f"(UID BODY.PEEK[]{part})")
        return None if response is None else response[1]

    async def mark_seen(self, uid: int) -> None:
        """Set the flag Seen, for people who look into the mailbox; it means nothing to us, and may be refused."""
        await self._run(self._client.uid("STORE", str(uid), "+FLAGS.SILENT", "(\\Seen)"), "STORE")

    async def remove(self, uid: int) -> None:
        """Delete one mail, and no other that is marked (RFC 4315); a server without UIDPLUS only marks it."""
        await self._run(self._client.uid("STORE", str(uid), "+FLAGS.SILENT", "(\\Seen \\Deleted)"), "STORE")
        if "UIDPLUS" in self._client.protocol.capabilities:
            await self._run(self._client.uid("EXPUNGE", str(uid)), "EXPUNGE")

    async def wait_for_mail(self, longest_s: float) -> None:
        """Return when there may be new mail, or after a while."""
        protocol = self._client.protocol
        if protocol.has_new_mail:
            return
        if "IDLE" not in protocol.capabilities:
            await asyncio.wait({self._lost}, timeout=min(POLL_S, longest_s))
            await self._run(self._client.noop(), "NOOP")
            return
        while not protocol.idle_queue.empty():
            protocol.idle_queue.get_nowait()
        idling: asyncio.Future[Any] = await self._run(self._client.idle_start(timeout=longest_s * 2), "IDLE")
        self._idling = idling
        push = asyncio.ensure_future(protocol.idle_queue.get())
        try:
            await asyncio.wait({push, self._lost}, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            push.cancel()
        if not self._lost.done():
            self._client.idle_done()
        await self._run(idling, "DONE")

    # ---- opening and closing ----------------------------------------------------------------------------------------

    async def log_in(self, credentials: Credentials) -> None:
        """Log in. Raises also AdapterAuthFailed: the server refuses our credentials."""
        await self._run(self._client.wait_hello_from_server(), "the greeting")
        if isinstance(credentials, Password):
            login = self._client.login(aioimaplib.quoted(self._server.username), credentials.secret)
            response = await self._run(login, "LOGIN")
        else:
            token = await credentials.get()
            response = await self._run(self._client.xoauth2(self._server.username, token), "AUTHENTICATE")
            if response.result != "OK":
                credentials.drop(token)
        if response.result != "OK":
            self.abort()
            raise self._refusal(response.lines)
        await self._run(self._client.protocol.capability(), "CAPABILITY")  # they differ from those before the login

    async def select(self, mailbox: str, *, is_read_only: bool = False) -> None:
        """Open the mailbox; read-only, nothing in it can change, not even what is recent (RFC 3501, 6.3.2)."""
        opening = self._client.examine if is_read_only else self._client.select
        response = await self._run(opening(aioimaplib.quoted(_modified_utf7(mailbox))), "SELECT")
        if response.result != "OK":
            self.abort()
            raise AdapterNotReady(f"there is no mailbox {mailbox!r} on {self._name}: {_last(response.lines)}")
        text = b"\n".join(bytes(line) for line in response.lines)
        validity = re.search(rb"\[UIDVALIDITY (\d+)\]", text)
        following = re.search(rb"\[UIDNEXT (\d+)\]", text)
        self.uid_validity = int(validity[1]) if validity is not None else 0
        self.uid_next = int(following[1]) if following is not None else None

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        self.abort()
        if self._client.protocol.transport is not None:
            await asyncio.wait({self._lost}, timeout=_GRACE_S)

    def abort(self) -> None:
        """Close the connection at once, and cancel the library's own tasks."""
        client, protocol = self._client, self._client.protocol
        if protocol.transport is not None:
            protocol.transport.abort()
        tasks = {client._client_task, *client.tasks, *protocol.tasks}  # noqa: SLF001 (the library never ends them)
        for task in tasks:
            task.cancel()
        client._client_task.add_done_callback(_retrieve_error)  # noqa: SLF001 (as above)
        if client._idle_waiter is not None:  # noqa: SLF001 (as above)
            client._idle_waiter.cancel()  # noqa: SLF001 (as above)
        if self._idling is not None:
            self._idling.cancel()

    # ---- one command ------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"the IMAP server {self._server.host}:{self._server.port}"

    def _on_lost(self, _error: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    async def _run(self, request: Awaitable[_T], what: str, *, longest_s: float | None = None) -> _T:
        """Wait for the request, the loss of the connection, or the timeout; the last two close the connection."""
        timeout_s = self._server.timeout_s + _GRACE_S if longest_s is None else longest_s
        task = asyncio.ensure_future(request)
        awaited: set[asyncio.Future[Any]] = {task, self._lost}
        is_answered = False
        try:
            await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            is_answered = task.done() and not task.cancelled()
        finally:
            if not is_answered:
                task.cancel()
            task.add_done_callback(_retrieve_error)
        if not is_answered:
            happened = f"hung up{self._client.protocol.bye_text}" if self._lost.done() else "did not answer"
            self.abort()
            raise AdapterNotReady(f"{self._name} {happened} ({what})")
        try:
            return task.result()
        except Exception as error:  # whatever it is, the client's state is unknown
            self.abort()
            raise imap_error(error, self._name, what) from error

    async def _search(self, *criteria: str) -> list[int]:
        response = await self._run_ok(self._client.uid_search(*criteria, charset=None), "SEARCH")
        return sorted({int(word) for line in response.lines[:-1] for word in bytes(line).split() if word.isdigit()})

    async def _fetch(self, uid: int, parts: str) -> tuple[bytes, bytes] | None:
        """The lines of the answer and the one literal in it; None where the message is gone."""
        response = await self._run_ok(self._client.uid("FETCH", str(uid), parts), "FETCH", longest_s=_FETCH_S)
        literals = [bytes(line) for line in response.lines if isinstance(line, bytearray)]
        facts = b"\n".join(line for line in response.lines if isinstance(line, bytes))
        if literals:
            return facts, literals[0]
        # An empty text may come as "" instead of a literal (RFC 3501, section 4.3).
        return (facts, b"") if re.search(rb'BODY\[[A-Z]*\](?:<0>)? (?:""|NIL)', facts) else None

    async def _run_ok(self, request: Awaitable[Any], what: str, *, longest_s: float | None = None) -> Any:
        response = await self._run(request, what, longest_s=longest_s)
        if response.result != "OK":
            self.abort()
            raise AdapterNotReady(f"{self._name} refuses {what}: {_last(response.lines)}")
        return response

    def _refusal(self, lines: Sequence[bytes]) -> AdapterError:
        """Only the response code is repeated: some servers repeat in their text what was sent."""
        said = b" ".join(bytes(line) for line in lines)
        code = re.search(rb"\[([A-Z]{3,30})\]", said)
        reason = code[1].decode() if code is not None else "no reason given"
        if _TEMPORARY.search(said):
            return AdapterNotReady(f"{self._name} does not let {self._server.username} in now ({reason})")
        return AdapterAuthFailed(
            f"{self._name} refuses the login of {self._server.username} ({reason}); check the password or the token"
        )


async def open_mailbox(
    server: ImapServer, credentials: Credentials, mailbox: str, *, is_read_only: bool = False
) -> MailboxConnection:
    """Connect, log in and select; a token that is refused is replaced once. Raises as `ChannelAdapter.connect`."""
    try:
        return await _open(server, credentials, mailbox, is_read_only=is_read_only)
    except AdapterAuthFailed:
        if isinstance(credentials, Password):
            raise
        return await _open(server, credentials, mailbox, is_read_only=is_read_only)


async def _open(server: ImapServer, credentials: Credentials, mailbox: str, *, is_read_only: bool) -> MailboxConnection:
    connection = MailboxConnection(server)
    try:
        await connection.log_in(credentials)
        _keep_alive(connection)
        await connection.select(mailbox, is_read_only=is_read_only)
    except BaseException:
        await connection.close()
        raise
    return connection


@contextlib.asynccontextmanager
async def visit_mailbox(server: ImapServer, credentials: Credentials, mailbox: str) -> AsyncIterator[MailboxConnection]:
    """A connection for the block only. Raises TransientSendError where the mailbox cannot be reached now."""
    try:
        connection = await open_mailbox(server, credentials, mailbox)
        try:
            yield connection
        finally:
            await connection.close()
    except AdapterError as error:
        raise TransientSendError(str(error)) from error


def _retrieve_error(task: asyncio.Future[Any]) -> None:
    """Retrieve the error of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _keep_alive(connection: MailboxConnection) -> None:
    """Let the kernel notice a dead connection within three minutes."""
    line = connection._client.protocol.transport.get_extra_info("socket")  # noqa: SLF001 (of this module)
    with contextlib.suppress(OSError, AttributeError):  # it works without
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def _last(lines: Sequence[bytes]) -> str:
    return bytes(lines[-1]).decode("utf-8", "replace")[:200] if lines else "no reason given"


def _day(day: date) -> str:
    """A day for SEARCH, in English whatever the locale."""
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year}"


def _internal_date(facts: bytes) -> datetime:
    """When the server took the message, out of the answer to a FETCH; now, where that cannot be read."""
    found = _INTERNAL_DATE.search(facts)
    try:
        if found is not None:
            day, month, year, clock, zone = (part.decode() for part in found.groups())
            number = _MONTHS.index(month.title()) + 1
            return datetime.strptime(f"{year}-{number}-{day} {clock} {zone}", "%Y-%m-%d %H:%M:%S %z").astimezone(UTC)
    except ValueError:
        pass  # an impossible date is as good as none
    return datetime.now(UTC)


def _modified_utf7(name: str) -> str:
    """A mailbox's name on the wire (section 5.1.3)."""

    def encode(found: re.Match[str]) -> str:
        code = base64.b64encode(found[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        return f"&{code}-"

    return re.sub(r"[^\x20-\x7e]+", encode, name.replace("&", "&-"))
