"""Retention: what is too old is forgotten, everything else is untouched, and nobody waits for it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from gateway.app.gateway import Gateway
from gateway.config import RetentionConfig
from gateway.files.home import DATABASE_NAME, LOG_NAME
from gateway.memory import journal
from gateway.messages import ConversationRef, QuotedText
from gateway.ops.privacy.retention import Retention
from gateway.store import retention
from gateway.store.clock import wall_ms
from tests.gateway.privacy.conftest import quiet, say
from tests.gateway.way.conftest import House
from tests.gateway.way.test_clock import HOURLY, NOON, Wall, plan
from tests.scripted_model import ScriptedModel, call

DAY_MS = 86_400_000
NEVER = dict.fromkeys(RetentionConfig.model_fields)


def only(**days: float) -> RetentionConfig:
    """Everything else is kept for ever."""
    return RetentionConfig.model_validate({**NEVER, **days})


async def forget(
    gateway: Gateway, config: RetentionConfig, *, in_days: float, is_dry: bool = False
) -> Mapping[str, int]:
    """Run it as if so many days had passed; what went, by kind."""
    now_ms = wall_ms() + round(in_days * DAY_MS)
    done = await Retention(gateway.home, gateway.store, config, now_ms=lambda: now_ms).run(is_dry=is_dry)
    return {each.kind: each.amount for each in done if each.amount}


async def execute(gateway: Gateway, sql: str) -> None:
    """Change rows behind the gateway's back."""

    def work(connection: sqlite3.Connection) -> None:
        connection.execute(sql)

    await gateway.store.engine.write(work)


async def count(gateway: Gateway, table: str) -> int:
    sql = f"SELECT count(*) FROM {table}"  # noqa: S608 (names of ours)
    return await gateway.store.engine.read(lambda connection: int(connection.execute(sql).fetchone()[0]))


async def test_texts_in_the_queues_go_and_their_rows_stay(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no event comes in twice, sessions keep what was said, and the log of the conversation skips what is empty."""
    monkeypatch.setattr(retention, "LOOKED_AT", 3)
    async with house.gateway() as (gateway, channel):
        first = channel.message("A kanarie sings", conversation="c1", user="1")
        await channel.deliver(first)
        await channel.answers_to(first)
        for number in range(9):
            await say(channel, f"kanarie {number}", "ada")
        await quiet(gateway)
        assert await forget(gateway, only(messages_days=90), in_days=89) == {}
        assert await forget(gateway, only(messages_days=90), in_days=91, is_dry=True) == {"messages": 20}
        assert await forget(gateway, only(messages_days=90), in_days=91) == {"messages": 20}
        assert await forget(gateway, only(messages_days=90), in_days=91) == {}
        for table in ("inbox", "outbox"):
            sql = f"SELECT payload FROM {table}"  # noqa: S608 (names of ours)
            payloads = await gateway.store.engine.read(lambda connection, sql=sql: connection.execute(sql).fetchall())
            assert len(payloads) == 10
            assert not any("kanarie" in row["payload"] for row in payloads)
        await channel.deliver(first)
        await quiet(gateway)
        assert await count(gateway, "inbox") == 10
        assert await gateway.store.log.read(ConversationRef(channel="fake", conversation="c1")) == []
        assert await say(channel, "And a new one", "ada")
        (entry, _) = await gateway.store.log.read(ConversationRef(channel="fake", conversation="chat-ada-88"))
        assert entry.text == "And a new one"
        assert len(await gateway.store.sessions.search_messages("kanarie sings", user_id=None)) >= 1
        assert not await gateway.store.problems()


async def test_what_waits_keeps_its_text_however_old(house: House) -> None:
    """An answer that could not be sent yet is still to be sent."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "Hello", "ada")
        await quiet(gateway)
        await execute(gateway, "UPDATE outbox SET state = 'ready', ended_at = NULL, due_at = 1 << 60")
        assert await forget(gateway, only(messages_days=1), in_days=50) == {"messages": 1}
        (row,) = await gateway.store.deliveries.rows("outbox")
        assert row.text


async def test_a_dead_letter_without_its_text_is_none_any_more(house: House) -> None:
    """It could not be answered, so it cannot be tried again either."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "Hello", "ada")
        await quiet(gateway)
        await execute(gateway, "UPDATE inbox SET state = 'dead', error = 'kanarie'")
        assert len(await gateway.store.deliveries.rows("inbox", chosen="dead")) == 1
        await forget(gateway, only(messages_days=90), in_days=91)
        assert await gateway.store.deliveries.rows("inbox", chosen="dead") == []


async def test_sessions_go_only_when_they_are_asked_to(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default none; else those in which nothing was said since, with their index; a new message begins anew."""
    monkeypatch.setattr(retention, "BATCH", 2)
    async with house.gateway() as (gateway, channel):
        for number in range(4):
            await say(channel, f"kanarie {number}", "ada")
        await quiet(gateway)
        assert "sessions" not in await forget(gateway, RetentionConfig(), in_days=10_000)
        assert await forget(gateway, only(sessions_days=30), in_days=29) == {}
        assert await forget(gateway, only(sessions_days=30), in_days=31) == {"sessions": 1}
        assert (await count(gateway, "sessions"), await count(gateway, "messages")) == (0, 0)
        assert await gateway.store.sessions.search_messages("kanarie", user_id=None) == []
        assert await say(channel, "Hello again", "ada")
        assert not await gateway.store.problems()


async def test_old_history_of_the_memory_goes_and_what_is_left_can_still_be_undone(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is untouched; the entries that are kept begin with a whole copy."""
    monkeypatch.setattr(journal, "_CHECKPOINT_EVERY", 16)
    async with house.gateway() as (gateway, channel):
        for number in range(40):
            await say(channel, f"Remember that door {number} is blue", "ada")
        await quiet(gateway)
        path = house.home / "personalities/assistant/MEMORY.md"
        before = path.read_bytes()
        entries = await count(gateway, "memory_journal")
        went = (await forget(gateway, only(memory_history_days=365), in_days=366)).get("memory_history", 0)
        assert went > 0
        assert went + await count(gateway, "memory_journal") == entries
        assert path.read_bytes() == before
        newest, *_ = await gateway.memory_provider.log()
        entry = await gateway.store.journal.entry(newest.id)
        assert entry is not None
        assert (
            await gateway.memory_provider._history.text_before(entry)
            == before.removesuffix(b"\n\ndoor 39 is blue\n") + b"\n"
        )
        await say(channel, "Remember that the gate is green", "ada")
        await quiet(gateway)
        assert path.read_bytes() == before + b"\nthe gate is green\n"


async def test_proposals_go_once_they_are_decided_and_old(house: House) -> None:
    """One that waits stays, however old."""
    async with house.gateway() as (gateway, channel):
        for word in ("first", "second"):
            quote = QuotedText(origin="quoted mail", text="x")
            message = channel.message(f"Remember that my {word} kanarie is red", conversation=word, quotes=(quote,))
            await channel.deliver(message)
            assert "waits for your yes" in (await channel.answers_to(message))[0]
        assert "refused" in (await channel.ask("/memory refuse 1", conversation="first")).lower()
        await quiet(gateway)
        assert await forget(gateway, only(memory_history_days=365), in_days=364) == {}
        assert await forget(gateway, only(memory_history_days=365), in_days=366, is_dry=True) == {"memory_history": 1}
        assert await forget(gateway, only(memory_history_days=365), in_days=366) == {"memory_history": 1}
        assert [each.id for each in await gateway.store.proposals.proposals(state=None)] == [2]


async def test_calls_of_models_go_with_the_sums_of_their_days(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await say(channel, "Hello", "ada")
        await quiet(gateway)
        assert await forget(gateway, only(usage_days=400), in_days=399) == {}
        assert await forget(gateway, only(usage_days=400), in_days=402) == {"usage": 1}
        assert (await count(gateway, "usage"), await count(gateway, "usage_days")) == (0, 0)


async def test_questions_about_calls_go_once_they_are_decided_or_expired_and_old(house: House) -> None:
    """With the rows of the calls."""
    post = [call("post", '{"to": "ben"}', id="c1")]
    tools = {"packages": [{"package": "tests.tool_packages.counting", "file": str(house.home / "posted")}]}
    async with house.gateway(ScriptedModel(post, "It waits.", post, "It waits."), tools=tools) as (gateway, channel):
        await channel.ask("post it")
        await channel.ask("and again")
        assert "never" in await channel.ask("/no 1")
        await quiet(gateway)
        assert await forget(gateway, only(tools_days=30), in_days=29) == {}
        assert await forget(gateway, only(tools_days=30), in_days=30.5) == {"tools": 3}
        assert [one.id for one in await gateway.store.approvals.approvals(state=None)] == [2]
        assert await forget(gateway, only(tools_days=30), in_days=34) == {"tools": 1}


async def test_what_came_of_schedules_goes_when_it_is_old_and_schedules_when_nothing_of_them_is_left(
    house: House,
) -> None:
    async with house.gateway() as (gateway, channel):
        wall = Wall(gateway)
        once, hourly = await plan(gateway), await plan(gateway, HOURLY)
        await wall.comes(NOON + timedelta(hours=1))
        assert len(channel.sent) == 2
        for schedule in (once, hourly):
            grant = f"""
                INSERT INTO grants (user_id, personality_id, tool, pin, destination, scope, session_id, granted_at,
                                    granted_by, schedule_id)
                VALUES ('u', 'assistant', 'post', 'p', '', 'always', '', 1, 'u', {schedule.id})
            """  # noqa: S608 (a number)
            await execute(gateway, grant)
        for table, column in (("occurrences", "begun_at"), ("schedules", "last_at")):
            await execute(gateway, f"UPDATE {table} SET {column} = {wall_ms()}")  # noqa: S608 (names of ours)
        assert await forget(gateway, only(tools_days=30), in_days=29) == {}
        assert await forget(gateway, only(tools_days=30), in_days=31) == {"tools": 3}
        assert await count(gateway, "occurrences") == 0
        store = gateway.store.schedules
        assert await store.schedule(once.id) is None
        assert await store.schedule(hourly.id) is not None
        assert [one.schedule_id for one in await gateway.store.approvals.grants()] == [hourly.id]


async def test_old_files_go(house: House) -> None:
    """Exports that were fetched, copies from before an upgrade, and the front of the log; young ones stay."""
    old_s = (datetime.now(UTC) - timedelta(days=31)).timestamp()
    async with house.gateway(retention=NEVER) as (gateway, _):  # which forgets by age at its own start
        exports = house.home / "exports" / "u_1"
        exports.mkdir(parents=True)
        files = [exports / "old.zip", exports / "new.zip"]
        files += [house.home / f"{DATABASE_NAME}.before-3", house.home / f"{DATABASE_NAME}.before-4"]
        for path in files:
            path.write_bytes(b"x")
        for path in files[::2]:
            os.utime(path, (old_s, old_s))
        log = house.home / LOG_NAME
        now = datetime.now(UTC).isoformat()
        log.write_text(f'{{"timestamp": "2020-01-01T00:00:00Z"}}\na trace of it\n{{"timestamp": "{now}"}}\n')
        config = only(exports_days=7, copies_days=30, log_days=30)
        assert await forget(gateway, config, in_days=0, is_dry=True) == {"exports": 1, "copies": 1, "log": 2}
        assert all(path.exists() for path in files)
        assert await forget(gateway, config, in_days=0) == {"exports": 1, "copies": 1, "log": 2}
        assert [path.exists() for path in files] == [False, True, False, True]
        assert log.read_text() == f'{{"timestamp": "{now}"}}\n'


async def test_the_gateway_forgets_at_its_start(house: House) -> None:
    """Without being asked."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "A kanarie", "ada")
        await quiet(gateway)
        await execute(gateway, "UPDATE inbox SET ended_at = 1")
        await execute(gateway, "UPDATE outbox SET ended_at = 1")
    async with house.gateway() as (gateway, _):
        async with asyncio.timeout(60):
            while await _has_text(gateway):
                await asyncio.sleep(0.01)


async def _has_text(gateway: Gateway) -> bool:
    sql = "SELECT 1 FROM inbox WHERE payload LIKE '%kanarie%' UNION SELECT 1 FROM outbox WHERE payload LIKE '%kanarie%'"
    return await gateway.store.engine.read(lambda connection: connection.execute(sql).fetchone() is not None)
