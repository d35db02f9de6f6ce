"""Converts mail into the gateway's messages. Pure functions.

A mail is read in two steps. Its header decides whether the mail is read at all; only then is the rest fetched and
parsed, so that a stranger's mail costs next to nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import getaddresses, parsedate_to_datetime
from typing import Literal

from adapters.email import mime
from adapters.email.addresses import Mailbox, canonical, only_author
from adapters.email.auto_reply_rules import why_unanswerable, without_tag
from adapters.email.mail_authentication import (
    AuthservTrust,
    Fields,
    Proof,
    Unproved,
    aligned_signatures,
    evaluate,
    why_ambiguous,
)
from adapters.email.quoting import reply_text, split_at_quotation
from adapters.email.threads import Threads
from gateway.messages import Attachment, ConversationRef, InboundMessage, QuotedText, Sender

BEGINNING_BYTES = 256 * 1024
"""How much is read of a mail that is too large."""
MAX_HEADER_BYTES = 256 * 1024
MAX_REFERENCES = 20

_MESSAGE_ID = re.compile(r"<[^<>\s]{1,900}>")
_COMMAND_LINE = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:[ \t][^\n]*)?")
_LONGEST_LIST_CHARS = 10_000
_RECIPIENTS = ("To", "Cc", "Delivered-To", "X-Original-To")
_LATEST = timedelta(days=1)
_EARLIEST = timedelta(days=7)
"""Servers try to deliver for five days (RFC 5321, section 4.5.4.1); what is older was sent again, or put there."""
_LONGEST_HOP = timedelta(days=1)
"""The last server delivers at once; a day allows for clocks in another time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a mail is: its identity in IMAP, and when it arrived."""

    uid_validity: int
    uid: int
    size_bytes: int
    arrived_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Whose mail is read; see `Config` for what each means."""

    channel: str
    own_addresses: frozenset[str]
    trust: AuthservTrust
    unproved: Literal["ignore", "stranger"]
    max_mail_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the header says of a mail that is to be read.

    Attributes:
        message_id: with its angle brackets; empty where the mail has none.
        references: Message-IDs of the mails before it, the oldest first.
        recipients: the values of the fields with recipients.
        evidence: whether the author is proved.
        addressed_in: which of `to` and `cc` names an address of ours.
        is_signed: it has a DKIM signature of the author's domain, which was not verified yet.
    """

    location: Location
    author: Mailbox
    message_id: str
    references: tuple[str, ...]
    recipients: tuple[str, ...]
    subject: str
    date: str
    evidence: Proof | Unproved
    addressed_in: frozenset[str]
    is_signed: bool

    @property
    def is_reply(self) -> bool:
        """It answers another mail."""
        return bool(self.references)

    @property
    def unproved(self) -> str | None:
        """Why the author is not proved; None where they are."""
        return self.evidence.reason if isinstance(self.evidence, Unproved) else None

    @property
    def may_be_proved_by_dkim(self) -> bool:
        """Whether a valid signature would change anything."""
        return self.is_signed and isinstance(self.evidence, Unproved) and not self.evidence.is_final

    @property
    def why_untrusted(self) -> str | None:
        """Why its text is not trusted, so that it gives no command and makes no note; None where it is trusted.

        A signature stays valid when a mail is sent again: every recipient of a mail can send it to us.
        """
        if not self.addressed_in:
            return "it names none of our addresses in To or Cc"
        # A covered field that is missing cannot tell a second copy from the first.
        missing = [
            name
            for name, value in (("date", self.date), ("message-id", self.message_id))
            if not self.covers(name) or (self._covered is not None and not value)
        ]
        if not any(self.covers(name) for name in self.addressed_in):
            missing.append("to")
        return f"its signature does not cover {', '.join(missing)}" if missing else None

    def covers(self, name: str) -> bool:
        """Whether a field, in lower case, is certainly as the author sent it."""
        return self._covered is None or name in self._covered

    @property
    def _covered(self) -> frozenset[str] | None:
        return self.evidence.covered if isinstance(self.evidence, Proof) else None

    def reason_to_skip(self, rules: Rules) -> Skipped | None:
        """Why it is not read, where its author is not proved."""
        if self.unproved is None or rules.unproved == "stranger":
            return None
        return Skipped(f"{self.author.address} is not proved to have written it: {self.unproved}")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A mail that is not to be read, and why, for the log; `is_warning`: an operator should see it."""

    reason: str
    is_warning: bool = False


# ---- the header -----------------------------------------------------------------------------------------------------


def read_header(header: bytes, location: Location, rules: Rules) -> Envelope | Skipped:
    """Decide from the header whether the mail is to be read."""
    fields, defects = mime.read_fields(header)
    author = only_author(mime.values_of(fields, "From"))
    if author is None:
        return Skipped("its From is not exactly one plain address")
    reason = why_unanswerable(fields, author.address, rules.own_addresses) or _why_old(fields, location.arrived_at)
    if reason is not None:
        return Skipped(reason)
    ambiguous = why_ambiguous(header, fields, defects)
    if len(header) >= MAX_HEADER_BYTES:
        ambiguous = "its header is too long to be read whole"
    evidence = evaluate(fields, author.domain, rules.trust) if ambiguous is None else Unproved(ambiguous, is_final=True)
    found = _MESSAGE_ID.search(_first(fields, "Message-ID"))
    return Envelope(
        location=location,
        author=author,
        message_id=found[0] if found is not None else "",
        references=_references(fields),
        recipients=tuple(value for name in _RECIPIENTS for value in mime.values_of(fields, name)),
        subject=mime.decoded(_first(fields, "Subject")),
        date=_first(fields, "Date"),
        evidence=evidence,
        addressed_in=frozenset(name for name in ("to", "cc") if _names_us(mime.values_of(fields, name), rules)),
        is_signed=bool(aligned_signatures(fields, author.domain)),
    )


def _names_us(values: list[str], rules: Rules) -> bool:
    try:
        named = getaddresses([value[:_LONGEST_LIST_CHARS] for value in values])
    except RecursionError:  # a thousand brackets
        return False
    found = (canonical(address) for _, address in named)
    return any(each is not None and not rules.own_addresses.isdisjoint({each, without_tag(each)}) for each in found)


def _why_old(fields: Fields, arrived_at: datetime) -> str | None:
    """Why it is no new mail: a program copied it into the mailbox, or somebody sent it again."""
    written_at = _parsed_date(_first(fields, "Date"))
    delivered_at = _parsed_date(_first(fields, "Received").rpartition(";")[2])
    if written_at is not None and written_at < arrived_at - _EARLIEST:
        return f"it is old: written {written_at:%Y-%m-%d}, here since {arrived_at:%Y-%m-%d}"
    if delivered_at is not None and delivered_at < arrived_at - _LONGEST_HOP:
        return f"it is old: delivered {delivered_at:%Y-%m-%d}, in this mailbox since {arrived_at:%Y-%m-%d}"
    return None


def event_id(author: str, message_id: str, *, is_proved: bool) -> str:
    """The same for one mail, however often and under whatever UID it appears in the mailbox.

    Senders choose Message-IDs. So the id depends on the author too, and on whether they are proved: no one can use up
    the Message-ID of a mail that somebody else is about to send.
    """
    text = "\n".join(("proved" if is_proved else "unproved", author, message_id))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:40]


def _references(fields: Fields) -> tuple[str, ...]:
    found = _MESSAGE_ID.findall(_first(fields, "References")[:50_000])
    found += _MESSAGE_ID.findall(_first(fields, "In-Reply-To")[:5_000])
    unique = list(dict.fromkeys(found))
    return tuple(unique if len(unique) <= MAX_REFERENCES else [unique[0], *unique[1 - MAX_REFERENCES :]])


def _sent_at(date: str, arrived_at: datetime) -> datetime:
    """The mail's own date where it is plausible: clocks are wrong, and the date is free text."""
    said = _parsed_date(date)
    return said if said is not None and arrived_at - _EARLIEST <= said <= arrived_at + _LATEST else arrived_at


def _parsed_date(date: str) -> datetime | None:
    try:
        said = parsedate_to_datetime(date.strip())
        return said.astimezone(UTC) if said.tzinfo else said.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _first(fields: Fields, name: str) -> str:
    return next(iter(mime.values_of(fields, name)), "")


# ---- the whole mail -------------------------------------------------------------------------------------------------


def read_mail(
    envelope: Envelope, content: bytes, rules: Rules, threads: Threads, commands: Collection[str]
) -> InboundMessage | Skipped:
    """The message in a mail.

    Args:
        envelope: of a mail without a `reason_to_skip`.
        content: the mail, or its first `BEGINNING_BYTES` where it is larger than the rules allow.
        commands: of the gateway; one on the first line is a command, whatever is below it.
    """
    author = envelope.author.address
    message_id = envelope.message_id or _id_of_content(envelope, content)
    is_whole = is_readable_whole(envelope.location, rules) and not mime.has_too_many_parts(content)
    body = mime.read_body(content if is_whole else content[:BEGINNING_BYTES])
    ambiguous = body.ambiguity
    if not (envelope.covers("content-type") or mime.describes_body(content)):
        ambiguous = "its signature does not cover Content-Type, which does not describe the text below it"
    if ambiguous is not None:
        envelope = replace(envelope, evidence=Unproved(ambiguous))
        if (skipped := envelope.reason_to_skip(rules)) is not None:
            return skipped
    if not envelope.covers("subject"):
        envelope = replace(envelope, subject="")
    is_to_us = envelope.is_reply and threads.is_ours(author, envelope.references[-1])
    text, quoted, command = _split_text(envelope, body.text, commands, is_to_us=is_to_us)
    is_cautious = envelope.why_untrusted is not None
    return InboundMessage(
        id=message_id,
        event_id=event_id(author, message_id, is_proved=envelope.unproved is None),
        conversation=ConversationRef(
            channel=rules.channel,
            conversation=author,
            thread=threads.thread_of(author, envelope.recipients, envelope.references, message_id),
        ),
        sender=Sender(
            channel=rules.channel,
            user=author,
            display_name=mime.decoded(envelope.author.display_name)[:200] or author,
            is_verified=envelope.unproved is None,
        ),
        text=text,
        sent_at=_sent_at(envelope.date, envelope.location.arrived_at),
        reply_to=envelope.references[-1] if envelope.references else None,
        attachments=_attachments(envelope.location, body.files) if is_whole else (_whole_mail(envelope.location),),
        command=None if is_cautious else command,
        is_trusted_text=not is_cautious,
        quotes=(QuotedText(origin="quoted mail", text=quoted),) if quoted else (),
    )


def _split_text(
    envelope: Envelope, body: str, commands: Collection[str], *, is_to_us: bool
) -> tuple[str, str, str | None]:
    """The person's own text, what they quote, and the command in the text.

    The subject counts in a first mail only; where that mail quotes another, the subject may be the other's.
    """
    if not body.strip():
        return envelope.subject, "", _command(envelope.subject, commands)
    text, is_own = reply_text(body, is_reply=envelope.is_reply, is_to_us=is_to_us)
    quoted = ""
    if not is_own:
        text, quoted = split_at_quotation(text)
        if not quoted:
            text, quoted = "", text
    command = _command(text, commands)
    if not envelope.is_reply and envelope.subject and command is None:
        subject = f"Subject: {envelope.subject}\n\n"
        text, quoted = (text, subject + quoted) if quoted else (subject + text, quoted)
    return text, quoted, command


def _id_of_content(envelope: Envelope, content: bytes) -> str:
    """For a mail without a Message-ID; without the fields that servers add, so that moving the mail changes nothing."""
    said = f"{envelope.author.address}\n{envelope.date}\n{envelope.subject}".encode(errors="replace")
    body = content.replace(b"\r\n", b"\n").partition(b"\n\n")[2]
    return "hash:" + hashlib.sha256(said + b"\n" + body).hexdigest()[:40]


def is_readable_whole(location: Location, rules: Rules) -> bool:
    """Whether the mail is small enough to be read from end to end."""
    return location.size_bytes <= rules.max_mail_bytes


def _command(text: str, commands: Collection[str]) -> str | None:
    """The first line without its slash, where it is a command; a signature or a quotation may follow."""
    first = text.lstrip().partition("\n")[0].strip()
    found = _COMMAND_LINE.fullmatch(first)
    return first[1:] if found is not None and found[1].lower() in commands else None


def _attachments(location: Location, files: Sequence[mime.File]) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            media_type=file.media_type,
            filename=file.filename,
            size_bytes=len(file.content),
            ref=f"{location.uid_validity}/{location.uid}/{number}",
        )
        for number, file in enumerate(files)
    )


def _whole_mail(location: Location) -> Attachment:
    """The mail as one attachment, which tells the model that not all of it was read."""
    ref = f"{location.uid_validity}/{location.uid}/whole"
    return Attachment(media_type="message/rfc822", filename="whole mail.eml", size_bytes=location.size_bytes, ref=ref)
