"""Accept: the one door through which a message enters. After it has returned, the message cannot be lost."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from gateway.domain.codes import without_codes
from gateway.domain.command_text import in_form, parse_command
from gateway.messages import Capabilities, ConversationRef, InboundMessage, OutboundMessage
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, stage

# A message that was being answered at so many deaths of the process is answered alone from then on.
SUSPECT_DEATHS = 3
# Of a sender whose queue is full, so many commands are let in all the same: `/stop` is what helps then.
COMMANDS_BEYOND = 10
_UNSTORABLE = re.compile("[\0\ufffd\ud800-\udfff]")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A message that is claimed for its turn.

    Attributes:
        turn_id: chosen at accept, so that it is the same however often the turn is tried.
        attempts: claims so far, this one included; a parked message's waits do not count, nor does the end of the
            process.
        is_told: the person was told already that the message waits.
        has_steps: an earlier try left steps from which the turn goes on; see `TurnStore.load_steps`.
        has_more: its conversation has another message behind it.
        next_sender: who wrote that one; None where there is none.
        accepted_at: by the wall clock.
        lone_deaths: how often the process died while this, and nothing else, was being answered.
    """

    seq: int
    turn_id: str
    message: InboundMessage
    attempts: int
    is_told: bool
    has_steps: bool
    has_more: bool
    next_sender: str | None
    accepted_at: datetime
    lone_deaths: int = 0


@dataclass(frozen=True, slots=True)
class Suspect:
    """The process died so often while the head of the queue was being answered that it is to be answered alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """The head of the queue waits for a time to come."""

    due_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much of one sender may wait, over all conversations of the channel.

    Attributes:
        messages: at most; what comes beyond that is refused.
        notice: the answer to a refused message, None where it deserves none. It is sent once in each conversation
            until all is answered that waited when it was sent.
    """

    messages: int
    notice: OutboundMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The message was committed as one that gets no turn; `is_told`: the notice was committed with it."""

    is_told: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An unfinished message whose sender knows that it waits; `waits_for` is what `TurnCommit` said of it."""

    conversation: ConversationRef
    waits_for: str | None


class InboxStore(Protocol):
    """The durable queue of what people wrote, one row per message for ever."""

    async def add(self, message: InboundMessage, turn_id: str, room: Room | None = None) -> int | Refused | None:
        """Commit the message; its sequence number, or None when the event or the message is there already."""

    async def claim(
        self, conversation: ConversationRef, *, owner: str, lease_s: float, is_alone: bool = False
    ) -> InboxRow | NotDue | Suspect | None:
        """Take the conversation's oldest unfinished message, if nobody holds it and its time has come.

        A suspect is taken only by a caller that runs nothing else: `is_alone`.
        """

    async def renew(self, owner: str, lease_s: float) -> None:
        """Put off the end of all leases of the owner."""

    async def release(self, seq: int, *, owner: str, after_s: float, error: str | None, is_counted: bool) -> None:
        """Give the message back, to be claimed again after some seconds; `is_counted` False takes the attempt back."""

    async def make_due(self, conversation: ConversationRef) -> None:
        """Let what waits in the conversation be claimed now."""

    async def reclaim(self, owner: str, after_s: Callable[[int], float] = lambda _deaths: 0.0) -> int:
        """Give back what other owners hold; for a start, when the others are known to be dead.

        Who of several messages ended the process nobody knows, so a lone death is counted only where it was one.

        Args:
            after_s: how long a message waits after so many lone deaths.
        """

    async def waiting(self) -> Sequence[tuple[ConversationRef, float]]:
        """Every conversation with an unfinished message, and the seconds until its head is due."""

    async def speakers(self) -> Mapping[ConversationRef, str]:
        """Who wrote the head of every conversation with an unfinished message."""

    async def parked(self) -> Sequence[Parked]:
        """Messages that wait for a model or for a budget, oldest first."""


class Inbox:
    """Commits what adapters hand over, and says so to the dispatcher."""

    def __init__(
        self,
        store: InboxStore,
        on_accepted: Callable[[InboundMessage], Awaitable[None]],
        *,
        queued_messages_of_one: Callable[[str], int] | None = None,
        is_let_in: Callable[[InboundMessage], bool] = lambda _message: True,
        capabilities: Callable[[str], Capabilities | None] = lambda _channel: None,
        woken: Callable[[ConversationRef], None] = lambda _conversation: None,
    ) -> None:
        """Nothing is accepted yet.

        Args:
            queued_messages_of_one: of one sender, waiting or being answered, by the channel; None for no limit.
            is_let_in: whether the writer gets answers; nobody else is told that a queue is full.
            capabilities: of a channel, by its name.
            woken: told that a conversation has a reply to send.
        """
        self._store = store
        self._on_accepted = on_accepted
        self._queued_messages_of_one = queued_messages_of_one
        self._is_let_in = is_let_in
        self._capabilities = capabilities
        self._woken = woken

    async def accept(self, message: InboundMessage) -> bool:
        """Commit the message, once for ever, and say whether it is new; only then may the adapter acknowledge it.

        A caller that is cancelled does not take the message back: it may be committed by then, and must get its turn.

        Raises:
            StoreUnavailable: the disk is full or broken; nothing was kept.
        """
        return await self.keep(message) is not None

    async def keep(self, message: InboundMessage) -> int | Refused | None:
        """Accept, and say where the message stands in the sequence; as `InboxStore.add` says it, raises as `accept`."""
        keeping = asyncio.create_task(self._keep(storable(message)))
        try:
            return await asyncio.shield(keeping)
        except asyncio.CancelledError:
            keeping.add_done_callback(_say_if_not_kept)
            raise

    async def _keep(self, message: InboundMessage) -> int | Refused | None:
        reach("inbox.accepting")
        turn_id = f"t_{secrets.token_hex(8)}"
        with stage("inbox.accept", turn_id, message.conversation):
            added = await self._store.add(message, turn_id, self._room(message, turn_id))
            is_refused, is_new = isinstance(added, Refused), isinstance(added, int)
            note(is_new=is_new)
            if is_new:
                _log.debug("message_accepted", text=without_codes(message))
            elif is_refused:
                note(result="refused")
                _log.warning("queue_full", user=message.sender.user)
        reach("inbox.committed")
        if is_new:
            await self._on_accepted(message)
        elif isinstance(added, Refused) and added.is_told:
            self._woken(message.conversation)
        return added

    def _room(self, message: InboundMessage, turn_id: str) -> Room | None:
        if self._queued_messages_of_one is None:
            return None
        most = self._queued_messages_of_one(message.conversation.channel)
        if parse_command(message) is not None:
            return Room(messages=most + COMMANDS_BEYOND, notice=None)
        text = (
            f"{most} messages of yours wait for me already, so I did not take this one, and take no others before "
            "I have caught up. Please send it again later. `/stop` ends what I am doing now."
        )
        capabilities = self._capabilities(message.conversation.channel)
        notice = OutboundMessage(
            id=f"{turn_id}.refused",
            conversation=message.conversation,
            text=in_form(text, capabilities, is_direct=message.is_direct),
            reply_to=message.id,
        )
        return Room(messages=most, notice=notice if self._is_let_in(message) else None)


def _say_if_not_kept(keeping: asyncio.Task[int | Refused | None]) -> None:
    """Nobody waits for it any more, and nobody was told that we have the message: its platform delivers it again."""
    if not keeping.cancelled() and (error := keeping.exception()) is not None:
        _log.warning("not_accepted", error=str(error))


def storable(message: InboundMessage) -> InboundMessage:
    """The message without what no database, terminal or model takes: NULs, and surrogates without a partner."""
    where = message.conversation
    return replace(
        message,
        id=storable_id(message.id),
        event_id=storable_id(message.event_id),
        conversation=replace(
            where,
            conversation=storable_id(where.conversation),
            thread=None if where.thread is None else storable_id(where.thread),
        ),
        sender=replace(
            message.sender,
            user=storable_id(message.sender.user),
            display_name=_clean(message.sender.display_name),
        ),
        text=_clean(message.text),
        reply_to=None if message.reply_to is None else storable_id(message.reply_to),
        attachments=tuple(
            replace(
                file,
                media_type=_clean(file.media_type),
                filename=_file_name(file.filename),
                size_bytes=max(0, file.size_bytes),
                ref=storable_id(file.ref),
            )
            for file in message.attachments
        ),
        command=None if message.command is None else _clean(message.command),
        quotes=tuple(replace(quote, text=_clean(quote.text), author=_clean(quote.author)) for quote in message.quotes),
        sent_at=_aware(message.sent_at),
    )


def storable_id(value: str) -> str:
    """The id in a form that every store takes: the same one each time, and never that of another id.

    Ids of platforms are left as they are. In what a broken or hostile one makes up, each character that cannot be
    stored becomes U+FFFD and its number, `a<D800>` thus "a", U+FFFD, "d800", and so does U+FFFD itself.
    """
    if _UNSTORABLE.search(value) is None:
        return value
    # a pair of surrogates is the character that it means
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _UNSTORABLE.sub(lambda found: f"\ufffd{ord(found[0]):04x}", whole)


def _file_name(name: str) -> str:
    """The name alone, on one line: whoever keeps the file under it keeps it in no other directory."""
    last = re.split(r"[/\\]", _clean(name))[-1]
    shown = "".join(character if character.isprintable() else " " for character in last).strip()
    return "file" if shown in {"", ".", ".."} else shown


def _clean(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # a pair of surrogates becomes the character that it means, a lone one the replacement character
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("sent_at must be an aware time")
    return moment
