"""Waits for the other parts of what a person sent as one thing, and hands over the whole.

A part is *kept* in the channel's durable notes before Telegram hears that we have it, so the acknowledgement need not
wait for the rest. It could not: Telegram calls a webhook with the next update of a chat only after it has heard 200 for
the one before (`WebhookActor.cpp`, https://github.com/tdlib/telegram-bot-api), and an offset that is held back holds up
every other chat. What becomes of a crash at each step:

1. before a part is kept: Telegram sends it again;
2. while parts are kept: they are found at the next start, and the wait for the others goes on;
3. once the queue is *sealed*: the next start hands over exactly these parts again. They make the same messages with the
   same ids, which the gateway takes once; nothing can join them any more;
4. after the hand-over: the ids of the updates are noted for longer than Telegram repeats them.

Which messages belong together is told by the messages themselves, never by when they reached us, so that the same parts
always make the same messages:

- An album's messages have one `media_group_id` (https://core.telegram.org/bots/api#message).
- A text above 4096 UTF-16 units is cut by the sender's app. Telegram Desktop cuts at the best place in the second half
  (`CutPart`, https://github.com/telegramdesktop/tdesktop, Telegram/SourceFiles/ui/text/text_entity.cpp), so that a part
  which is not the last has more than 2048. Nothing else marks the parts; they are sent within a moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from adapters.telegram.convert import Json, chat_of
from gateway.errors import AdapterNotReady
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

QUIET_S = 1.5
"""After the last part that may have another behind it."""
LONGEST_S = 10.0
"""After the first part, whatever comes."""
MOST_PARTS = 100
MAX_UNITS = 4096
_LEAST_UNITS = MAX_UNITS // 2
_MOMENT = timedelta(seconds=3)
"""Between two parts of a text, by Telegram's clock, which counts whole seconds."""

_KEPT_PREFIX = "kept/"
_TAKEN_PREFIX = "taken/"
_REPEATED = timedelta(hours=25)  # Telegram keeps an update for 24: https://core.telegram.org/bots/api#getting-updates

Read = Callable[[Json], Awaitable[InboundMessage | None]]


@dataclass(slots=True, eq=False)
class _Queue:
    """What waits of one chat, in order; with what others write there meanwhile, so that the order stays."""

    chat: int
    began_at_s: float
    parts: list[Part] = field(default_factory=list)
    due_at_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: asyncio.Task[None] | None = None
    is_sealed: bool = False
    is_over: bool = False


class Assembly:
    """Between the updates and `accept`, for as long as one run of the channel."""

    def __init__(
        self,
        notes: AdapterNotes,
        read: Read,
        accept: Accept,
        *,
        quiet_s: float = QUIET_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._notes = notes
        self._read = read
        self._accept = accept
        self._quiet_s = quiet_s
        self._longest_s = longest_s
        self._queues: dict[int, _Queue] = {}
        self._taken: dict[str, datetime] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = asyncio.get_running_loop().time

    async def run(self, receiving: Coroutine[Any, Any, None]) -> None:
        """Take up what an earlier run has kept, and then receive until cancelled.

        Raises:
            AdapterNotReady: what was kept was not taken by the gateway; it stays kept.
        """
        work = asyncio.ensure_future(self._run(receiving))
        try:
            await asyncio.wait({work, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            work.result()
        finally:
            tasks = [work, *(queue.waiting for queue in self._queues.values() if queue.waiting is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            receiving.close()  # where it was not begun
            if not self._failed.cancel() and not self._failed.cancelled():
                self._failed.exception()  # told above, or by another error that came first

    async def take(self, update: Json, message: InboundMessage) -> None:
        """Returns after the message is accepted, or kept until its other parts are there.

        Raises whatever `accept` and the notes raise; the update is then to come again.
        """
        chat = chat_of(update)
        if message.event_id in self._taken:
            return
        part = part_of(update, message)
        if chat is None or (chat not in self._queues and not part.may_go_on):
            await self._accept(message)
            return
        queue = self._queues.setdefault(chat, _Queue(chat=chat, began_at_s=self._clock()))
        async with queue.lock:
            if queue.is_sealed and not queue.is_over:
                await self._hand_over(queue)  # the one who began it was stopped
            if not queue.is_over:
                await self._add(queue, part)
                return
        await self.take(update, message)

    # ---- inside -----------------------------------------------------------------------------------------------------

    async def _run(self, receiving: Coroutine[Any, Any, None]) -> None:
        await self._load_taken()
        for key in await self._notes.keys(_KEPT_PREFIX):
            await self._resume(int(key.removeprefix(_KEPT_PREFIX)), json.loads(await self._notes.get(key) or "{}"))
        await receiving

    async def _resume(self, chat: int, noted: Json) -> None:
        queue = self._queues[chat] = _Queue(chat=chat, began_at_s=self._clock())
        for update in noted.get("updates", ()):
            message = await self._read(update)
            if message is not None:
                queue.parts.append(part_of(update, message))
        async with queue.lock:
            await self._go_on(queue, is_sealed=bool(noted.get("is_sealed")))

    async def _add(self, queue: _Queue, part: Part) -> None:
        if all(part.message.event_id != other.message.event_id for other in queue.parts):
            await self._keep(queue.chat, [*queue.parts, part], is_sealed=False)
            queue.parts.append(part)
        await self._go_on(queue, is_sealed=len(queue.parts) >= MOST_PARTS)

    async def _go_on(self, queue: _Queue, *, is_sealed: bool) -> None:
        if is_sealed or not may_go_on(queue.parts):
            await self._hand_over(queue)
            if queue.waiting is not None:
                queue.waiting.cancel()
            return
        if queue.parts[-1].may_go_on or not queue.due_at_s:
            queue.due_at_s = min(self._clock() + self._quiet_s, queue.began_at_s + self._longest_s)
        if queue.waiting is None:
            queue.waiting = asyncio.create_task(self._wait(queue), name="telegram parts")

    async def _wait(self, queue: _Queue) -> None:
        while (left_s := queue.due_at_s - self._clock()) > 0:  # noqa: ASYNC110 (it moves while we wait)
            await asyncio.sleep(left_s)
        async with queue.lock:
            if queue.is_over:
                return
            try:
                await self._hand_over(queue)
            except Exception as error:  # noqa: BLE001 (whatever it is, nobody else would hear of it)
                self._fail(error)

    async def _hand_over(self, queue: _Queue) -> None:
        try:
            queue.is_sealed = True
            await self._keep(queue.chat, queue.parts, is_sealed=True)
            for group in grouped(queue.parts):
                await self._accept(joined(group))
            await self._note_taken(queue)
            await self._notes.remove(f"{_KEPT_PREFIX}{queue.chat}")
        except Exception as error:
            self._fail(error)
            raise
        queue.is_over = True
        del self._queues[queue.chat]

    def _fail(self, error: Exception) -> None:
        """End the run: a sealed queue must be handed over before anything else of its chat is taken."""
        if not self._failed.done():
            self._failed.set_exception(AdapterNotReady(f"a message was not taken, and will be tried again: {error}"))

    async def _keep(self, chat: int, parts: list[Part], *, is_sealed: bool) -> None:
        noted = {"is_sealed": is_sealed, "updates": [part.update for part in parts]}
        await self._notes.put(f"{_KEPT_PREFIX}{chat}", json.dumps(noted))

    # ---- what was handed over ---------------------------------------------------------------------------------------

    async def _note_taken(self, queue: _Queue) -> None:
        events = [part.message.event_id for part in queue.parts]
        if not events:
            return
        now = datetime.now(UTC)
        await self._notes.put(f"{_TAKEN_PREFIX}{events[0]}", json.dumps([now.isoformat(), events]))
        self._taken.update(dict.fromkeys(events, now))
        for event in [event for event, at in self._taken.items() if abs(now - at) > _REPEATED]:
            del self._taken[event]
            await self._notes.remove(f"{_TAKEN_PREFIX}{event}")

    async def _load_taken(self) -> None:
        for key in await self._notes.keys(_TAKEN_PREFIX):
            noted_at, events = json.loads(await self._notes.get(key) or '["1970-01-01T00:00:00+00:00", []]')
            at = datetime.fromisoformat(noted_at)
            if abs(datetime.now(UTC) - at) > _REPEATED:
                await self._notes.remove(key)
            else:
                self._taken.update(dict.fromkeys(events, at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A message, and what tells whether others belong to it.

    Attributes:
        album: the album's id, None without one.
        text_units: UTF-16 units of a text of the sender's own; 0 for anything else.
    """

    update: Json
    message: InboundMessage
    album: str | None
    text_units: int

    @property
    def may_go_on(self) -> bool:
        """Another part may follow."""
        return self.album is not None or self.text_units > _LEAST_UNITS


def part_of(update: Json, message: InboundMessage) -> Part:
    """What an update brings; `message` is what was read from it."""
    sent = update.get("message") or {}
    text = sent.get("text")
    is_own = isinstance(text, str) and message.is_trusted_text
    album = sent.get("media_group_id")
    return Part(
        update=update,
        message=message,
        album=album if isinstance(album, str) else None,
        text_units=_units(str(text)) if is_own else 0,
    )


def grouped(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of each message, in the order of the first of each; what others wrote between them is no hindrance."""
    groups: list[list[Part]] = []
    latest: dict[str, list[Part]] = {}
    for part in parts:
        group = latest.get(part.message.sender.user)
        if group is None or not _continues(part, group[-1]):
            group = latest[part.message.sender.user] = []
            groups.append(group)
        group.append(part)
    return groups


def may_go_on(parts: Sequence[Part]) -> bool:
    """Somebody who wrote one of them may not be done."""
    latest = {part.message.sender.user: part for part in parts}
    return any(part.may_go_on for part in latest.values())


def joined(group: Sequence[Part]) -> InboundMessage:
    """One message with all that its parts hold. Its ids are those of the first."""
    first = group[0].message
    if len(group) == 1:
        return first
    messages = [part.message for part in group]
    commands = [message.command for message in messages if message.command is not None]
    return replace(
        first,
        text=_joined_text(group),
        attachments=tuple(dict.fromkeys(file for message in messages for file in message.attachments)),
        mentions_bot=any(message.mentions_bot for message in messages),
        reply_to=next((message.reply_to for message in messages if message.reply_to is not None), None),
        command=None if not commands else _joined_command(group, commands[0]),
        is_trusted_text=all(message.is_trusted_text for message in messages),
        quotes=tuple(dict.fromkeys(quote for message in messages for quote in message.quotes)),
    )


def _continues(part: Part, before: Part) -> bool:
    if part.message.conversation != before.message.conversation:
        return False
    if part.album is not None or before.album is not None:
        return part.album == before.album
    is_soon = abs(part.message.sent_at - before.message.sent_at) <= _MOMENT
    is_text = part.text_units > 0 and not part.message.attachments and not part.message.text.startswith("/")
    return before.text_units > _LEAST_UNITS and is_text and is_soon


def _joined_text(group: Sequence[Part]) -> str:
    """A part that is full was cut in the middle of a word; the white space at any other cut is lost on the way."""
    text = group[0].message.text
    for before, part in pairwise(group):
        if part.message.text:
            separator = "" if before.text_units >= MAX_UNITS or not text else "\n"
            text += separator + part.message.text
    return text


def _joined_command(group: Sequence[Part], command: str) -> str:
    """The arguments of a command may have been cut too."""
    if group[0].album is not None or group[0].message.command is None:
        return command
    return command + _joined_text(group).removeprefix(group[0].message.text)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
