"""Joins the parts of what a person sent as one thing, and hands over the whole.

A part is *stored* in the channel's durable notes before it is acknowledged, so the acknowledgement need not wait for
the other parts. It must not wait: Telegram calls a webhook with the next update of a chat only after it got 200 for the
one before (`WebhookActor.cpp`, https://github.com/tdlib/telegram-bot-api), and an offset that is held back delays every
other chat. What happens after a crash at each step:

1. before a part is stored: Telegram sends it again;
2. while parts are stored: the next start reads them, and waits for the others again;
3. once the queue is *sealed*: the next start hands over exactly these parts again. They make the same messages with the
   same ids, which the gateway takes once; no part is added any more;
4. after the hand-over: the ids of the updates are stored for longer than Telegram repeats them.

Which messages belong together depends on their content only, never on when they reached us, so that the same parts
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

from adapters.telegram.convert import Json, chat_id_of
from gateway.errors import AdapterNotReady
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

PART_WAIT_S = 1.5
"""How long to wait for another part."""
MAX_WAIT_S = 10.0
"""After the first part, even if more come."""
MAX_PARTS = 100
MAX_UNITS = 4096
_MIN_CUT_UNITS = MAX_UNITS // 2
_CUT_INTERVAL = timedelta(seconds=3)
"""Between two parts of a text, by Telegram's clock, which counts whole seconds."""

_STORED_PREFIX = "parts/"
_DONE_PREFIX = "done/"
_DONE_AGE = timedelta(hours=25)  # Telegram keeps an update for 24: https://core.telegram.org/bots/api#getting-updates

Read = Callable[[Json], Awaitable[InboundMessage | None]]


@dataclass(slots=True, eq=False)
class _Queue:
    """The waiting parts of one chat, in order, and what others write there meanwhile, so that the order stays.

    Attributes:
        is_sealed: being handed over; no part is added.
        is_done: was handed over.
    """

    chat_id: int
    started_at_s: float
    parts: list[Part] = field(default_factory=list)
    due_at_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.Task[None] | None = None
    is_sealed: bool = False
    is_done: bool = False


class Inbound:
    """Between the updates and `accept`, for one run of the channel."""

    def __init__(self, notes: AdapterNotes, read: Read, accept: Accept, *, part_wait_s: float = PART_WAIT_S) -> None:
        self._notes = notes
        self._read = read
        self._accept = accept
        self._part_wait_s = part_wait_s
        self._queues: dict[int, _Queue] = {}
        self._done: dict[str, datetime] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = asyncio.get_running_loop().time

    async def run(self, receiving: Coroutine[Any, Any, None]) -> None:
        """Go on with the stored parts of an earlier run, and then receive until cancelled.

        Raises:
            AdapterNotReady: the gateway did not take stored parts; they stay stored.
        """
        work = asyncio.ensure_future(self._run(receiving))
        try:
            await asyncio.wait({work, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            work.result()
        finally:
            tasks = [work, *(queue.timer for queue in self._queues.values() if queue.timer is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            receiving.close()  # if it was not started
            if not self._failed.cancel() and not self._failed.cancelled():
                self._failed.exception()  # raised above, or less important than the error that was

    async def handle(self, update: Json, message: InboundMessage) -> None:
        """Returns when the message is accepted, or stored until its other parts come.

        Raises whatever `accept` and the notes raise; the update must then come again.
        """
        chat_id = chat_id_of(update)
        if message.event_id in self._done:
            return
        part = part_of(update, message)
        if chat_id is None or (chat_id not in self._queues and not part.may_continue):
            await self._accept(message)
            return
        queue = self._queues.setdefault(chat_id, _Queue(chat_id=chat_id, started_at_s=self._clock()))
        async with queue.lock:
            if queue.is_sealed and not queue.is_done:
                await self._hand_over(queue)  # the task that began it was cancelled
            if not queue.is_done:
                await self._add(queue, part)
                return
        await self.handle(update, message)

    # ---- inside -----------------------------------------------------------------------------------------------------

    async def _run(self, receiving: Coroutine[Any, Any, None]) -> None:
        await self._load_done()
        for key in await self._notes.keys(_STORED_PREFIX):
            await self._resume(int(key.removeprefix(_STORED_PREFIX)), json.loads(await self._notes.get(key) or "{}"))
        await receiving

    async def _resume(self, chat_id: int, stored: Json) -> None:
        queue = self._queues[chat_id] = _Queue(chat_id=chat_id, started_at_s=self._clock())
        for update in stored.get("updates", ()):
            message = await self._read(update)
            if message is not None:
                queue.parts.append(part_of(update, message))
        async with queue.lock:
            await self._wait_or_hand_over(queue, is_sealed=bool(stored.get("is_sealed")))

    async def _add(self, queue: _Queue, part: Part) -> None:
        if all(part.message.event_id != other.message.event_id for other in queue.parts):
            await self._store(queue.chat_id, [*queue.parts, part], is_sealed=False)
            queue.parts.append(part)
        await self._wait_or_hand_over(queue, is_sealed=len(queue.parts) >= MAX_PARTS)

    async def _wait_or_hand_over(self, queue: _Queue, *, is_sealed: bool) -> None:
        if is_sealed or not may_continue(queue.parts):
            await self._hand_over(queue)
            if queue.timer is not None:
                queue.timer.cancel()
            return
        if queue.parts[-1].may_continue or not queue.due_at_s:
            queue.due_at_s = min(self._clock() + self._part_wait_s, queue.started_at_s + MAX_WAIT_S)
        if queue.timer is None:
            queue.timer = asyncio.create_task(self._wait(queue), name="telegram parts")

    async def _wait(self, queue: _Queue) -> None:
        while (left_s := queue.due_at_s - self._clock()) > 0:  # noqa: ASYNC110 (it changes while we wait)
            await asyncio.sleep(left_s)
        async with queue.lock:
            if queue.is_done:
                return
            try:
                await self._hand_over(queue)
            except Exception as error:  # noqa: BLE001 (no one awaits this task, so the error must be passed on)
                self._fail(error)

    async def _hand_over(self, queue: _Queue) -> None:
        try:
            queue.is_sealed = True
            await self._store(queue.chat_id, queue.parts, is_sealed=True)
            for group in group_parts(queue.parts):
                await self._accept(join_parts(group))
            await self._store_done(queue)
            await self._notes.remove(f"{_STORED_PREFIX}{queue.chat_id}")
        except Exception as error:
            self._fail(error)
            raise
        queue.is_done = True
        del self._queues[queue.chat_id]

    def _fail(self, error: Exception) -> None:
        """End the run: a sealed queue must be handed over before anything else of its chat."""
        if not self._failed.done():
            self._failed.set_exception(AdapterNotReady(f"a message was not taken, and will be tried again: {error}"))

    async def _store(self, chat_id: int, parts: list[Part], *, is_sealed: bool) -> None:
        stored = {"is_sealed": is_sealed, "updates": [part.update for part in parts]}
        await self._notes.put(f"{_STORED_PREFIX}{chat_id}", json.dumps(stored))

    # ---- what was handed over ---------------------------------------------------------------------------------------

    async def _store_done(self, queue: _Queue) -> None:
        events = [part.message.event_id for part in queue.parts]
        if not events:
            return
        now = datetime.now(UTC)
        for event in events:  # each of its own: another worker looks one of them up
            await self._notes.put(f"{_DONE_PREFIX}{event}", json.dumps([now.isoformat(), [event]]))
        self._done.update(dict.fromkeys(events, now))
        for event in [event for event, at in self._done.items() if abs(now - at) > _DONE_AGE]:
            del self._done[event]
            await self._notes.remove(f"{_DONE_PREFIX}{event}")

    async def _load_done(self) -> None:
        for key in await self._notes.keys(_DONE_PREFIX):
            stored_at, events = json.loads(await self._notes.get(key) or '["1970-01-01T00:00:00+00:00", []]')
            at = datetime.fromisoformat(stored_at)
            if abs(datetime.now(UTC) - at) > _DONE_AGE:
                await self._notes.remove(key)
            else:
                self._done.update(dict.fromkeys(events, at))


async def may_be_part(notes: AdapterNotes, update: Json, message: InboundMessage) -> bool:
    """Whether only the worker that has the channel can accept a message: it is a part, or parts of its chat wait."""
    if part_of(update, message).may_continue:
        return True
    return await notes.get(f"{_STORED_PREFIX}{chat_id_of(update)}") is not None


async def was_part(notes: AdapterNotes, message: InboundMessage) -> bool:
    """Whether a message was accepted as a part of another."""
    return await notes.get(f"{_DONE_PREFIX}{message.event_id}") is not None


# ---- which parts belong together: pure functions -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A message, and what says whether others belong to it.

    Attributes:
        album: the album's id; None without one.
        text_units: UTF-16 units of a text of the sender's own; 0 for anything else.
    """

    update: Json
    message: InboundMessage
    album: str | None
    text_units: int

    @property
    def may_continue(self) -> bool:
        """Another part may follow."""
        return self.album is not None or self.text_units > _MIN_CUT_UNITS


def part_of(update: Json, message: InboundMessage) -> Part:
    """The part in an update; `message` is what was read from it."""
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


def group_parts(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of each message, by their first part; messages of others may stand between them."""
    groups: list[list[Part]] = []
    latest: dict[str, list[Part]] = {}
    for part in parts:
        group = latest.get(part.message.sender.user)
        if group is None or not _continues(part, group[-1]):
            group = latest[part.message.sender.user] = []
            groups.append(group)
        group.append(part)
    return groups


def may_continue(parts: Sequence[Part]) -> bool:
    """Another part may follow from one of the senders."""
    latest = {part.message.sender.user: part for part in parts}
    return any(part.may_continue for part in latest.values())


def join_parts(group: Sequence[Part]) -> InboundMessage:
    """One message with the content of all parts, and the ids of the first."""
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
    is_soon = abs(part.message.sent_at - before.message.sent_at) <= _CUT_INTERVAL
    is_text = part.text_units > 0 and not part.message.attachments and not part.message.text.startswith("/")
    return before.text_units > _MIN_CUT_UNITS and is_text and is_soon


def _joined_text(group: Sequence[Part]) -> str:
    """A part of full length was cut within a word; at any other cut the app has dropped white space."""
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
