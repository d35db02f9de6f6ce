"""Mail that came in, as the gateway takes it. Pure functions.

A mail is read in two steps. Its header alone says whether it is to be read at all; only then is the rest fetched and
taken apart, so that a stranger's mail costs next to nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Literal

from adapters.email import mime
from adapters.email.addresses import Mailbox, only_author
from adapters.email.manners import why_unanswerable
from adapters.email.proof import why_unproved
from adapters.email.quoting import own_words, parted
from adapters.email.threads import Threads
from gateway.messages import Attachment, ConversationRef, InboundMessage, QuotedText, Sender

BEGINNING_BYTES = 256 * 1024
"""How much is read of a mail that is too large."""
MAX_REFERENCES = 20

_MESSAGE_ID = re.compile(r"<[^<>\s]{1,900}>")
_COMMAND_LINE = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:[ \t][^\n]*)?")
_RECIPIENTS = ("To", "Cc", "Delivered-To", "X-Original-To")
_LATEST = timedelta(days=1)
_EARLIEST = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a mail lies: the identity that IMAP gives it, and when it came there."""

    uid_validity: int
    uid: int
    size_bytes: int
    arrived_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Whose mail is read; see `Config` for what each means."""

    channel: str
    own_addresses: frozenset[str]
    authserv_id: str
    own_hosts: tuple[str, ...]
    unproved: Literal["ignore", "stranger"]
    max_mail_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the header says of a mail that is to be read.

    Attributes:
        message_id: with its angle brackets; empty where the mail has none.
        references: Message-IDs of the mails before it, the oldest first.
        recipients: the fields that name whom it was sent to.
        date: as the mail says it.
        unproved: why the author is not proved; None where they are.
    """

    place: Place
    author: Mailbox
    message_id: str
    references: tuple[str, ...]
    recipients: tuple[str, ...]
    subject: str
    date: str
    unproved: str | None

    @property
    def is_reply(self) -> bool:
        """It answers another mail."""
        return bool(self.references)


@dataclass(frozen=True, slots=True)
class Passed:
    """A mail that is not to be read, and why, for the log."""

    reason: str


# ---- the header -----------------------------------------------------------------------------------------------------


def read_header(header: bytes, place: Place, rules: Rules) -> Envelope | Passed:
    """Decide from the header whether the mail is to be read."""
    fields = mime.header_fields(header)
    author = only_author(mime.values_of(fields, "From"))
    if author is None:
        return Passed("its From is not exactly one plain address")
    unanswerable = why_unanswerable(fields, author.address, rules.own_addresses)
    if unanswerable is not None:
        return Passed(unanswerable)
    unproved = why_unproved(fields, author.domain, authserv_id=rules.authserv_id, own_hosts=rules.own_hosts)
    if unproved is not None and rules.unproved == "ignore":
        return Passed(f"{author.address} is not proved to have written it: {unproved}")
    found = _MESSAGE_ID.search(_first(fields, "Message-ID"))
    return Envelope(
        place=place,
        author=author,
        message_id=found[0] if found is not None else "",
        references=_references(fields),
        recipients=tuple(value for name in _RECIPIENTS for value in mime.values_of(fields, name)),
        subject=mime.decoded(_first(fields, "Subject")),
        date=_first(fields, "Date"),
        unproved=unproved,
    )


def event_id(author: str, message_id: str, date: str, *, is_proved: bool) -> str:
    """One mail is one event, however often and under whatever number the mailbox shows it.

    Message-IDs are chosen by whoever writes. With the author in it, and whether they are proved, nobody can use up the
    Message-ID of a mail that somebody else is about to send.
    """
    text = "\n".join(("proved" if is_proved else "unproved", author, message_id, date))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:40]


def _references(fields: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    found = _MESSAGE_ID.findall(_first(fields, "References")[:50_000])
    found += _MESSAGE_ID.findall(_first(fields, "In-Reply-To")[:5_000])
    unique = list(dict.fromkeys(found))
    return tuple(unique if len(unique) <= MAX_REFERENCES else [unique[0], *unique[1 - MAX_REFERENCES :]])


def _sent_at(date: str, arrived_at: datetime) -> datetime:
    """What the mail says, where that is likely; clocks are wrong, and a date is free text."""
    try:
        said = parsedate_to_datetime(date)
        said = said.astimezone(UTC) if said.tzinfo else said.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return arrived_at
    return said if arrived_at - _EARLIEST <= said <= arrived_at + _LATEST else arrived_at


def written_at(header: bytes, arrived_at: datetime) -> datetime:
    """The earlier one of what the mail says and when it arrived: for telling old mail that was moved from new."""
    try:
        said = parsedate_to_datetime(_first(mime.header_fields(header), "Date"))
    except (ValueError, TypeError, OverflowError, IndexError):
        return arrived_at
    return min(said.astimezone(UTC) if said.tzinfo else said.replace(tzinfo=UTC), arrived_at)


def _first(fields: Sequence[tuple[str, str]], name: str) -> str:
    return next(iter(mime.values_of(fields, name)), "")


# ---- the whole mail -------------------------------------------------------------------------------------------------


def read_mail(
    envelope: Envelope, content: bytes, rules: Rules, threads: Threads, commands: Collection[str]
) -> InboundMessage:
    """The message in a mail.

    Args:
        content: the mail, or its first `BEGINNING_BYTES` where it is larger than the rules allow.
        commands: names of the gateway's commands; one on the first line is a command, whatever is below it.
    """
    author = envelope.author.address
    message_id = envelope.message_id or _id_of_content(envelope, content)
    is_whole = is_readable_whole(envelope.place, rules) and not mime.has_too_many_parts(content)
    body = mime.read_body(content if is_whole else content[:BEGINNING_BYTES])
    text, quoted, command = _say(envelope, body.text, commands)
    return InboundMessage(
        id=message_id,
        event_id=event_id(author, message_id, envelope.date, is_proved=envelope.unproved is None),
        conversation=ConversationRef(
            channel=rules.channel,
            conversation=author,
            thread=threads.of(author, envelope.recipients, envelope.references, message_id),
        ),
        sender=Sender(
            channel=rules.channel,
            user=author,
            display_name=mime.decoded(envelope.author.display_name)[:200] or author,
            is_verified=envelope.unproved is None,
        ),
        text=text,
        sent_at=_sent_at(envelope.date, envelope.place.arrived_at),
        reply_to=envelope.references[-1] if envelope.references else None,
        attachments=_attachments(envelope.place, body.files) if is_whole else (_whole_mail(envelope.place),),
        command=command,
        quotes=(QuotedText(origin="quoted mail", text=quoted),) if quoted else (),
    )


def _say(envelope: Envelope, body: str, commands: Collection[str]) -> tuple[str, str, str | None]:
    """The person's own text, what they quote, and the command that the text is.

    The subject belongs to a first mail; where that quotes another mail, the subject is perhaps that one's.
    """
    if not body.strip():
        return envelope.subject, "", _command(envelope.subject, commands)
    text, is_own = own_words(body, is_reply=envelope.is_reply)
    quoted = ""
    if not is_own:
        text, quoted = parted(text)
        if not quoted:
            text, quoted = "", text
    command = _command(text, commands)
    if not envelope.is_reply and envelope.subject and command is None:
        subject = f"Subject: {envelope.subject}\n\n"
        text, quoted = (text, subject + quoted) if quoted else (subject + text, quoted)
    return text, quoted, command


def _id_of_content(envelope: Envelope, content: bytes) -> str:
    """For a mail without a Message-ID; not of the fields that servers add, so that moving the mail changes nothing."""
    said = f"{envelope.author.address}\n{envelope.date}\n{envelope.subject}".encode(errors="replace")
    body = content.replace(b"\r\n", b"\n").partition(b"\n\n")[2]
    return "hash:" + hashlib.sha256(said + b"\n" + body).hexdigest()[:40]


def is_readable_whole(place: Place, rules: Rules) -> bool:
    """Whether the mail is small enough to be read from end to end."""
    return place.size_bytes <= rules.max_mail_bytes


def _command(text: str, commands: Collection[str]) -> str | None:
    """The first line without its slash, where it is a command; below it stands a signature or a quotation."""
    first = text.lstrip().partition("\n")[0].strip()
    found = _COMMAND_LINE.fullmatch(first)
    return first[1:] if found is not None and found[1].lower() in commands else None


def _attachments(place: Place, files: Sequence[mime.File]) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            media_type=file.media_type,
            filename=file.filename,
            size_bytes=len(file.content),
            ref=f"{place.uid_validity}/{place.uid}/{number}",
        )
        for number, file in enumerate(files)
    )


def _whole_mail(place: Place) -> Attachment:
    """Stands for all that was not read, so that the model hears of it."""
    ref = f"{place.uid_validity}/{place.uid}/whole"
    return Attachment(media_type="message/rfc822", filename="whole mail.eml", size_bytes=place.size_bytes, ref=ref)
