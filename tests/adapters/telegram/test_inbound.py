"""Albums and cut texts on their way in: one message each, whatever happens on the line and to the process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import pytest

from adapters.telegram.adapter import TelegramAdapter, TelegramWebhookAdapter
from adapters.telegram.webhook import SECRET_HEADER
from gateway.errors import AdapterNotReady
from gateway.messages import InboundMessage
from gateway.testing.adapters import Inbox, soon
from tests.adapters.telegram.fake_telegram import DATE, GROUP, PERSON, FakeTelegram, Json
from tests.adapters.telegram.harness import WEBHOOK_URL, adapter_of
from tests.conformance.notes import FakeNotes

OTHER = {"id": 43, "type": "private", "first_name": "Bob"}
NEVER_S = 1000.0
PASTE = ["one " + "x" * 4092, "y" * 4096, "end"]


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


def picture(telegram: FakeTelegram, number: int, album: str = "a", **fields: object) -> Json:
    size = {"file_id": f"f{number}", "file_unique_id": f"u{number}", "width": 9, "height": 9, "file_size": 1}
    return telegram.update(telegram.message(photo=[size], media_group_id=album, **fields))


def album(telegram: FakeTelegram) -> list[Json]:
    return [picture(telegram, 1, caption="look"), picture(telegram, 2), picture(telegram, 3)]


def paste(telegram: FakeTelegram) -> list[Json]:
    return [telegram.update(telegram.message(text)) for text in PASTE]


@contextlib.asynccontextmanager
async def receiving(
    adapter: TelegramAdapter, accept: Callable[[InboundMessage], Awaitable[None]]
) -> AsyncIterator[asyncio.Task[None]]:
    await soon(adapter.connect())
    task = asyncio.create_task(adapter.run(accept))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await soon(adapter.close())


# ---- polling --------------------------------------------------------------------------------------------------------


async def test_an_album_is_one_message_with_all_its_pictures(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    async with receiving(adapter_of(telegram, part_wait_s=0.3), inbox.accept):
        for update in album(telegram):
            await telegram.give(update)
        (message,) = await inbox.has(1)
        await telegram.until(lambda: len(telegram.confirmed) == 3)
    assert message.text == "look"
    assert [file.ref for file in message.attachments] == ["f1", "f2", "f3"]
    assert len(inbox.messages) == 1


async def test_a_pasted_text_is_one_message_as_soon_as_its_last_part_is_there(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    async with receiving(adapter_of(telegram, part_wait_s=NEVER_S), inbox.accept):
        for update in paste(telegram):
            await telegram.give(update)
        (message,) = await inbox.has(1)
    assert message.text == "".join(PASTE)


async def test_a_long_text_without_a_second_part_comes_after_the_quiet_time(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    async with receiving(adapter_of(telegram, part_wait_s=0.05), inbox.accept):
        await telegram.say("x" * 3000)
        assert len((await inbox.has(1))[0].text) == 3000


async def test_other_chats_are_not_held_up_and_what_follows_in_the_chat_keeps_its_place(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    async with receiving(adapter_of(telegram, part_wait_s=NEVER_S), inbox.accept):
        for update in album(telegram):
            await telegram.give(update)
        await telegram.say("quick", chat=OTHER)
        assert [message.text for message in await inbox.has(1)] == ["quick"]
        await telegram.say("what is that?")  # which ends the album, without a wait
        assert [message.text for message in await inbox.has(3)] == ["quick", "look", "what is that?"]


async def test_in_a_group_the_parts_find_each_other_past_what_others_write(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    bob = {**PERSON, "id": 43, "first_name": "Bob"}
    first, second = PASTE[1], PASTE[2]
    telegram.pending += [
        telegram.update(telegram.message(first, chat=GROUP)),
        telegram.update(telegram.message("in between", chat=GROUP, **{"from": bob})),
        telegram.update(telegram.message(second, chat=GROUP)),
    ]
    async with receiving(adapter_of(telegram, part_wait_s=NEVER_S), inbox.accept):
        assert [message.text for message in await inbox.has(2)] == [first + second, "in between"]


async def test_the_wait_is_bounded_whatever_comes(telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.telegram.inbound.MAX_PARTS", 5)
    inbox = Inbox()
    async with receiving(adapter_of(telegram, part_wait_s=NEVER_S), inbox.accept):
        for number in range(5):
            await telegram.give(picture(telegram, number))
        assert len((await inbox.has(1))[0].attachments) == 5


async def test_parts_from_a_downtime_are_joined_by_their_times_not_by_when_they_are_fetched(
    telegram: FakeTelegram,
) -> None:
    inbox = Inbox()
    telegram.pending += [
        telegram.update(telegram.message("x" * 4096)),
        telegram.update(telegram.message("an hour later", date=DATE + 3600)),
    ]
    async with receiving(adapter_of(telegram, part_wait_s=NEVER_S), inbox.accept):
        assert [message.text for message in await inbox.has(2)] == ["x" * 4096, "an hour later"]


async def test_a_full_disk_ends_the_run_and_the_next_one_hands_the_album_over(telegram: FakeTelegram) -> None:
    inbox, notes = Inbox(), FakeNotes()
    inbox.failure = RuntimeError("the disk is full")
    async with receiving(adapter_of(telegram, notes, part_wait_s=0.05), inbox.accept) as task:
        for update in album(telegram):
            await telegram.give(update)
        await asyncio.wait([task], timeout=60)
        assert isinstance(task.exception(), AdapterNotReady)
        assert "disk is full" in str(task.exception())
    inbox.failure = None
    async with receiving(adapter_of(telegram, notes, part_wait_s=0.05), inbox.accept):
        assert len((await inbox.has(1))[0].attachments) == 3
    assert [key for key in notes.texts if key.startswith("parts/")] == []


# ---- webhook --------------------------------------------------------------------------------------------------------


async def post(adapter: TelegramWebhookAdapter, telegram: FakeTelegram, update: Json) -> int:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(adapter.http_app), base_url=WEBHOOK_URL) as client:
        headers = {SECRET_HEADER: telegram.webhook["secret_token"]}
        return (await client.post("/updates", json=update, headers=headers)).status_code


async def ready(adapter: TelegramWebhookAdapter) -> None:
    while adapter._webhook._handle is None:
        await asyncio.sleep(0)


async def test_by_webhook_each_part_is_answered_at_once_as_the_next_one_comes_only_then(telegram: FakeTelegram) -> None:
    inbox = Inbox()
    adapter = adapter_of(telegram, webhook_url=WEBHOOK_URL, part_wait_s=0.3)
    assert isinstance(adapter, TelegramWebhookAdapter)
    async with receiving(adapter, inbox.accept):
        await ready(adapter)
        for update in album(telegram):
            assert await soon(post(adapter, telegram, update)) == 200
        assert len((await inbox.has(1))[0].attachments) == 3


async def test_by_webhook_a_part_that_cannot_be_kept_is_asked_for_again(telegram: FakeTelegram) -> None:
    inbox, notes = Inbox(), FlakyNotes()
    adapter = adapter_of(telegram, notes, webhook_url=WEBHOOK_URL, part_wait_s=0.3)
    assert isinstance(adapter, TelegramWebhookAdapter)
    first, second, third = album(telegram)
    async with receiving(adapter, inbox.accept):
        await ready(adapter)
        assert await post(adapter, telegram, first) == 200
        notes.is_broken = True
        assert await post(adapter, telegram, second) == 503
        notes.is_broken = False
        assert await post(adapter, telegram, second) == 200
        assert await post(adapter, telegram, third) == 200
        assert [file.ref for file in (await inbox.has(1))[0].attachments] == ["f1", "f2", "f3"]


class FlakyNotes(FakeNotes):
    is_broken = False

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        if self.is_broken:
            raise OSError("the disk is full")
        await super().put(key, text, is_durable=is_durable)


# ---- crashes --------------------------------------------------------------------------------------------------------


@dataclass
class Disk(FakeNotes):
    """What survives: the notes, and the gateway's inbox with its unique keys. The process stops at one step of it.

    Attributes:
        dies_at: the step, counted from 0; beyond the last one nothing stops.
        is_late: it stops after the step was done, not before.
    """

    dies_at: int = 10**9
    is_late: bool = False
    texts: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, InboundMessage] = field(default_factory=dict)
    steps: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def _step(self, work: Callable[[], object]) -> None:
        is_last = self.steps == self.dies_at
        self.steps += 1
        if self.dead.is_set() or (is_last and not self.is_late):
            await self._die()
        work()
        if is_last:
            await self._die()

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        del is_durable
        if key.startswith(("parts/", "done/")):
            await self._step(lambda: self.texts.update({key: text}))

    async def remove(self, key: str) -> None:
        await self._step(lambda: self.texts.pop(key, None))

    async def accept(self, message: InboundMessage) -> None:
        await self._step(lambda: self.accepted.setdefault(message.event_id, message))
        self.news.set()

    async def has(self, text: str) -> None:
        while all(message.text != text for message in self.accepted.values()):
            self.news.clear()
            await soon(self.news.wait())

    def revived(self) -> Disk:
        return Disk(texts=self.texts, accepted=self.accepted)


def steps(make: Callable[[FakeTelegram], list[Json]]) -> list[tuple[Callable[[FakeTelegram], list[Json]], int, bool]]:
    """Three parts are kept, the queue sealed, the message accepted, noted as taken, and the queue removed."""
    return [(make, at, is_late) for at, is_late in itertools.product(range(7), (False, True))]


CRASHES = pytest.mark.parametrize(("make", "at", "is_late"), [*steps(album), *steps(paste)])


def check(disk: Disk, make: Callable[[FakeTelegram], list[Json]]) -> None:
    """One message with all parts, and the one behind it."""
    whole = "look" if make is album else "".join(PASTE)
    assert [message.text for message in disk.accepted.values()] == [whole, "afterwards"]
    assert len(next(iter(disk.accepted.values())).attachments) == (3 if make is album else 0)


@CRASHES
async def test_polling_survives_a_kill_at_every_step(
    telegram: FakeTelegram, make: Callable[[FakeTelegram], list[Json]], at: int, *, is_late: bool
) -> None:
    disk = Disk(dies_at=at, is_late=is_late)
    updates = make(telegram)
    async with receiving(adapter_of(telegram, disk, part_wait_s=0.1), disk.accept):
        for update in updates:
            await telegram.give(update)
        await soon(disk.dead.wait())
    for update in updates:  # what was acknowledged is not sure to have been: it comes again besides
        if update in telegram.pending:
            continue
        telegram._given.discard(update["update_id"])
        telegram.pending.insert(updates.index(update), update)
    later = disk.revived()
    async with receiving(adapter_of(telegram, later, part_wait_s=0.1), later.accept):
        await telegram.until(lambda: not telegram.pending)
        await telegram.say("afterwards", date=DATE + 60)
        await later.has("afterwards")
    check(later, make)


@CRASHES
async def test_a_webhook_survives_a_kill_at_every_step(
    telegram: FakeTelegram, make: Callable[[FakeTelegram], list[Json]], at: int, *, is_late: bool
) -> None:
    disk = Disk(dies_at=at, is_late=is_late)
    updates = make(telegram)
    adapter = adapter_of(telegram, disk, webhook_url=WEBHOOK_URL, part_wait_s=0.1)
    assert isinstance(adapter, TelegramWebhookAdapter)
    async with receiving(adapter, disk.accept):
        await ready(adapter)
        heard = asyncio.create_task(call_until_dead(adapter, telegram, updates, disk))
        await soon(disk.dead.wait())
    unheard = await soon(heard)
    later = disk.revived()
    adapter = adapter_of(telegram, later, webhook_url=WEBHOOK_URL, part_wait_s=0.1)
    assert isinstance(adapter, TelegramWebhookAdapter)
    async with receiving(adapter, later.accept):
        await ready(adapter)
        behind = telegram.update(telegram.message("afterwards", date=DATE + 60))
        # The last one that was answered comes again besides: its 200 was lost.
        for update in [*updates[max(len(updates) - len(unheard) - 1, 0) :], behind]:
            assert await soon(post(adapter, telegram, update)) == 200
        await later.has("afterwards")
    check(later, make)


async def test_a_part_that_comes_after_the_kill_does_not_vanish_in_what_was_handed_over_before(
    telegram: FakeTelegram,
) -> None:
    disk = Disk(dies_at=5)  # accepted, and not noted as taken yet
    async with receiving(adapter_of(telegram, disk, part_wait_s=0.1), disk.accept):
        for update in album(telegram):
            await telegram.give(update)
        await soon(disk.dead.wait())
    assert len(disk.accepted) == 1
    await telegram.give(picture(telegram, 4, caption="late"))
    later = disk.revived()
    async with receiving(adapter_of(telegram, later, part_wait_s=0.1), later.accept):
        await later.has("late")
    files = [file.ref for message in later.accepted.values() for file in message.attachments]
    assert files == ["f1", "f2", "f3", "f4"]


async def call_until_dead(
    adapter: TelegramWebhookAdapter, telegram: FakeTelegram, updates: list[Json], disk: Disk
) -> list[Json]:
    """One after the other, as Telegram does; returns what it did not hear a 200 for."""
    for number, update in enumerate(updates):
        if await post(adapter, telegram, update) != 200:
            return updates[number:]
    await disk.dead.wait()
    return []


async def test_another_message_with_a_number_that_was_taken_is_taken_too(telegram: FakeTelegram) -> None:
    """After a quiet week Telegram counts from a random number on: api#update."""
    inbox = Inbox()
    parts = album(telegram)
    async with receiving(adapter_of(telegram, FakeNotes(), part_wait_s=0.05), inbox.accept):
        for update in parts:
            await telegram.give(update)
        await inbox.has(1)
        await telegram.until(lambda: len(telegram.confirmed) == 3)
        telegram._given.clear()
        await telegram.give(
            {**telegram.update(telegram.message("another", date=DATE + 60)), "update_id": parts[0]["update_id"]}
        )
        assert (await inbox.has(2))[1].text == "another"


async def test_numbers_of_joined_updates_are_forgotten_when_telegram_cannot_repeat_them(telegram: FakeTelegram) -> None:
    notes, inbox = FakeNotes(), Inbox()
    await notes.put("done/1", '["2020-01-01T00:00:00+00:00", [1, 2]]')
    async with receiving(adapter_of(telegram, notes, part_wait_s=0.05), inbox.accept):
        for update in album(telegram):
            await telegram.give(update)
        await inbox.has(1)
        await telegram.until(lambda: len(telegram.confirmed) == 3)
    assert "done/1" not in notes.texts
