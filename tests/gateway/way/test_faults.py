"""What goes wrong on a real machine: a full disk, a held lock, a stop in the middle. Nothing accepted is lost."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import FileError, StoreUnavailable
from gateway.memory import sync as memory_sync_module
from gateway.pipeline import attempts as attempts_module
from gateway.pipeline.commit import TurnCommit
from gateway.protocols import MemoryScope, MemoryUpdate, SyncReport
from gateway.runtime.logs import configure_logs
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call

REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "AFTER_FAULT_S", 0.01)
    monkeypatch.setattr(memory_sync_module, "RETRY_S", 0.01)


async def fill_disk(gateway: Gateway) -> None:
    """Let the database grow no more, as on a full disk."""
    await gateway.store.engine.write(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone())


async def make_room(gateway: Gateway) -> None:
    await gateway.store.engine.write(
        lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchone()
    )


async def test_on_a_full_disk_nothing_is_acknowledged_and_afterwards_everything_works(house: House) -> None:
    """Row 8."""
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        await fill_disk(gateway)
        message = channel.message("x" * 50_000)
        with pytest.raises(StoreUnavailable, match="Nothing was committed"):
            await channel.deliver(message)
        await make_room(gateway)
        await channel.deliver(message)
        assert await channel.answers_to(message) == ["hello"]


async def test_a_message_whose_adapter_is_cancelled_and_which_cannot_be_kept_is_a_line_in_the_log_and_no_fault(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    configure_logs("info", "json", stream=sys.stderr)
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        is_adding, may_end = asyncio.Event(), asyncio.Event()

        async def failing(*_: object, **_keywords: object) -> int | None:
            is_adding.set()
            await may_end.wait()
            raise StoreUnavailable("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(gateway.store.inbox, "add", failing)
            message = channel.message("hi")
            delivering = asyncio.create_task(channel.deliver(message))
            await is_adding.wait()
            delivering.cancel()
            await asyncio.wait([delivering])
            may_end.set()
            while "not_accepted" not in (said := capsys.readouterr().err):
                await asyncio.sleep(0)
        assert "the disk is full" in said
        await channel.deliver(message)  # the platform was told nothing, and delivers again
        assert await channel.answers_to(message) == ["hello"]
    gc.collect()
    assert faults == []


async def test_a_disk_that_fills_during_a_turn_delays_the_answer_and_does_not_lose_it(house: House) -> None:
    hang = Hang()
    long = "word " * 20_000
    async with house.gateway(ScriptedModel([hang, long], [long], [long])) as (gateway, channel):
        message = await channel.say("write much")
        await asyncio.wait_for(hang.started.wait(), 60)
        await fill_disk(gateway)
        hang.released.set()
        async with asyncio.timeout(60):
            while not (await gateway.store.deliveries.rows("inbox"))[0].error:
                await asyncio.sleep(0)
        await make_room(gateway)
        assert await channel.answers_to(message) == [long.strip()]


async def test_a_directory_that_finds_no_room_delays_the_answer_and_buries_no_message(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first code makes the directory of secrets. The log of the database may still have room by then."""
    mkdir, refused = os.mkdir, itertools.count(1)

    def full(path: Any, *rest: Any) -> None:
        if os.fspath(path).endswith("secrets") and next(refused) <= 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        mkdir(path, *rest)

    monkeypatch.setattr(os, "mkdir", full)
    monkeypatch.setattr(attempts_module, "LONGEST_AFTER_FAULT_S", 0.01)
    async with house.gateway(ScriptedModel(), fake={"access": "pairing"}) as (gateway, channel):
        message = await channel.say("hello")
        (answer,) = await channel.answers_to(message)
        assert re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", answer)
        assert next(refused) > 20
        assert not await gateway.store.deliveries.rows("inbox", chosen="dead")


async def test_descriptors_that_are_used_up_delay_the_answer_and_bury_no_message(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is opened to be listed, as that of the identity map before its first write."""
    scandir, refused = os.scandir, itertools.count(1)

    def used_up(path: Any = ".") -> Any:
        if Path(os.fspath(path)).name == "users" and next(refused) <= 20:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return scandir(path)

    monkeypatch.setattr(attempts_module, "LONGEST_AFTER_FAULT_S", 0.01)
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        monkeypatch.setattr(os, "scandir", used_up)
        message = await channel.say("hi")
        assert await channel.answers_to(message) == ["hello"]
        assert next(refused) > 20
        assert not await gateway.store.deliveries.rows("inbox", chosen="dead")


async def test_a_file_that_is_written_anew_for_minutes_is_no_reason_to_be_restarted(house: House) -> None:
    """It is, when a person was erased; a process that is killed over it begins with it again."""
    async with house.gateway() as (gateway, _):
        may_end = threading.Event()
        rewriting = asyncio.create_task(gateway.store.engine.outside(lambda _: may_end.wait(120)))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await gateway.prove_alive()
        may_end.set()
        assert await rewriting
        holding = asyncio.create_task(gateway.store.engine.write(lambda _: None))
        await asyncio.sleep(0)
        await gateway.prove_alive()
        assert holding.done(), "otherwise it waits for the writer"


async def test_a_memory_that_cannot_be_written_now_is_written_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel([REMEMBER], "noted", "tea")) as (gateway, channel):
        failures = [FileError("the lock is held")] * 3
        sync = gateway.memory_provider.sync

        async def failing(scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
            if failures:
                raise failures.pop()
            return await sync(scope, updates)

        monkeypatch.setattr(gateway.memory_provider, "sync", failing)
        await channel.ask("I like tea")
        user = (await gateway.identities.users())[0].id
        file = house.home / "users" / user / "USER.md"
        async with asyncio.timeout(60):
            while not file.exists():
                await asyncio.sleep(0)
        assert file.read_text() == "Likes tea.\n"
        assert not failures


async def test_memory_that_was_committed_and_not_written_is_written_at_the_next_start_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.gateway(ScriptedModel([REMEMBER], "noted")) as (gateway, channel):

        async def failing(_scope: MemoryScope, _updates: Sequence[MemoryUpdate]) -> SyncReport:
            raise FileError("never")

        monkeypatch.setattr(gateway.memory_provider, "sync", failing)
        await channel.ask("I like tea")
        user = (await gateway.identities.users())[0].id
    file = house.home / "users" / user / "USER.md"
    assert not file.exists()
    for _ in range(2):
        async with house.gateway(ScriptedModel("ok")) as (_, channel):
            await channel.connected()
            assert file.read_text() == "Likes tea.\n"


async def test_a_turn_that_does_not_end_in_time_at_the_stop_is_given_back_and_answered_after_the_restart(
    house: House,
) -> None:
    """Row 9."""
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "never"]), shutdown_s=0) as (_, channel):
        message = await channel.say("hello")
        await asyncio.wait_for(hang.started.wait(), 60)
    async with house.gateway(ScriptedModel("here")) as (gateway, channel):
        assert await channel.answers_to(message) == ["here"]
        await gateway.outbox.drain(10)
        [row] = await gateway.store.deliveries.rows("inbox", chosen="all")
        assert (row.state, row.attempts) == ("done", 1)  # the stop did not count as a failure


async def test_a_turn_that_ends_in_time_at_the_stop_is_answered_before_the_end(house: House) -> None:
    hang = Hang()
    async with house.gateway(ScriptedModel([hang, "just in time"])) as (_, channel):
        await channel.say("hello")
        await asyncio.wait_for(hang.started.wait(), 60)
        asyncio.get_running_loop().call_soon(hang.released.set)
    assert [sent.text for sent in channel.sent] == ["just in time"]


async def test_a_tool_that_acts_is_not_called_again_after_its_turn_was_given_back(house: House) -> None:
    """The steps of a turn are kept: after a restart it goes on behind the tool calls that were made."""
    hang = Hang()
    async with house.gateway(ScriptedModel([REMEMBER], [hang]), shutdown_s=0) as (_, channel):
        message = await channel.say("I like tea")
        await asyncio.wait_for(hang.started.wait(), 60)
    model = ScriptedModel("noted")
    async with house.gateway(model) as (gateway, channel):
        assert await channel.answers_to(message) == ["noted"]
        assert [one.role for one in model.requests[0].messages] == ["user", "assistant", "tool"]
        await settled(gateway)
        user = (await gateway.identities.users())[0].id
        assert (house.home / "users" / user / "USER.md").read_text() == "Likes tea.\n"


async def test_a_broken_identity_map_delays_messages_and_loses_none(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (_, channel):
        await channel.connected()
        path = house.home / "users" / "identity-map.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"version": 99}')
        message = await channel.say("hi")
        path.write_text("{}")
        assert await channel.answers_to(message) == ["hello"]


async def test_a_commit_that_does_not_fit_is_tried_again_at_growing_distances_until_one_fits(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim fits on a nearly full disk and the answer does not; the waits are reset by the first success."""
    waits: list[int] = []

    def delay_s(attempt: int, **_: float) -> float:
        waits.append(attempt)
        return 0.001

    monkeypatch.setattr(attempts_module, "delay_s", delay_s)
    model = ScriptedModel("one", "one", "one", "one", "two", "two")
    async with house.gateway(model) as (gateway, channel):
        commit = gateway.store.turns.commit_turn
        failures = [StoreUnavailable("the disk is full")] * 3

        async def failing(turn: TurnCommit) -> None:
            if failures:
                raise failures.pop()
            return await commit(turn)

        monkeypatch.setattr(gateway.store.turns, "commit_turn", failing)
        assert await channel.ask("first") == "one"
        failures.append(StoreUnavailable("the disk is full"))
        assert await channel.ask("second") == "two"
    assert waits == [1, 2, 3, 1]
    assert len(model.requests) == 6
