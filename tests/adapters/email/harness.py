"""Both sides of a correspondence: the adapter with its notes, and a person with the standard library's mail clients."""

from __future__ import annotations

import asyncio
import contextlib
import imaplib
import itertools
import json
import smtplib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Protocol

from adapters.email import Config, build, trial
from adapters.email.adapter import EmailAdapter
from adapters.email.convert import event_id
from adapters.email.mail_authentication import METHODS
from adapters.email.server_probe import _STATE_JSON
from adapters.email.threads import Threads
from gateway.errors import AdapterNotReady
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, CommandInfo, Trial
from gateway.testing.adapters import PATIENCE_S, Inbox, soon
from tests.adapters.email.mail_server import AUTHSERV_ID, DOMAIN, PASSWORD, MailServer
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

CHANNEL = "mail"
QUICK_S = 0.04
"""Of an IDLE, where a test does not ask for a longer one: Dovecot takes half a second to tell of new mail."""

COMMANDS = (
    CommandInfo(name="new", usage="/new", description="starts a fresh session"),
    CommandInfo(name="search", usage="/search words", description="finds what was said"),
)
_numbers = itertools.count(1)


def new_address(name: str) -> str:
    """An account that nobody has used yet."""
    return f"{name}{next(_numbers)}@{DOMAIN}"


class WatchedNotes(FakeNotes):
    """Notes that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Condition()

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        await super().put(key, text, is_durable=is_durable)
        async with self._changed:
            self._changed.notify_all()

    async def until(self, is_so: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(patience_s), self._changed:
            await self._changed.wait_for(is_so)

    @property
    def progress(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts.get("progress", "{}"))
        return found

    def named(self, prefix: str) -> dict[str, str]:
        return {key: text for key, text in self.texts.items() if key.startswith(prefix)}


def config_of(server: MailServer, address: str, **keys: Any) -> Config:
    """The configuration of an account; a key that is None is left out."""
    settings: dict[str, Any] = {
        "address": address,
        "imap_host": "127.0.0.1",
        "imap_port": server.ports["imaps"],
        "smtp_host": "127.0.0.1",
        "smtp_port": server.ports["smtps"],
        "ca_file": server.ca_file,
        "password": PASSWORD,
        "trusted_authserv_id": AUTHSERV_ID,
        "mails_per_hour": 1000,
        **keys,
    }
    return Config.model_validate({key: value for key, value in settings.items() if value is not None})


def make_adapter(
    server: MailServer,
    address: str,
    notes: FakeNotes,
    *,
    idle_s: float | None = None,
    is_server_known: bool = True,
    **keys: Any,
) -> EmailAdapter:
    """An adapter for an account; `keys` are those of its configuration.

    Args:
        is_server_known: it was learned already that the server removes forged results.
    """
    services = AdapterServices(
        name=CHANNEL, state_dir=Path("/nonexistent"), log=FakeLog(), notes=notes, commands=COMMANDS
    )
    adapter = build(config_of(server, address, **keys), services)
    if idle_s is not None:
        adapter._idle_s = idle_s
    if is_server_known:
        now = datetime.now(UTC)
        known = replace(adapter._probe._state, methods=METHODS, learned_at=now, again_at=now + timedelta(days=1))
        notes.texts.setdefault("server", _STATE_JSON.dump_json(known).decode())
    return adapter


def a_mail(
    text: str = "hello",
    *,
    sender: str,
    recipient: str,
    message_id: str | None = None,
    references: Sequence[str] = (),
    subject: str = "",
    proof: str | None = "dmarc=pass",
    fields: Sequence[tuple[str, str]] = (),
) -> EmailMessage:
    """A mail as it lies in a mailbox: with what our own receiving server put on top."""
    mail = EmailMessage(policy=policy.SMTP)
    if proof is not None:
        mail["Authentication-Results"] = f"{AUTHSERV_ID}; {proof} header.from={sender.rpartition('@')[2]}"
    mail["From"] = f"Ada Lovelace <{sender}>"
    mail["To"] = recipient
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = message_id or new_message_id()
    if subject:
        mail["Subject"] = subject
    if references:
        mail["References"] = " ".join(references)
        mail["In-Reply-To"] = references[-1]
    for name, value in fields:
        mail[name] = value
    mail.set_content(text, cte="base64")
    return mail


def new_message_id() -> str:
    return f"<{next(_numbers)}.{datetime.now(UTC).timestamp():.0f}@{DOMAIN}>"


class Person:
    """Writes and reads with `smtplib` and `imaplib`, in threads."""

    def __init__(self, server: MailServer, address: str) -> None:
        self.address = address
        self._server = server

    async def deliver(self, mail: EmailMessage | bytes, recipient: str) -> None:
        """Put a mail into a mailbox the way the receiving server does, by LMTP."""
        content = mail if isinstance(mail, bytes) else mail.as_bytes()

        def put() -> None:
            with smtplib.LMTP("127.0.0.1", self._server.ports["lmtp"]) as lmtp:
                lmtp.sendmail(self.address, [recipient], content)

        await asyncio.to_thread(put)

    async def submit(self, mail: EmailMessage, recipient: str, *, sender: str | None = None) -> None:
        """Send a mail the way a mail program does; it has arrived when this returns."""

        def put() -> None:
            with smtplib.SMTP("127.0.0.1", self._server.ports["smtp"]) as smtp:
                smtp.starttls(context=self._context)
                smtp.login(sender or self.address, PASSWORD)
                smtp.sendmail(sender or self.address, [recipient], mail.as_bytes())
            self._server.deliver_queue()

        await asyncio.to_thread(put)

    async def recent(self) -> int:
        """How many mails nobody has been told of yet (RFC 3501, section 2.3.2)."""

        def look() -> int:
            with self._mailbox(None) as mailbox:
                return int(mailbox.response("RECENT")[1][-1] or 0)

        return await asyncio.to_thread(look)

    async def mails(self, *, after_uid: int = 0, account: str | None = None) -> list[tuple[int, EmailMessage]]:
        """What lies in the mailbox, in order; what Exim has taken is delivered first."""

        def read() -> list[tuple[int, EmailMessage]]:
            self._server.deliver_queue()
            with self._mailbox(account) as mailbox:
                _, numbers = mailbox.uid("SEARCH", f"UID {after_uid + 1}:*")
                uids = [int(each) for each in numbers[0].split() if int(each) > after_uid]
                return [(uid, _parsed(mailbox.uid("FETCH", str(uid), "(BODY.PEEK[])")[1])) for uid in uids]

        return await asyncio.to_thread(read)

    async def last_uid(self, account: str | None = None) -> int:
        found = await self.mails(account=account)
        return found[-1][0] if found else 0

    async def uids_of(self, message_id: str, account: str, *, flag: str = "ALL") -> list[int]:
        def read() -> list[int]:
            with self._mailbox(account) as mailbox:
                _, numbers = mailbox.uid("SEARCH", f'HEADER Message-ID "{message_id}" {flag}')
                return [int(each) for each in numbers[0].split()]

        return await asyncio.to_thread(read)

    async def expunge_all(self, account: str) -> None:
        def empty() -> None:
            with self._mailbox(account) as mailbox:
                mailbox.store("1:*", "+FLAGS.SILENT", "(\\Deleted)")
                mailbox.expunge()

        await asyncio.to_thread(empty)

    async def file(self, mail: bytes, mailbox_name: str, account: str) -> None:
        """Put a mail into a folder, as providers do with what was sent."""

        def put() -> None:
            with self._mailbox(account) as mailbox:
                mailbox.append(mailbox_name, "", imaplib.Time2Internaldate(datetime.now(UTC)), mail)

        await asyncio.to_thread(put)

    @contextlib.contextmanager
    def _mailbox(self, account: str | None) -> Iterator[imaplib.IMAP4_SSL]:
        with imaplib.IMAP4_SSL("127.0.0.1", self._server.ports["imaps"], ssl_context=self._context) as mailbox:
            mailbox.login(account or self.address, PASSWORD)
            mailbox.select()
            yield mailbox

    @property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._server.ca_file)


def _parsed(answer: Any) -> EmailMessage:
    mail = message_from_bytes(answer[0][1], policy=policy.default)
    assert isinstance(mail, EmailMessage)
    return mail


def plain_text(mail: EmailMessage) -> str:
    """What a program without HTML shows."""
    part = mail.get_body(("plain",))
    assert part is not None
    text = part.get_content()
    assert isinstance(text, str)
    return text.replace("\r\n", "\n").removesuffix("\n")


class Line:
    """Passes bytes on to a server, until it is cut.

    Attributes:
        is_mute: what is sent is lost, and the connections stay.
        calls: how many there were.
        called: set at each.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.is_mute = False
        self.calls = 0
        self.called = asyncio.Event()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break every connection, with a reset."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        """Take no more calls either."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        self.called.set()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        far_writer = writer
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(far_writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(reader, far_writer))
                tasks.create_task(self._pass_on(far_reader, writer))
        except* (OSError, asyncio.CancelledError):
            pass  # cut, closed, or nobody answers
        finally:
            for each in (writer, far_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if not self.is_mute:
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError("one side hung up, so the other does")


@contextlib.asynccontextmanager
async def kept(harness: EmailHarness, inbox: Inbox | None = None) -> AsyncIterator[Inbox]:
    """The adapter connected anew whenever anything fails, as the gateway does, but without a pause."""
    inbox = inbox or Inbox()

    async def keep() -> None:
        while True:
            with contextlib.suppress(AdapterNotReady):
                await harness.adapter.connect()
                await harness.adapter.run(inbox.accept)

    task = asyncio.create_task(keep())
    try:
        await harness.notes.until(lambda: bool(harness.notes.progress))
        yield inbox
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait({task})
        await soon(harness.adapter.close())


class EmailHarness:
    """The mail channel for the conformance suite: one bot, one person, one thread; the mailbox is behind a `Line`."""

    longest_text_chars = 200_000
    unknown_conversation = ConversationRef(channel=CHANNEL, conversation="nobody in particular")
    is_unknown_refused = True

    def __init__(self, server: MailServer, **keys: Any) -> None:
        self.server = server
        self.bot = keys.pop("address", None) or new_address("bot")
        self.person = Person(server, new_address("ada"))
        self.notes = WatchedNotes()
        self.line = Line(server.ports["imaps"])
        self.root = new_message_id()
        self._keys = keys
        self._said: dict[str, tuple[EmailMessage, str]] = {}
        self._seen_uid = 0
        self.conversation = ConversationRef(
            channel=CHANNEL,
            conversation=self.person.address,
            thread=Threads(b"", self.bot).thread_of(self.person.address, (), (self.root,), ""),
        )

    async def start(self) -> None:
        await self.line.open()
        self.adapter = make_adapter(
            self.server, self.bot, self.notes, **{"imap_port": self.line.port, "idle_s": QUICK_S, **self._keys}
        )

    wrong_secret = "canary-of-a-wrong-password"

    async def trial(self, *, is_wrong: bool = False) -> Trial:
        changes = {"password": self.wrong_secret} if is_wrong else {}
        keys = {"imap_port": self.line.port, **self._keys, **changes}
        return await trial(config_of(self.server, self.bot, **keys))

    def carries(self, text: str) -> bool:
        lines = text.split("\n")
        return (
            "\r" not in text  # mail has one line end
            and "\x00" not in text
            and text == text.strip("\n")
            and not text.startswith("\ufeff")
            and "-- " not in lines  # begins a signature
            and not any(line.startswith(">") for line in lines)  # a quotation
        )

    async def attach(self) -> None:
        self._seen_uid = await self.person.last_uid()

    async def person_says(self, text: str) -> str:
        mail = a_mail(text, sender=self.person.address, recipient=self.bot, references=[self.root])
        event = event_id(self.person.address, mail["Message-ID"], is_proved=True)
        self._said[event] = mail, mail["Message-ID"]
        await self.person.deliver(mail, self.bot)
        return event

    async def redeliver(self, event_id: str) -> None:
        await self.person.deliver(self._said[event_id][0], self.bot)

    def is_acknowledged(self, event_id: str) -> bool:
        """The mark has passed it; mails are numbered in the order in which they were said."""
        order = list(self._said).index(event_id) + 1
        progress = self.notes.progress
        return bool(progress) and progress["mark"] >= order

    async def wait_acknowledged(self, event_id: str) -> None:
        await self.notes.until(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        await self.person.last_uid(self.bot)

    async def record(self, message: OutboundMessage) -> None:
        pass

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        found = [mail for _, mail in await self.person.mails(after_uid=self._seen_uid)]
        assert len(found) >= amount, self.server.log()
        place = self.server.order_taken()  # what lies between the server and the mailbox keeps no order
        return [
            (mail["Message-ID"], plain_text(mail)) for mail in sorted(found, key=lambda each: place[each["Message-ID"]])
        ]

    async def drop_connection(self) -> None:
        self.line.cut()

    async def go_down(self) -> None:
        await self.line.close()

    async def come_up(self) -> None:
        await self.line.open()

    async def close(self) -> None:
        await self.line.close()


class OpenHarness(Protocol):
    """The fixture `open_harness`."""

    async def __call__(self, **keys: Any) -> EmailHarness: ...
