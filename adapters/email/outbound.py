"""Sends the agent's answers: each as one mail, under a Message-ID that is the same on every try."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from adapters.email import mime, render
from adapters.email.addresses import canonical
from adapters.email.credentials import Credentials
from adapters.email.imap_client import ImapServer, visit_mailbox
from adapters.email.smtp_client import SmtpClient
from adapters.email.threads import ThreadNotes, Threads, is_thread
from gateway.errors import PermanentSendError, TransientSendError
from gateway.messages import OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

_SENDERS = 4
_MAX_UNCONFIRMED = 2  # the mail, and one repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Our own address and mailbox; see `Config`."""

    address: str
    display_name: str
    mailbox: str
    sent_mailbox: str | None
    has_plus_address: bool
    max_attachment_bytes: int
    mails_per_hour: int


class Outbound:
    """Sends, and finds what was sent."""

    def __init__(
        self, account: Account, notes: AdapterNotes, *, imap: ImapServer, smtp: SmtpClient, credentials: Credentials
    ) -> None:
        self._account = account
        self._notes = notes
        self._imap = imap
        self._smtp = smtp
        self._credentials = credentials
        self._thread_notes = ThreadNotes(notes)
        self._threads: Threads | None = None
        self._sending = asyncio.Semaphore(_SENDERS)

    async def send(self, message: OutboundMessage) -> Receipt:
        """Send the answer as one mail, under a Message-ID that is the same on every try."""
        threads = await self.threads()
        person, thread = self._addressee(message, threads)
        reference = await self._thread_notes.reference_for(message.conversation, message.reply_to)
        files = await asyncio.to_thread(self._files, message)
        answer = render.Answer(
            message_id=threads.message_id(message.id, person, thread),
            sender=(self._account.display_name, self._account.address),
            recipient=person,
            reply_to=threads.reply_address(person, thread) if self._account.has_plus_address else None,
            subject=render.reply_subject(reference.subject),
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
        threads = await self.threads()
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
        async with visit_mailbox(self._imap, self._credentials, mailbox) as connection:
            return bool(await connection.uids_with("Message-ID", message_id))

    async def _deliver(self, outbox_id: str, person: str, content: bytes) -> None:
        """Hand it to the server, and count the tries whose outcome is unknown."""
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
            thread = threads.thread_of(person, (), (), message.id)
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

    async def threads(self) -> Threads:
        """The channel's threads."""
        if self._threads is None:
            self._threads = await Threads.load(self._notes, self._account.address)
        return self._threads


def _unconfirmed_key(outbox_id: str) -> str:
    return f"unconfirmed/{outbox_id}"
