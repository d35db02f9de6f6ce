"""Takes new mail from the mailbox to `accept`: each mail once, in order, and none for ever.

A mail is accepted, skipped (a machine's, a stranger's), or quarantined: it could not be read, which is logged and
noted, and it stays in the mailbox. One that cannot be decided about yet is deferred, and looked at again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from adapters.email import convert, dkim_verification
from adapters.email.convert import Envelope, Location, Rules, Skipped
from adapters.email.dkim_verification import DkimKeys, KeyNotReachable
from adapters.email.imap_client import MailboxConnection
from adapters.email.mail_authentication import Unproved
from adapters.email.mailbox_position import OVERLAP, POSITION_JSON, MailboxPosition, ReadAttempts
from adapters.email.server_probe import ServerProbe
from adapters.email.threads import ThreadNotes, Threads
from gateway.errors import AdapterError, AdapterNotReady
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

_POSITION_NOTE = "progress"
_MAX_DEFERRAL = timedelta(days=1)
"""How long a mail is deferred before it is skipped."""
_MAX_DEFERRED = 200  # mails at one time, besides those that wait for a few minutes only
_FIRST_RETRY = timedelta(seconds=30)
_HOUR = timedelta(hours=1)
_MAX_SENDERS = 1_000  # senders; beyond it those of long ago are forgotten
_LONG_CHARS = 30
_MAX_SAME_LONG = 5
_MAX_SAME_SHORT = 20
_MAX_SAME_BUT_NUMBERS = 20  # within an hour
_DIGITS = re.compile(r"\d+")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Done:
    """A mail that needs no more work; `arrived_at` None where that is not known."""

    arrived_at: datetime | None
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A mail that cannot be decided about yet; it is looked at again `retry_after` from now, or ever more seldom."""

    reason: str
    retry_after: timedelta | None = None


class Inbound:
    """Reads one mailbox."""

    def __init__(
        self,
        rules: Rules,
        threads: Threads,
        notes: AdapterNotes,
        vouching: ServerProbe,
        *,
        keys: DkimKeys,
        commands: Collection[str],
        mails_per_hour: int,
    ) -> None:
        """Read by the rules; `commands` are the names of the gateway's commands."""
        self._rules = rules
        self._threads = threads
        self._notes = notes
        self._probe = vouching
        self._keys = keys
        self._commands = commands
        self._thread_notes = ThreadNotes(notes)
        self._limits = SenderLimits(mails_per_hour)
        self._attempts = ReadAttempts(notes)
        self._next_look: dict[str, datetime] = {}

    async def read_new(self, connection: MailboxConnection, accept: Accept) -> None:
        """Hand over what is new.

        Raises:
            AdapterNotReady: the connection broke, or a mail was not accepted; it will be read again.
        """
        await self._probe.collect(connection)
        while True:
            trust = self._probe.trust
            self._rules = replace(self._rules, trust=trust)
            position = await self._read_all(connection, accept)
            await self._probe.collect(connection)
            if self._probe.trust == trust or not position.waiting:
                return

    async def _read_all(self, connection: MailboxConnection, accept: Accept) -> MailboxPosition:
        position = await self._load_position(connection)
        await self._attempts.load(connection.uid_validity)
        suspects = self._attempts.suspects
        new = [uid for uid in await connection.uids_from(position.first_uid) if position.is_pending(uid)]
        for uid in (*(uid for uid in new if uid not in suspects), *suspects):
            since = position.waiting.get(uid)
            name = f"{connection.uid_validity}.{uid}"
            if since is not None and datetime.now(UTC) < self._next_look.get(name, since):
                continue
            end = await self._handle(connection, uid, position, accept)
            if isinstance(end, _Deferred):
                position = self._defer(name, uid, position, end)
            else:
                self._next_look.pop(name, None)
                position = position.with_done(uid, end.arrived_at)
            await self._save(position)
            if isinstance(end, _Done) and end.is_accepted:
                await connection.mark_seen(uid)
        return position

    def _defer(self, name: str, uid: int, position: MailboxPosition, deferred: _Deferred) -> MailboxPosition:
        now = datetime.now(UTC)
        since = position.waiting.get(uid, now)
        if uid not in position.waiting:
            _log.info("%s: mail %s is put off: %s", self._rules.channel, name, deferred.reason)
        retry_after = max(_FIRST_RETRY, now - since) if deferred.retry_after is None else deferred.retry_after
        self._next_look[name] = now + retry_after
        return position.with_deferred(uid, since)

    # ---- one mail ---------------------------------------------------------------------------------------------------

    async def _handle(
        self, connection: MailboxConnection, uid: int, position: MailboxPosition, accept: Accept
    ) -> _Done | _Deferred:
        name = f"{connection.uid_validity}.{uid}"
        if self._attempts.should_give_up(uid):
            await self._quarantine(name, "reading it broke the connection, or ended the gateway, again and again")
            await self._attempts.end(uid)
            return _Done(None)
        await self._attempts.begin(uid)
        arrived_at: datetime | None = None
        found: tuple[Envelope, InboundMessage] | Skipped | _Deferred | None = None
        try:
            header = await connection.header(uid)
            if header is not None:  # None: somebody has removed it
                arrived_at = header[0].arrived_at
                found = await self._read(connection, *header, position)
        except AdapterError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a stranger wrote must not stop the mail behind it)
            await self._quarantine(name, f"it cannot be read ({type(error).__name__}: {error})")
        await self._attempts.end(uid)
        since = position.waiting.get(uid)
        end: _Done | _Deferred | Skipped | None
        if isinstance(found, tuple):
            at = found[0].location.arrived_at if since is None else datetime.now(UTC)
            end = await self._hand_over(*found, name, accept, at=at)
        else:
            end = found
        if isinstance(end, _Deferred):
            end = self._limit_deferral(end, since, len(position.waiting))
        if isinstance(end, Skipped):
            log = _log.warning if end.is_warning else _log.info
            log("%s: mail %s was passed over: %s", self._rules.channel, name, end.reason)
        return _Done(arrived_at) if end is None or isinstance(end, Skipped) else end

    def _limit_deferral(self, deferred: _Deferred, since: datetime | None, waiting: int) -> _Deferred | Skipped:
        """Whether a mail may be deferred, again or for the first time."""
        if since is not None and datetime.now(UTC) - since >= _MAX_DEFERRAL:
            return Skipped(f"it has waited for a day: {deferred.reason}", is_warning=True)
        if since is None and deferred.retry_after is None and waiting >= _MAX_DEFERRED:
            return Skipped(f"too many mails wait already: {deferred.reason}", is_warning=True)
        return deferred

    async def _read(
        self, connection: MailboxConnection, location: Location, header: bytes, position: MailboxPosition
    ) -> tuple[Envelope, InboundMessage] | Skipped | _Deferred | None:
        if position.is_old(location.uid, location.arrived_at):
            return Skipped(f"it is old: it arrived on {location.arrived_at:%Y-%m-%d}, before others that are done")
        envelope = convert.read_header(header, location, self._rules)
        if isinstance(envelope, Skipped):
            return envelope
        is_whole = convert.is_readable_whole(location, self._rules)
        may_be_proved_by_dkim = envelope.may_be_proved_by_dkim and is_whole
        skipped = None if may_be_proved_by_dkim else self._reason_not_to_read(envelope, envelope)
        if skipped is not None:
            return skipped
        content = await connection.content(location.uid, None if is_whole else convert.BEGINNING_BYTES)
        if content is None:
            return None
        verified = await self._with_dkim_result(envelope, content) if may_be_proved_by_dkim else envelope
        skipped = verified if isinstance(verified, _Deferred) else self._reason_not_to_read(verified, envelope)
        if skipped is not None or isinstance(verified, _Deferred):
            return skipped
        message = await asyncio.to_thread(
            convert.read_mail, verified, content, self._rules, self._threads, self._commands
        )
        return message if isinstance(message, Skipped) else (verified, message)

    def _reason_not_to_read(self, envelope: Envelope, before: Envelope) -> Skipped | _Deferred | None:
        """Why a mail is not read, or not yet; `before` is the envelope by the server's results alone."""
        is_early = isinstance(before.evidence, Unproved) and before.evidence.is_too_early
        if is_early and (envelope.unproved is not None or envelope.why_untrusted is not None):
            return _Deferred("the mail that checks the mail server has not come back yet", retry_after=timedelta(0))
        return envelope.reason_to_skip(self._rules)

    async def _with_dkim_result(self, envelope: Envelope, content: bytes) -> Envelope | _Deferred:
        """With the evidence of the mail's own signature."""
        try:
            evidence = await asyncio.to_thread(dkim_verification.verify, content, envelope.author.domain, self._keys)
        except KeyNotReachable as error:
            return _Deferred(f"its signature cannot be checked now: {error}")
        if isinstance(envelope.evidence, Unproved) and isinstance(evidence, Unproved):
            evidence = replace(envelope.evidence, reason=f"{envelope.evidence.reason}; {evidence.reason}")
        return replace(envelope, evidence=evidence)

    async def _hand_over(
        self, envelope: Envelope, message: InboundMessage, name: str, accept: Accept, *, at: datetime
    ) -> _Done | _Deferred | Skipped:
        # Forged mail does not use up what the real author may send.
        author = message.sender.user if message.sender.is_verified else f"unproved {message.sender.user}"
        if not self._limits.admits(author, name, at):
            reason = f"{author} has sent more than `mails_per_hour` allows"
            return _Deferred(reason) if message.sender.is_verified else Skipped(reason, is_warning=True)
        if self._limits.is_repeating(author, name, message.text or envelope.subject, at):
            return Skipped(f"{author} writes the same again and again, as a program does", is_warning=True)
        if message.sender.is_verified and envelope.why_untrusted is not None:
            _log.info("%s: mail %s is plain conversation: %s", self._rules.channel, name, envelope.why_untrusted)
        await self._thread_notes.remember(message, envelope.subject, envelope.references)
        try:
            await accept(message)
        except Exception as error:  # whatever it is, the message was not kept
            raise AdapterNotReady(f"a mail was not taken, and is read again: {error}") from error
        return _Done(envelope.location.arrived_at, is_accepted=True)

    async def _quarantine(self, name: str, reason: str) -> None:
        """Leave it in the mailbox, and log and note why."""
        _log.error("%s: mail %s is left alone: %s", self._rules.channel, name, reason)
        note = json.dumps({"reason": reason, "at": datetime.now(UTC).isoformat()})
        await self._notes.put(f"quarantine/{name}", note)

    # ---- how far ----------------------------------------------------------------------------------------------------

    async def _load_position(self, connection: MailboxConnection) -> MailboxPosition:
        note = await self._notes.get(_POSITION_NOTE)
        position = POSITION_JSON.validate_json(note) if note is not None else None
        if position is not None and position.uid_validity == connection.uid_validity:
            return position
        last_uid = await self._last_uid(connection)
        if position is None:
            position = MailboxPosition.initial(uid_validity=connection.uid_validity, last_uid=last_uid)
        else:
            since = (position.newest_at - OVERLAP).date()
            first_uid = min(await connection.uids_since(since), default=last_uid + 1)
            _log.warning(
                "%s: the server has renumbered the mailbox; it is read again from %s on", self._rules.channel, since
            )
            position = position.renumbered(uid_validity=connection.uid_validity, first_uid=first_uid, last_uid=last_uid)
        await self._save(position)
        return position

    async def _last_uid(self, connection: MailboxConnection) -> int:
        if connection.uid_next is not None:
            return connection.uid_next - 1
        return max(await connection.uids_from(1), default=0)

    async def _save(self, position: MailboxPosition) -> None:
        # A power cut may set it back; mail that is read again has an event id that the gateway knows.
        await self._notes.put(_POSITION_NOTE, POSITION_JSON.dump_json(position).decode(), is_durable=False)


# ---- how much one sender may write ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Repeats:
    """Successive mails with the same text: when they came, by their names."""

    words: str = ""
    mails: dict[str, datetime] = field(default_factory=dict)


@dataclass(slots=True)
class _Sender:
    """What somebody sent lately.

    Attributes:
        seen_at: when the last mail came.
        taken: time and name of the mails of the last hour, the oldest first.
        said: the text of the last mail, as it is and without its numbers, and the successive mails with that text.
    """

    seen_at: datetime
    taken: deque[tuple[datetime, str]] = field(default_factory=deque)
    said: list[_Repeats] = field(default_factory=lambda: [_Repeats(), _Repeats()])


class SenderLimits:
    """Limits the mails of each sender in an hour, by time of arrival, so that a backlog is no flood.

    It also stops programs that do not say that they are programs: they repeat a text, perhaps with other numbers in it.
    """

    def __init__(self, mails_per_hour: int) -> None:
        self._mails_per_hour = mails_per_hour
        self._senders: dict[str, _Sender] = {}
        self._forget_above = _MAX_SENDERS

    def admits(self, sender: str, name: str, at: datetime) -> bool:
        """Whether this mail is within the limit; if so, it counts, once.

        Args:
            name: of the mail.
            at: when it arrived; now, where it was deferred.
        """
        taken = self._sender(sender, at).taken
        while taken and taken[0][0] <= at - _HOUR:
            taken.popleft()
        if any(each == name for _, each in taken):
            return True
        if len(taken) >= self._mails_per_hour:
            return False
        taken.append((at, name))
        return True

    def is_repeating(self, sender: str, name: str, text: str, at: datetime) -> bool:
        """Whether the sender sent this text so often in a row that it is a program."""
        exact, numbered = self._sender(sender, at).said
        said = " ".join(text.split()).casefold()
        is_long = len(said) >= _LONG_CHARS
        most = _MAX_SAME_LONG if is_long else _MAX_SAME_SHORT
        if _is_full(exact, said, name, at, most):
            return True
        numbered.mails = {each: when for each, when in numbered.mails.items() if when > at - _HOUR}
        return is_long and _is_full(numbered, _DIGITS.sub("0", said), name, at, _MAX_SAME_BUT_NUMBERS)

    def _sender(self, sender: str, at: datetime) -> _Sender:
        if len(self._senders) >= self._forget_above:
            recent = {each: one for each, one in self._senders.items() if one.seen_at > at - _HOUR}
            self._senders = recent
            self._forget_above = max(_MAX_SENDERS, 2 * len(recent))
        found = self._senders.setdefault(sender, _Sender(seen_at=at))
        found.seen_at = max(found.seen_at, at)
        return found


def _is_full(repeats: _Repeats, said: str, name: str, at: datetime, most: int) -> bool:
    """Whether the row has as many mails as it may; else this one is added to it, or begins another."""
    words = hashlib.sha256(said.encode(errors="replace")).hexdigest()
    if words != repeats.words:
        repeats.words, repeats.mails = words, {}
    if len(repeats.mails) >= most and name not in repeats.mails:
        return True
    repeats.mails[name] = at
    return False
