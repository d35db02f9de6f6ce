"""From the mailbox to `accept`: every new mail once, in order, and none for ever.

A mail ends as accepted, as passed over (a machine's, a stranger's, too many of one sender), or as quarantined: it could
not be read, which is logged and noted, and it stays in the mailbox. Only then is the mark moved.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from adapters.email import convert
from adapters.email.attempts import Attempts
from adapters.email.convert import Envelope, Passed, Place, Rules
from adapters.email.correspondence import Correspondence
from adapters.email.imap_client import MailboxConnection
from adapters.email.progress import Progress
from adapters.email.threads import Threads
from gateway.errors import AdapterError, AdapterNotReady
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

_PROGRESS = "progress"
_HOUR = timedelta(hours=1)
_CROWD = 1_000  # senders; beyond it those of long ago are forgotten
_OVERLAP = timedelta(days=2)  # SEARCH SINCE knows days only, and in the server's own time zone

_log = logging.getLogger(__name__)


class Intake:
    """Reads one mailbox."""

    def __init__(
        self,
        rules: Rules,
        threads: Threads,
        notes: AdapterNotes,
        *,
        commands: Collection[str],
        mails_per_hour: int,
    ) -> None:
        """Read by the rules; `commands` are the names of the gateway's."""
        self._rules = rules
        self._threads = threads
        self._notes = notes
        self._commands = commands
        self._correspondence = Correspondence(notes)
        self._allowance = _Allowance(mails_per_hour)
        self._attempts = Attempts(notes)

    async def take_new(self, connection: MailboxConnection, accept: Accept) -> None:
        """Hand over what is new.

        Raises:
            AdapterNotReady: the connection broke, or a mail was not accepted; it will be read again.
        """
        progress = await self._progress(connection)
        await self._attempts.load(connection.uid_validity)
        suspects = self._attempts.suspects
        new = [uid for uid in await connection.uids_from(progress.first_uid) if uid not in progress.done]
        for uid in (*(uid for uid in new if uid not in suspects), *suspects):
            place = await self._take(connection, uid, progress, accept)
            progress = progress.after(uid, place.arrived_at if place is not None else None)
            await self._keep(progress)
            if place is not None:
                await connection.mark_seen(uid)

    # ---- one mail ---------------------------------------------------------------------------------------------------

    async def _take(self, connection: MailboxConnection, uid: int, progress: Progress, accept: Accept) -> Place | None:
        """See to one mail; where it was, None if it was not accepted."""
        name = f"{connection.uid_validity}.{uid}"
        if self._attempts.is_hopeless(uid):
            await self._quarantine(name, "reading it broke the connection, or ended the gateway, again and again")
            await self._attempts.end(uid)
            return None
        await self._attempts.begin(uid)
        try:
            found = await self._read(connection, uid, progress)
        except AdapterError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a stranger wrote must not stop the mail behind it)
            await self._quarantine(name, f"it cannot be read ({type(error).__name__}: {error})")
            found = None
        await self._attempts.end(uid)
        if found is None:
            return None
        if isinstance(found, Passed):
            _log.info("%s: mail %s was passed over: %s", self._rules.channel, name, found.reason)
            return None
        return await self._hand_over(*found, name, accept)

    async def _read(
        self, connection: MailboxConnection, uid: int, progress: Progress
    ) -> tuple[Envelope, InboundMessage] | Passed | None:
        found = await connection.header(uid)
        if found is None:  # somebody has removed it
            return None
        place, header = found
        if uid <= progress.moved_to and convert.written_at(header, place.arrived_at) < progress.began_at:
            return None
        envelope = convert.read_header(header, place, self._rules)
        if isinstance(envelope, Passed):
            return envelope
        is_whole = convert.is_readable_whole(place, self._rules)
        content = await connection.content(uid, None if is_whole else convert.BEGINNING_BYTES)
        if content is None:
            return None
        message = await asyncio.to_thread(
            convert.read_mail, envelope, content, self._rules, self._threads, self._commands
        )
        return envelope, message

    async def _hand_over(self, envelope: Envelope, message: InboundMessage, name: str, accept: Accept) -> Place | None:
        place = envelope.place
        # Forged mail does not use up what the real author may send.
        author = message.sender.user if message.sender.is_verified else f"unproved {message.sender.user}"
        if not self._allowance.has_room(author, name, place.arrived_at):
            _log.warning(
                "%s: mail %s was passed over: %s has sent more than `mails_per_hour` allows",
                self._rules.channel,
                name,
                author,
            )
            return None
        await self._correspondence.remember(message, envelope.subject, envelope.references)
        try:
            await accept(message)
        except Exception as error:  # whatever it is, the message was not kept
            raise AdapterNotReady(f"a mail was not taken, and is read again: {error}") from error
        return place

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
            since = (progress.newest_at - _OVERLAP).date()
            first_uid = min(await connection.uids_since(since), default=last_uid + 1)
            _log.warning(
                "%s: the server has numbered the mailbox anew; it is read again from %s on", self._rules.channel, since
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


class _Allowance:
    """So many mails of one sender in an hour, by the time of their arrival: a backlog is no flood.

    Two programs that answer each other in spite of all the rules are stopped by it.
    """

    def __init__(self, mails_per_hour: int) -> None:
        self._mails_per_hour = mails_per_hour
        self._taken: dict[str, deque[tuple[datetime, str]]] = {}
        self._crowd = _CROWD

    def has_room(self, sender: str, name: str, arrived_at: datetime) -> bool:
        """Whether this mail may be taken; if so, it counts, once."""
        if len(self._taken) >= self._crowd:
            recent = ((each, taken) for each, taken in self._taken.items() if taken[-1][0] > arrived_at - _HOUR)
            self._taken = dict(recent)
            self._crowd = max(_CROWD, 2 * len(self._taken))
        taken = self._taken.setdefault(sender, deque())
        while taken and taken[0][0] <= arrived_at - _HOUR:
            taken.popleft()
        if any(each == name for _, each in taken):
            return True
        if len(taken) >= self._mails_per_hour:
            return False
        taken.append((arrived_at, name))
        return True
