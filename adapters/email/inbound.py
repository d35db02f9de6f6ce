"""From the mailbox to `accept`: every new mail once, in order, and none for ever.

A mail ends as accepted, as passed over (a machine's, a stranger's), or as quarantined: it could not be read, which is
logged and noted, and it stays in the mailbox. One that cannot be decided about yet is put off, and looked at again.
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
from adapters.email.convert import Envelope, Passed, Place, Rules
from adapters.email.dkim_verification import KeyNotReachable, KeyRing
from adapters.email.imap_client import MailboxConnection
from adapters.email.mail_authentication import Unproved
from adapters.email.mailbox_position import OVERLAP, Attempts, Progress
from adapters.email.server_probe import Vouching
from adapters.email.threads import Correspondence, Threads
from gateway.errors import AdapterError, AdapterNotReady
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

_PROGRESS = "progress"
_LONGEST = timedelta(days=1)
"""How long a mail is put off before it is passed over."""
_MOST = 200  # mails that are put off at one time, besides those that wait for a few minutes only
_SOONEST = timedelta(seconds=30)
_HOUR = timedelta(hours=1)
_CROWD = 1_000  # senders; beyond it those of long ago are forgotten
_LONG_CHARS = 30
_SAME_LONG = 5
_SAME_SHORT = 20
_SAME_BUT_NUMBERS = 20  # within an hour
_DIGITS = re.compile(r"\d+")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Done:
    """A mail that is seen to; `arrived_at` None where that is not known."""

    arrived_at: datetime | None
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class _Later:
    """A mail that cannot be decided about yet.

    Attributes:
        reason: for the log.
        soonest: when to look again, from now; None: by how long it has waited.
    """

    reason: str
    soonest: timedelta | None = None


class Intake:
    """Reads one mailbox."""

    def __init__(
        self,
        rules: Rules,
        threads: Threads,
        notes: AdapterNotes,
        vouching: Vouching,
        *,
        keys: KeyRing,
        commands: Collection[str],
        mails_per_hour: int,
    ) -> None:
        """Read by the rules; `commands` are the names of the gateway's."""
        self._rules = rules
        self._threads = threads
        self._notes = notes
        self._vouching = vouching
        self._keys = keys
        self._commands = commands
        self._correspondence = Correspondence(notes)
        self._allowance = Allowance(mails_per_hour)
        self._attempts = Attempts(notes)
        self._next_look: dict[str, datetime] = {}

    async def take_new(self, connection: MailboxConnection, accept: Accept) -> None:
        """Hand over what is new.

        Raises:
            AdapterNotReady: the connection broke, or a mail was not accepted; it will be read again.
        """
        await self._vouching.look(connection)
        while True:
            word = self._vouching.word
            self._rules = replace(self._rules, word=word)
            progress = await self._take_all(connection, accept)
            await self._vouching.look(connection)
            if self._vouching.word == word or not progress.waiting:
                return

    async def _take_all(self, connection: MailboxConnection, accept: Accept) -> Progress:
        progress = await self._progress(connection)
        await self._attempts.load(connection.uid_validity)
        suspects = self._attempts.suspects
        new = [uid for uid in await connection.uids_from(progress.first_uid) if progress.is_open(uid)]
        for uid in (*(uid for uid in new if uid not in suspects), *suspects):
            since = progress.waiting.get(uid)
            name = f"{connection.uid_validity}.{uid}"
            if since is not None and datetime.now(UTC) < self._next_look.get(name, since):
                continue
            end = await self._take(connection, uid, progress, accept)
            if isinstance(end, _Later):
                progress = self._put_off(name, uid, progress, end)
            else:
                self._next_look.pop(name, None)
                progress = progress.after(uid, end.arrived_at)
            await self._keep(progress)
            if isinstance(end, _Done) and end.is_accepted:
                await connection.mark_seen(uid)
        return progress

    def _put_off(self, name: str, uid: int, progress: Progress, later: _Later) -> Progress:
        now = datetime.now(UTC)
        since = progress.waiting.get(uid, now)
        if uid not in progress.waiting:
            _log.info("%s: mail %s is put off: %s", self._rules.channel, name, later.reason)
        self._next_look[name] = now + (max(_SOONEST, now - since) if later.soonest is None else later.soonest)
        return progress.later(uid, since)

    # ---- one mail ---------------------------------------------------------------------------------------------------

    async def _take(
        self, connection: MailboxConnection, uid: int, progress: Progress, accept: Accept
    ) -> _Done | _Later:
        name = f"{connection.uid_validity}.{uid}"
        if self._attempts.is_hopeless(uid):
            await self._quarantine(name, "reading it broke the connection, or ended the gateway, again and again")
            await self._attempts.end(uid)
            return _Done(None)
        await self._attempts.begin(uid)
        arrived_at: datetime | None = None
        found: tuple[Envelope, InboundMessage] | Passed | _Later | None = None
        try:
            header = await connection.header(uid)
            if header is not None:  # None: somebody has removed it
                arrived_at = header[0].arrived_at
                found = await self._read(connection, *header, progress)
        except AdapterError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a stranger wrote must not stop the mail behind it)
            await self._quarantine(name, f"it cannot be read ({type(error).__name__}: {error})")
        await self._attempts.end(uid)
        since = progress.waiting.get(uid)
        end: _Done | _Later | Passed | None
        if isinstance(found, tuple):
            at = found[0].place.arrived_at if since is None else datetime.now(UTC)
            end = await self._hand_over(*found, name, accept, at=at)
        else:
            end = found
        if isinstance(end, _Later):
            end = self._patience(end, since, len(progress.waiting))
        if isinstance(end, Passed):
            log = _log.warning if end.is_loud else _log.info
            log("%s: mail %s was passed over: %s", self._rules.channel, name, end.reason)
        return _Done(arrived_at) if end is None or isinstance(end, Passed) else end

    def _patience(self, later: _Later, since: datetime | None, waiting: int) -> _Later | Passed:
        """Whether a mail may be put off, once more or for the first time."""
        if since is not None and datetime.now(UTC) - since >= _LONGEST:
            return Passed(f"it has waited for a day: {later.reason}", is_loud=True)
        if since is None and later.soonest is None and waiting >= _MOST:
            return Passed(f"too many mails wait already: {later.reason}", is_loud=True)
        return later

    async def _read(
        self, connection: MailboxConnection, place: Place, header: bytes, progress: Progress
    ) -> tuple[Envelope, InboundMessage] | Passed | _Later | None:
        if progress.is_old(place.uid, place.arrived_at):
            return Passed(f"it is old: it arrived on {place.arrived_at:%Y-%m-%d}, before others that are done")
        envelope = convert.read_header(header, place, self._rules)
        if isinstance(envelope, Passed):
            return envelope
        is_whole = convert.is_readable_whole(place, self._rules)
        may_prove_itself = envelope.may_prove_itself and is_whole
        passed = None if may_prove_itself else self._why_not(envelope, envelope)
        if passed is not None:
            return passed
        content = await connection.content(place.uid, None if is_whole else convert.BEGINNING_BYTES)
        if content is None:
            return None
        checked = await self._checked(envelope, content) if may_prove_itself else envelope
        passed = checked if isinstance(checked, _Later) else self._why_not(checked, envelope)
        if passed is not None or isinstance(checked, _Later):
            return passed
        message = await asyncio.to_thread(
            convert.read_mail, checked, content, self._rules, self._threads, self._commands
        )
        return message if isinstance(message, Passed) else (checked, message)

    def _why_not(self, envelope: Envelope, before: Envelope) -> Passed | _Later | None:
        """Why a mail is not read, or not yet; `before` is what the server's word made of it."""
        is_early = isinstance(before.evidence, Unproved) and before.evidence.is_too_early
        if is_early and (envelope.unproved is not None or envelope.caution is not None):
            return _Later("the mail that checks the mail server has not come back yet", soonest=timedelta(0))
        return envelope.why_passed(self._rules)

    async def _checked(self, envelope: Envelope, content: bytes) -> Envelope | _Later:
        """With what the mail's own signature proves."""
        try:
            evidence = await asyncio.to_thread(dkim_verification.verify, content, envelope.author.domain, self._keys)
        except KeyNotReachable as error:
            return _Later(f"its signature cannot be checked now: {error}")
        if isinstance(envelope.evidence, Unproved) and isinstance(evidence, Unproved):
            evidence = replace(envelope.evidence, reason=f"{envelope.evidence.reason}; {evidence.reason}")
        return replace(envelope, evidence=evidence)

    async def _hand_over(
        self, envelope: Envelope, message: InboundMessage, name: str, accept: Accept, *, at: datetime
    ) -> _Done | _Later | Passed:
        # Forged mail does not use up what the real author may send.
        author = message.sender.user if message.sender.is_verified else f"unproved {message.sender.user}"
        if not self._allowance.has_room(author, name, at):
            reason = f"{author} has sent more than `mails_per_hour` allows"
            return _Later(reason) if message.sender.is_verified else Passed(reason, is_loud=True)
        if self._allowance.is_repeating(author, name, message.text or envelope.subject, at):
            return Passed(f"{author} writes the same again and again, as a program does", is_loud=True)
        if message.sender.is_verified and envelope.caution is not None:
            _log.info("%s: mail %s is plain conversation: %s", self._rules.channel, name, envelope.caution)
        await self._correspondence.remember(message, envelope.subject, envelope.references)
        try:
            await accept(message)
        except Exception as error:  # whatever it is, the message was not kept
            raise AdapterNotReady(f"a mail was not taken, and is read again: {error}") from error
        return _Done(envelope.place.arrived_at, is_accepted=True)

    async def _quarantine(self, name: str, reason: str) -> None:
        """Leave it where it is, and say so."""
        _log.error("%s: mail %s is left alone: %s", self._rules.channel, name, reason)
        note = json.dumps({"reason": reason, "at": datetime.now(UTC).isoformat()})
        await self._notes.put(f"quarantine/{name}", note)

    # ---- how far ----------------------------------------------------------------------------------------------------

    async def _progress(self, connection: MailboxConnection) -> Progress:
        note = await self._notes.get(_PROGRESS)
        progress = Progress.from_json(note) if note is not None else None
        if progress is not None and progress.uid_validity == connection.uid_validity:
            return progress
        last_uid = await self._last_uid(connection)
        if progress is None:
            progress = Progress.beginning(uid_validity=connection.uid_validity, last_uid=last_uid)
        else:
            since = (progress.newest_at - OVERLAP).date()
            first_uid = min(await connection.uids_since(since), default=last_uid + 1)
            _log.warning(
                "%s: the server has renumbered the mailbox; it is read again from %s on", self._rules.channel, since
            )
            progress = progress.renumbered(uid_validity=connection.uid_validity, first_uid=first_uid, last_uid=last_uid)
        await self._keep(progress)
        return progress

    async def _last_uid(self, connection: MailboxConnection) -> int:
        if connection.uid_next is not None:
            return connection.uid_next - 1
        return max(await connection.uids_from(1), default=0)

    async def _keep(self, progress: Progress) -> None:
        # Behind after a power cut, it brings mail again that the gateway knows already by its event id.
        await self._notes.put(_PROGRESS, progress.to_json(), is_durable=False)


# ---- how much of one sender is answered ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """Mails in a row that say the same: when they came, by their names."""

    words: str = ""
    mails: dict[str, datetime] = field(default_factory=dict)


@dataclass(slots=True)
class _Sender:
    """What somebody sent lately.

    Attributes:
        seen_at: when the last mail came.
        taken: when, and which mail, the oldest first; those of the last hour.
        said: what the last mail said, as it is and without its numbers, and the mails in a row that said the same.
    """

    seen_at: datetime
    taken: deque[tuple[datetime, str]] = field(default_factory=deque)
    said: list[_Row] = field(default_factory=lambda: [_Row(), _Row()])


class Allowance:
    """Counts by the time of arrival, so that a backlog is no flood. Two programs that answer each other are stopped.

    A program that does not say that it is one sends the same words each time, perhaps with another number in them.
    """

    def __init__(self, mails_per_hour: int) -> None:
        self._mails_per_hour = mails_per_hour
        self._senders: dict[str, _Sender] = {}
        self._crowd = _CROWD

    def has_room(self, sender: str, name: str, at: datetime) -> bool:
        """Whether this mail may be taken now; if so, it counts, once.

        Args:
            name: of the mail.
            at: when it arrived, or now where it has waited for room.
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
        """Whether the sender has said this so often in a row that it is a program."""
        exact, numbered = self._sender(sender, at).said
        said = " ".join(text.split()).casefold()
        is_long = len(said) >= _LONG_CHARS
        most = _SAME_LONG if is_long else _SAME_SHORT
        if _is_full(exact, said, name, at, most):
            return True
        numbered.mails = {each: when for each, when in numbered.mails.items() if when > at - _HOUR}
        return is_long and _is_full(numbered, _DIGITS.sub("0", said), name, at, _SAME_BUT_NUMBERS)

    def _sender(self, sender: str, at: datetime) -> _Sender:
        if len(self._senders) >= self._crowd:
            recent = {each: one for each, one in self._senders.items() if one.seen_at > at - _HOUR}
            self._senders = recent
            self._crowd = max(_CROWD, 2 * len(recent))
        found = self._senders.setdefault(sender, _Sender(seen_at=at))
        found.seen_at = max(found.seen_at, at)
        return found


def _is_full(row: _Row, said: str, name: str, at: datetime, most: int) -> bool:
    """Whether the row has as many mails as it may; else this one is added to it, or begins another."""
    words = hashlib.sha256(said.encode(errors="replace")).hexdigest()
    if words != row.words:
        row.words, row.mails = words, {}
    if len(row.mails) >= most and name not in row.mails:
        return True
    row.mails[name] = at
    return False
