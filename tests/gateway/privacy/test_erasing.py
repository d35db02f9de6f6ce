"""Erasing: nothing of the person is left in any byte, and everybody else's is as it was (row 32)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.app.gateway import Gateway
from gateway.files.home import DATABASE_NAME
from gateway.ops.privacy.erasing import Eraser
from gateway.ops.privacy.home import clean_restored, eraser_of, opened
from gateway.ops.privacy.tombstones import TOMBSTONES_NAME
from gateway.people.identity import IdentityMap
from gateway.sandbox.workspace import Workspaces
from gateway.store.gathering import KEY_COLUMNS, USER_COLUMNS
from gateway.store.stores import open_store
from gateway.store.usage import ERASED
from gateway.traces.erasure import traces_of
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from tests.fake_channel import FakeChannel
from tests.gateway.privacy.conftest import account, add_login, add_traces, canary, found_in, quiet, say, talk, user_ids
from tests.gateway.way.conftest import House
from tests.scripted_model import Hang, ScriptedModel

PEOPLE = ("ada", "ben", "cem")
STEPS = (
    "files", "memory", "traces", "chats", "copies", "database", "compact", "identities", "noted",
)  # fmt: skip


async def everybody_talks(gateway: Gateway, channel: FakeChannel, home: Path) -> dict[str, str]:
    """Their user ids, by person."""
    for person in PEOPLE:
        await talk(channel, person)
    await quiet(gateway)
    known = await user_ids(gateway)
    ids = {person: known[account(person)] for person in PEOPLE}
    sessions = {each.user_id: each.id for each in await gateway.store.sessions.list_sessions()}
    await add_traces(home, [(person, ids[person], sessions[ids[person]]) for person in PEOPLE])
    for person in PEOPLE:
        file = Workspaces(home).of_person(ids[person])
        file.write(f"{canary(person)}.txt", f"{canary(person)}file".encode(), is_own=True)
        await gateway.store.person_settings.put(ids[person], "test", f"{canary(person)}chosen")
        await add_login(gateway, ids[person], f"{canary(person)}login")
    return ids


async def until_done(gateway: Gateway) -> None:
    """Wait until the gateway has erased whom it is to erase."""
    async with asyncio.timeout(60):
        while await gateway.privacy.eraser().due():
            await asyncio.sleep(0.01)


def words_of(person: str, user_id: str) -> list[str]:
    """Everything by which somebody can be known."""
    return [canary(person), account(person), f"chat-{person}-88", user_id, f"Person acct-{person}"]


def rows_of_others(home: Path, gone: Sequence[str]) -> dict[str, Any]:
    """What the directory has of everybody else: rows, files, the map."""
    found: dict[str, Any] = {}
    with contextlib.closing(sqlite3.connect(home / DATABASE_NAME)) as connection:
        for table, columns in (
            ("inbox", "seq, turn_id, event_id, payload, state"),
            ("outbox", "seq, id, payload, state, receipt"),
            ("messages", "id, session_id, turn_id, role, user_id, text"),
            ("usage", "turn_id, user_id, input_tokens"),
            ("memory_journal", "turn_id, document, user_id, action, content, outcome, position"),
        ):
            rows = connection.execute(f"SELECT {columns} FROM {table}").fetchall()  # noqa: S608 (names of ours)
            found[table] = sorted(map(repr, rows))
    for path in home.glob("users/*/*.md"):
        found[str(path.relative_to(home))] = path.read_bytes()
    found["map"] = sorted(json.loads((home / "users/identity-map.json").read_bytes())["identities"])
    return {
        name: [row for row in rows if not any(word in row for word in gone)] if isinstance(rows, list) else rows
        for name, rows in found.items()
        if not any(word in name for word in gone)
    }


async def test_after_forget_me_no_byte_of_the_directory_tells_of_the_person(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        ids = await everybody_talks(gateway, channel, house.home)
        assert len({each.rpartition(":")[2] for each in found_in(house.home, words_of("ada", ids["ada"]))}) > 4
        asked = await say(channel, "/forget-me", "ada")
        code = re.search(r"/forget-me (\w+)", asked)
        assert code is not None
        assert "erasing everything" in await say(channel, f"/forget-me {code[1]}", "ada")
        await until_done(gateway)
        assert not found_in(house.home, words_of("ada", ids["ada"]))  # beside the running gateway, logs of SQLite too
    assert not found_in(house.home, words_of("ada", ids["ada"]))
    for person in ("ben", "cem"):
        assert found_in(house.home, [f"{canary(person)}file"])
        assert found_in(house.home, [f"{canary(person)}hidden"])
        assert found_in(house.home, [f"{canary(person)}three"])


async def chatter(gateway: Gateway, channel: FakeChannel, home: Path, seed: int) -> tuple[dict[str, str], str]:
    """Some people at random, in direct chats and in a group, some with traces; their ids, and who is to leave."""
    chosen = random.Random(seed)
    people = [f"p{number}" for number in range(chosen.randint(2, 5))]
    for person in people:
        await say(channel, f"Hello, {canary(person)}hello", person)
    for number in range(chosen.randint(10, 30)):
        person = chosen.choice(people)
        text = chosen.choice(
            ["Hello, {}", "Remember that my {} is red", "Remember that the {} is red", "/search {}", "/new"]
        )
        await say(channel, text.format(f"{canary(person)}{number}"), person, group=chosen.choice([None, None, "table"]))
    await quiet(gateway)
    known = await user_ids(gateway)
    ids = {person: known[account(person)] for person in people}
    sessions = {each.user_id: each.id for each in await gateway.store.sessions.list_sessions() if each.title}
    await add_traces(home, [(person, ids[person], sessions.get(ids[person], f"s_{person}")) for person in people])
    return ids, chosen.choice(people)


@pytest.mark.parametrize("seed", range(8))
async def test_what_others_have_is_as_it_was(house: House, seed: int) -> None:
    """Rows, files and traces of people who talked at random, before and after one of them is erased."""
    async with house.gateway() as (gateway, channel):
        ids, gone = await chatter(gateway, channel, house.home, seed)
        others = sorted(set(ids) - {gone})
        sender = account(gone)
        turns = {
            row["turn_id"]
            for row in await _rows(gateway, "SELECT turn_id, sender FROM inbox")
            if row["sender"] == sender
        }
        before = rows_of_others(house.home, [*words_of(gone, ids[gone]), *turns])
        shared = house.home / "personalities/assistant/MEMORY.md"
        lines = shared.read_text().split("\n") if shared.exists() else []
        before_traces = await traces_of_all(house.home, [ids[person] for person in others])
        await gateway.privacy.schedule_erasure(ids[gone])
        await until_done(gateway)
        after = rows_of_others(house.home, [])
        after["usage"] = [row for row in after["usage"] if ERASED not in row]
        assert after == before
        left = shared.read_text().split("\n") if shared.exists() else []
        assert [line for line in left if line] == [line for line in lines if line and canary(gone) not in line]
        assert await traces_of_all(house.home, [ids[person] for person in others]) == before_traces
        assert not found_in(house.home, words_of(gone, ids[gone]))
        for person in others:
            assert await gateway.store.sessions.search_messages(f"{canary(person)}hello", user_id=ids[person])
        assert not await gateway.store.problems()


async def traces_of_all(home: Path, user_ids: Sequence[str]) -> list[Trace]:
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        return await trace_store.database.read(lambda connection: traces_of(connection, set(user_ids)))


async def _rows(gateway: Gateway, sql: str) -> list[sqlite3.Row]:
    return await gateway.store.engine.read(lambda connection: connection.execute(sql).fetchall())


async def test_sums_stay_and_belong_to_nobody(house: House) -> None:
    """What was used is still counted after its person is erased."""
    async with house.gateway() as (gateway, channel):
        ids = await everybody_talks(gateway, channel, house.home)
        before = await _rows(gateway, "SELECT sum(calls), sum(input_tokens) FROM usage_days")
        await gateway.privacy.schedule_erasure(ids["ada"])
        await until_done(gateway)
        assert list(map(tuple, await _rows(gateway, "SELECT sum(calls), sum(input_tokens) FROM usage_days"))) == list(
            map(tuple, before)
        )
        assert not await _rows(gateway, f"SELECT 1 FROM usage WHERE user_id = '{ids['ada']}'")  # noqa: S608 (names of ours)


async def test_a_group_goes_on_without_the_words_of_who_left(house: House) -> None:
    """Also when it was they who had begun the session: it is another's then, without its title and summary."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "Hello all, kanarieada", "ada", group="table")
        await say(channel, "Hello from ben", "ben", group="table")
        (session,) = await gateway.store.sessions.list_sessions()
        known = await user_ids(gateway)
        assert session.user_id == known[account("ada")]
        await gateway.privacy.schedule_erasure(known[account("ada")])
        await until_done(gateway)
        (kept,) = await gateway.store.sessions.list_sessions()
        assert (kept.id, kept.user_id, kept.title, kept.summary) == (session.id, known[account("ben")], "", "")
        texts = [each.text for each in await gateway.store.sessions.messages(kept.id)]
        assert texts[0] == "Hello from ben"
        assert not any("kanarieada" in text for text in texts)
        assert await say(channel, "Still here", "ben", group="table")
        assert (await gateway.store.sessions.list_sessions())[0].id == session.id


async def test_lines_in_a_shared_memory_go_with_who_brought_them(house: House) -> None:
    """Others' lines stay, and their history, though what stood around them is not known any more."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "Remember that the kanarieada door is blue", "ada")
        await say(channel, "Remember that the gate is green", "ben")
        await quiet(gateway)
        shared = house.home / "personalities/assistant/MEMORY.md"
        assert shared.read_text() == "the kanarieada door is blue\n\nthe gate is green\n"
        ada = (await user_ids(gateway))[account("ada")]
        await gateway.privacy.schedule_erasure(ada)
        await until_done(gateway)
        assert shared.read_text() == "the gate is green\n"
        assert not found_in(house.home, ["kanarieada"])
        await say(channel, "Remember that the fence is red", "ben")
        await quiet(gateway)
        assert shared.read_text() == "the gate is green\n\nthe fence is red\n"
        entries = await gateway.memory_provider.log()
        assert {"the gate is green", "the fence is red"} <= {entry.content for entry in entries}
        newest = next(entry for entry in entries if entry.content == "the fence is red")
        assert "+the fence is red" in newest.diff


@pytest.mark.parametrize("step", STEPS)
async def test_an_erasure_that_breaks_off_is_finished_at_the_next_start(house: House, step: str) -> None:
    """A crash before each step: the next gateway ends it before anybody can write to it."""
    async with house.gateway() as (gateway, channel):
        ids = await everybody_talks(gateway, channel, house.home)
    seen: list[str] = []

    def crash(name: str) -> None:
        seen.append(name)
        if name == step:
            raise RuntimeError(name)

    async with opened(house.home) as store:
        eraser: Eraser = replace(eraser_of(house.home, store), on_step=crash)
        tombstone = await eraser.schedule(ids["ada"])
        with pytest.raises(RuntimeError, match=step):
            await eraser.erase(tombstone)
    assert seen == list(STEPS[: STEPS.index(step) + 1])
    async with house.gateway() as (gateway, _):
        assert not await gateway.privacy.eraser().due()
        assert account("ada") not in await user_ids(gateway)
    assert not found_in(house.home, words_of("ada", ids["ada"]))
    assert found_in(house.home, [f"{canary('ben')}four"])


async def test_a_running_turn_ends_before_its_person_is_erased(house: House) -> None:
    """What it was about to say, and to note, comes to nothing afterwards either."""
    hang = Hang()
    model = ScriptedModel("Hello.", ["I was about to say kanarieada", hang], "And hello to ben.", "A new face.")
    async with house.gateway(model) as (gateway, channel):
        await say(channel, "First", "ada")
        ada = (await user_ids(gateway))[account("ada")]
        message = channel.message("Tell me kanarieada", conversation="chat-ada-88", user=account("ada"))
        await channel.deliver(message)
        async with asyncio.timeout(60):
            await hang.started.wait()
        await gateway.privacy.schedule_erasure(ada)
        await until_done(gateway)
        await quiet(gateway)
        assert not found_in(house.home, ["kanarieada", ada])
        assert await say(channel, "Hello", "ben") == "And hello to ben."
        assert await say(channel, "Who am I?", "ada") == "A new face."
        assert (await user_ids(gateway))[account("ada")] != ada


async def test_an_event_of_who_was_erased_does_not_come_in_again(house: House) -> None:
    """A platform delivers it once more: it is neither kept nor answered, and new messages are."""
    async with house.gateway() as (gateway, channel):
        first = channel.message("Hello", conversation="chat-ada-88", user=account("ada"))
        await channel.deliver(first)
        await channel.answers_to(first)
        ada = (await user_ids(gateway))[account("ada")]
        await gateway.privacy.schedule_erasure(ada)
        await until_done(gateway)
        await channel.deliver(first)
        await quiet(gateway)
        assert not await _rows(gateway, "SELECT 1 FROM inbox")
        assert await say(channel, "Hello again", "ada")


async def test_notes_of_adapters_about_the_person_go(house: House) -> None:
    """Those with an id of theirs as a part of the key or as a value; notes about others stay."""
    async with house.gateway() as (gateway, channel):
        for person in ("ada", "ben"):
            await say(channel, "Hello", person)
        ada = (await user_ids(gateway))[account("ada")]

        def put(connection: sqlite3.Connection) -> None:
            for key, text in (
                ("place/chat-ada-88", "{}"), ("out:chat-ada-88", "{}"), ("kept/1", '{"user": "acct-ada-77"}'),
                ("place/chat-ben-88", "{}"), ("seen", "2026-11-21"), ("progress", '{"done": [1, 2]}'),
            ):  # fmt: skip
                connection.execute("INSERT INTO adapter_notes VALUES ('fake', ?, ?)", (key, text))

        await gateway.store.engine.write(put)
        await gateway.privacy.schedule_erasure(ada)
        await until_done(gateway)
        kept = [row["key"] for row in await _rows(gateway, "SELECT key FROM adapter_notes ORDER BY key")]
        assert kept == ["place/chat-ben-88", "progress", "seen"]


async def test_copies_of_the_data_of_all_people_are_deleted_and_named_in_the_log(house: House) -> None:
    """Of the databases before an upgrade, of the identity map, and directories that a restore put aside or left."""
    async with house.gateway() as (gateway, channel):
        ids = await everybody_talks(gateway, channel, house.home)
    home = house.home
    for name in (DATABASE_NAME, TRACES_NAME):
        (home / f"{name}.before-3").write_bytes((home / name).read_bytes())
    (home / f"{DATABASE_NAME}.before-2").write_bytes(b"not a database, kanarieada")
    map_path = home / "users" / "identity-map.json"
    for name in (".identity-map.previous.json", "identity-map.json.broken-20261121T000000Z-1"):
        map_path.with_name(name).write_bytes(map_path.read_bytes()[:-3])
    old = home / "replaced-20261121T000000Z"
    for name in ("users", "personalities"):
        _copy_tree(home / name, old / name)
    unpacked = home / ".restore-0123456789ab"
    unpacked.mkdir()
    for directory in (old, unpacked):
        (directory / DATABASE_NAME).write_bytes((home / DATABASE_NAME).read_bytes())
    elsewhere = home.with_name("elsewhere")
    elsewhere.mkdir()
    (linked := home / f"{DATABASE_NAME}.before-1").symlink_to(elsewhere)
    with structlog.testing.capture_logs() as logged:
        async with opened(home) as store:
            eraser = eraser_of(home, store)
            await eraser.erase(await eraser.schedule(ids["ada"]))
    assert not found_in(home, words_of("ada", ids["ada"]))
    assert elsewhere.exists(), "a link is removed, and not where it leads"
    copies = [each["copy"] for each in logged if each["event"] == "copy_deleted"]
    assert not [
        *home.glob("*.before-*"),
        *home.glob("replaced-*"),
        *home.glob(".restore-*"),
        *map_path.parent.glob("*.broken-*"),
    ]
    assert sorted(copies) == sorted([
        f"{TRACES_NAME}.before-3", f"{DATABASE_NAME}.before-2", f"{DATABASE_NAME}.before-3", old.name, unpacked.name,
        linked.name,
    ])  # fmt: skip
    kept = {user.id for user in await IdentityMap(map_path).users()}
    assert kept >= {ids["ben"], ids["cem"]}
    assert found_in(home, [canary("ben")])


def _copy_tree(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


async def test_an_old_backup_does_not_bring_an_erased_person_back(house: House, tmp_path: Path) -> None:
    """Neither when `ethos restore` puts it in place, nor when somebody copies it over by hand."""
    async with house.gateway() as (gateway, channel):
        ids = await everybody_talks(gateway, channel, house.home)
    backup, by_hand = tmp_path / "backup", tmp_path / "by-hand"
    _copy_tree(house.home, backup)
    _copy_tree(house.home, by_hand)
    async with opened(house.home) as store:
        eraser = eraser_of(house.home, store)
        await eraser.erase(await eraser.schedule(ids["ada"]))
    assert clean_restored(backup, house.home) == ("Taken out again: 1 person erased since the backup was made.",)
    assert not found_in(backup, words_of("ada", ids["ada"]))
    assert found_in(backup, [canary("ben")])
    assert clean_restored(backup, house.home) == ()
    (by_hand / TOMBSTONES_NAME).write_bytes((house.home / TOMBSTONES_NAME).read_bytes())
    async with House(by_hand).gateway() as (gateway, channel):
        assert account("ada") not in await user_ids(gateway)
        assert await say(channel, "Hello", "ben")
    assert not found_in(by_hand, words_of("ada", ids["ada"]))


def test_every_table_is_known_to_the_erasure(tmp_path: Path) -> None:
    """Whoever adds a table decides here what becomes of it when a person is erased."""
    path = tmp_path / DATABASE_NAME
    asyncio.run(_make(path))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    erased = {
        "lanes", "inbox", "outbox", "sessions", "session_keys", "messages", "usage", "usage_days", "reservations",
        "turn_steps", "tool_calls", "approvals", "grants", "open_questions", "schedules", "occurrences",
        "memory_journal", "memory_proposals",
        "adapter_notes", "user_links", "link_requests", "mcp_tokens", "mcp_sign_ins",
        "person_settings", "sign_ins", "logins", "recovery_codes", "invitations",
        "link_tries", "account_ranks", "admissions", "access_requests", "held_messages", "owner_chats",
        "ingest_jobs", "turns_since_consolidation", "api_keys", "idempotent_requests", "talks",
        "accounts", "owner_tries", "erasure_codes", "documents",
    }  # fmt: skip
    of_nobody = {
        "search_progress", "erasures", "erased_events", "erased_events_key", "sqlite_sequence",
        "memory_proposal_numbers", "mcp_tools", "mcp_eras", "owner_code", "copy_state", "copy_progress",
        "sign_in_failures", "settings", "tombstones", "blobs", "leases", "workers", "trusted_skills",
    }  # fmt: skip
    index = {name for name in tables if name == "search" or name.startswith("search_")}
    assert tables - index <= erased | of_nobody, "say in gateway/store/erasure.py what becomes of its rows"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        sql = "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
        columns = connection.execute(f"{sql} WHERE tables.type = 'table'").fetchall()
    known = {column for column in columns if column[1] in PERSON_COLUMNS}
    assert known == {*USER_COLUMNS, *KEY_COLUMNS}, "a column of people is one of USER_COLUMNS or KEY_COLUMNS"


# What columns are called that hold a user id, or an account as the identity map has it.
PERSON_COLUMNS = {
    "user_id", "author_id", "decided_by", "granted_by", "survivor", "absorbed", "account", "starter", "redeemer",
}  # fmt: skip


async def test_every_table_of_the_traces_is_known_to_the_erasure(tmp_path: Path) -> None:
    """Here, too, whoever adds a table decides what becomes of it."""
    path = tmp_path / TRACES_NAME
    async with open_trace_store(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    erased = {
        "owners", "traces", "edges", "uses", "archive", "archive_reads", "records", "uncompared",
        "signatures", "unembeddable", "trace_documents", "trace_document_history",
    }  # fmt: skip
    of_nobody = {"consolidation_log", "approved_changes", "sqlite_sequence"}  # counts; numbers of proposals, of changes
    index = {name for name in tables if name == "search" or name.startswith("search_")}
    assert tables - index <= erased | of_nobody, "say in gateway/traces/erasure.py what becomes of its rows"


async def _make(path: Path) -> None:
    await open_store(path).close()
