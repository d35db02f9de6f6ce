"""Mail as a channel: one mailbox that is watched, one server that takes the answers.

A conversation is a person, by their address; a thread is a mail thread. Answers go to the author whose From was proved,
never to a Reply-To: that field is not always signed, and would let somebody else read them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from adapters.email import mime, render
from adapters.email.addresses import canonical
from adapters.email.convert import Rules
from adapters.email.credentials import Credentials, Password
from adapters.email.dkim_verification import KeyRing
from adapters.email.imap_client import ImapServer, MailboxConnection, open_mailbox
from adapters.email.inbound import Intake
from adapters.email.server_probe import Vouching
from adapters.email.smtp_client import SmtpClient, SmtpServer
from adapters.email.thread_notes import Correspondence
from adapters.email.threads import Threads, is_thread
from gateway.errors import (
    AdapterError,
    AdapterNotReady,
    PermanentSendError,
    TransientSendError,
)
from gateway.messages import Attachment, Capabilities, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

IDLE_S = 60.0
"""So long is the server believed to be there without a word: routers forget a silent line, and a server may hang."""

_SENDERS = 4
_FETCHERS = 2
_MAX_UNCONFIRMED = 2  # the mail, and one repetition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Our own side of the correspondence; see `Config`."""

    address: str
    display_name: str
    mailbox: str
    sent_mailbox: str | None
    has_plus_address: bool
    max_attachment_bytes: int
    mails_per_hour: int


class EmailAdapter:
    """One mailbox."""

    kind = "email"

    def __init__(
        self,
        account: Account,
        rules: Rules,
        services: AdapterServices,
        *,
        imap: ImapServer,
        smtp: SmtpServer,
        credentials: Credentials,
        idle_s: float = IDLE_S,
        keys: KeyRing | None = None,
    ) -> None:
        self.name = services.name
        self.capabilities = Capabilities(
            max_text_chars=50_000,
            max_attachment_bytes=account.max_attachment_bytes,
            is_sender_only_claimed=True,
        )
        self._account = account
        self._rules = rules
        self._notes = services.notes
        self._commands = frozenset(command.name for command in services.commands)
        self._imap = imap
        self._smtp = SmtpClient(smtp, credentials)
        self._credentials = credentials
        self._vouching = Vouching(
            services.name,
            rules.word,
            services.notes,
            self._smtp,
            address=account.address,
            servers=f"{imap.host} {imap.port} {smtp.host} {smtp.port} {account.mailbox}",
        )
        self._keys = keys or KeyRing()
        self._idle_s = idle_s
        self._correspondence = Correspondence(services.notes)
        self._connection: MailboxConnection | None = None
        self._intake: Intake | None = None
        self._threads_found: Threads | None = None
        self._sending = asyncio.Semaphore(_SENDERS)
        self._fetching = asyncio.Semaphore(_FETCHERS)

    # ---- from people ------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Log in to both servers.

        Raises:
            AdapterNotReady: one of them cannot be reached now.
            AdapterAuthFailed: one of them refuses us.
        """
        await self.close()
        if self._intake is None:
            await self._vouching.load()
            self._intake = Intake(
                self._rules,
                await self._threads(),
                self._notes,
                self._vouching,
                keys=self._keys,
                commands=self._commands,
                mails_per_hour=self._account.mails_per_hour,
            )
        connection = await open_mailbox(self._imap, self._credentials, self._account.mailbox)
        try:
            if self._account.sent_mailbox is not None:
                await connection.select(self._account.sent_mailbox)
                await connection.select(self._account.mailbox)
            await self._smtp.check()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def run(self, accept: Accept) -> None:
        """Hand over new mail until the connection breaks. What came while there was none is in the mailbox still."""
        connection, intake = self._connection, self._intake
        if connection is None or intake is None:
            raise AdapterNotReady("the mailbox is not open; connect first")
        renewal_at = self._renewal_at()
        try:
            while True:
                await self._vouching.ask()
                await intake.take_new(connection, accept)
                await connection.wait_for_news(self._idle_s)
                if asyncio.get_running_loop().time() >= renewal_at:
                    connection = await self._renewed(connection)
                    renewal_at = self._renewal_at()
        finally:
            await connection.close()

    @property
    def problems(self) -> Sequence[str]:
        """What does not work while the channel is up."""
        return [] if self._vouching.trouble is None else [self._vouching.trouble]

    def _renewal_at(self) -> float:
        """When to open the mailbox anew, by the loop's clock: servers hang up when the access token ends.

        https://developers.google.com/workspace/gmail/imap/imap-smtp
        """
        if isinstance(self._credentials, Password):
            return math.inf
        return max(self._credentials.ends_at, asyncio.get_running_loop().time() + 2 * self._idle_s) - self._idle_s

    async def _renewed(self, connection: MailboxConnection) -> MailboxConnection:
        await connection.close()
        if not isinstance(self._credentials, Password):
            self._credentials.renew()
        renewed = await open_mailbox(self._imap, self._credentials, self._account.mailbox)
        if self._connection is not connection:
            await renewed.close()
            raise AdapterNotReady("the mailbox was closed meanwhile")
        self._connection = renewed
        return renewed

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """Read the mail once more, and take the file out of it.

        Raises:
            TransientSendError: the mailbox cannot be reached now.
            PermanentSendError: the file is gone, or too large.
        """
        if attachment.size_bytes > max_bytes or not attachment.ref.rpartition("/")[2].isdecimal():
            raise PermanentSendError(f"{attachment.filename} has {attachment.size_bytes} bytes, which is too large")
        uid_validity, uid, number = (int(part) for part in attachment.ref.split("/"))
        content = await self._read_again(uid_validity, uid)
        files = (await asyncio.to_thread(mime.read_body, content)).files if content is not None else ()
        if number >= len(files) or len(files[number].content) != attachment.size_bytes:
            raise PermanentSendError(f"{attachment.filename} is not in the mailbox any more")
        return files[number].content

    async def _read_again(self, uid_validity: int, uid: int) -> bytes | None:
        try:
            async with self._fetching:
                connection = await open_mailbox(self._imap, self._credentials, self._account.mailbox)
                try:
                    return await connection.content(uid) if connection.uid_validity == uid_validity else None
                finally:
                    await connection.close()
        except AdapterError as error:
            raise TransientSendError(str(error)) from error

    async def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # ---- to people --------------------------------------------------------------------------------------------------

    async def send(self, message: OutboundMessage) -> Receipt:
        """Send the answer as one mail, under a Message-ID that is the same on every try.

        Raises:
            TransientSendError, UncertainSendError, PermanentSendError: as the contract says.
        """
        threads = await self._threads()
        person, thread = self._addressee(message, threads)
        reference = await self._correspondence.look_up(message.conversation, message.reply_to)
        files = await asyncio.to_thread(self._files, message)
        answer = render.Answer(
            message_id=threads.message_id(message.id, person, thread),
            sender=(self._account.display_name, self._account.address),
            recipient=person,
            reply_to=threads.reply_address(person, thread) if self._account.has_plus_address else None,
            subject=render.answered_subject(reference.subject),
            in_reply_to=reference.in_reply_to,
            references=reference.references,
            written_at=datetime.now(UTC),
            text=render.with_actions(message),
            files=files,
        )
        content = await asyncio.to_thread(render.compose, answer)
        async with self._sending:
            await self._deliver(message.id, person, content)
        return Receipt(message_ids=(answer.message_id,))

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Look among the sent mail, where the server files it; else say that it is not there, so that it is repeated.

        A repetition has the same Message-ID, by which many programs show one mail. It is made once only.

        Raises:
            TransientSendError: the mailbox cannot be reached now.
            PermanentSendError: it was repeated already, and that is not confirmed either.
        """
        threads = await self._threads()
        person, thread = self._addressee(message, threads)
        message_id = threads.message_id(message.id, person, thread)
        if self._account.sent_mailbox is not None and await self._is_filed(self._account.sent_mailbox, message_id):
            return Receipt(message_ids=(message_id,))
        if await self._unconfirmed(message.id) >= _MAX_UNCONFIRMED:
            await self._notes.remove(_unconfirmed_key(message.id))
            raise PermanentSendError(
                f"sent {_MAX_UNCONFIRMED} times as {message_id}, and never confirmed by the server; ask {person}"
            )
        return None

    async def _is_filed(self, mailbox: str, message_id: str) -> bool:
        try:
            connection = await open_mailbox(self._imap, self._credentials, mailbox)
            try:
                return bool(await connection.uids_of(message_id))
            finally:
                await connection.close()
        except AdapterError as error:
            raise TransientSendError(str(error)) from error

    async def _deliver(self, outbox_id: str, person: str, content: bytes) -> None:
        """Hand it to the server, and keep count of the tries of which nobody knows what became of them."""
        before = await self._unconfirmed(outbox_id)

        async def count() -> None:
            await self._notes.put(_unconfirmed_key(outbox_id), str(before + 1), is_durable=False)

        try:
            await self._smtp.deliver(self._account.address, person, content, before_text=count)
        except (TransientSendError, PermanentSendError):
            await self._notes.put(_unconfirmed_key(outbox_id), str(before), is_durable=False)
            raise
        await self._notes.remove(_unconfirmed_key(outbox_id))

    async def _unconfirmed(self, outbox_id: str) -> int:
        return int(await self._notes.get(_unconfirmed_key(outbox_id)) or 0)

    def _addressee(self, message: OutboundMessage, threads: Threads) -> tuple[str, str]:
        """Person and thread of a conversation."""
        person, thread = message.conversation.conversation, message.conversation.thread
        if canonical(person) != person:
            raise PermanentSendError(f"{person!r} is no mail address in the form in which this channel keeps them")
        if thread is None or not is_thread(thread):
            thread = threads.of(person, (), (), message.id)
        return person, thread

    def _files(self, message: OutboundMessage) -> list[mime.File]:
        if sum(each.size_bytes for each in message.attachments) > self._account.max_attachment_bytes:
            raise PermanentSendError(f"the files are larger than {self._account.max_attachment_bytes} bytes together")
        try:
            return [
                mime.File(media_type=each.media_type, filename=each.filename, content=Path(each.ref).read_bytes())
                for each in message.attachments
            ]
        except OSError as error:
            raise PermanentSendError(f"a file to be attached cannot be read: {error.strerror}") from error

    async def _threads(self) -> Threads:
        """Made with a key of this channel's own, which is drawn once."""
        if self._threads_found is None:
            key = await self._notes.get("key")
            if key is None:
                key = secrets.token_hex(32)
                await self._notes.put("key", key)
            self._threads_found = Threads(bytes.fromhex(key), self._account.address)
        return self._threads_found


def _unconfirmed_key(outbox_id: str) -> str:
    return f"unconfirmed/{outbox_id}"
