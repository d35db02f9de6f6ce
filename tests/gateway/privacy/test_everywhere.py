"""Row 32 as a whole: a person who is known in every way there is gets all of it, and then nothing tells of them.

Ada writes on two channels, was let in by a code, is linked, has notes, archives, traces, proposals, files of `/export`,
and stands in what the owner asked about people. Ben says the very same things.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.files.home import DATABASE_NAME
from gateway.memory.ingest import IngestJob
from gateway.memory.tokenizer import words_of
from gateway.messages import Attachment, QuotedText
from gateway.ops.backup.archive import read_archive
from gateway.ops.backup.restoring import restore
from gateway.ops.backup.taking import take_backup
from gateway.ops.privacy.home import clean_restored
from gateway.ops.privacy.tombstones import TOMBSTONES_NAME
from gateway.protocols import MemoryScope
from gateway.store.ingest import insert_job
from gateway.traces.search_words import register_functions
from gateway.traces.trace import ORGANIZATION, Owner, Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME
from tests import forks
from tests.fake_channel import FakeChannel
from tests.gateway.privacy import erase_and_die
from tests.gateway.privacy.conftest import account, found_in, quiet, say, user_ids
from tests.gateway.privacy.erase_and_die import STEPS
from tests.gateway.privacy.test_erasing import until_done
from tests.gateway.way.conftest import House

PHONE = {"kind": "tests.fake_channel", "access": "pairing", "max_attachment_bytes": 1 << 24}
SETTINGS: dict[str, Any] = {
    "channels": {"phone": PHONE, "desk": {"kind": "tests.fake_channel"}},
    "memory": {"max_file_bytes": 1024, "traces": {"enabled": True}},
}
NEEDLES = ("kanarieada", "acct-ada", "chat-ada")
SAME = "my boat is called Argo"


@asynccontextmanager
async def two_channels(house: House) -> AsyncIterator[tuple[Gateway, FakeChannel, FakeChannel]]:
    async with house._running(None, dict(SETTINGS), is_served=False) as gateway:
        desk, phone = sorted(gateway.adapters, key=lambda adapter: adapter.name)
        assert isinstance(phone, FakeChannel)
        assert isinstance(desk, FakeChannel)
        yield gateway, phone, desk


async def until_told(channel: FakeChannel, words: str) -> str:
    await channel.until(lambda: any(words in one.text for one in channel.sent))
    return next(one.text for one in channel.sent if words in one.text)


async def let_in(gateway: Gateway, phone: FakeChannel, person: str) -> None:
    """Olga, the owner, lets a stranger in, and asks about people."""
    if account("olga") not in await user_ids(gateway):
        code = await gateway.admission.pairing.offer_owner()
        await say(phone, f"/owner {code}", "olga")
        await say(phone, "Hello", "olga")
    stranger = phone.message(f"Hello, kanarie{person}held", conversation=f"chat-{person}-88", user=account(person))
    name = f"kanarie{person}.txt"
    file = Attachment(media_type="text/plain", filename=name, size_bytes=3, ref=f"kanarie{person}ref")
    await phone.deliver(replace(stranger, attachments=(file,)))
    code = re.search(r"\*\*(\S+)\*\*", (await phone.answers_to(stranger))[0])[1]  # type: ignore[index]
    assert account(person) in await say(phone, "/pair", "olga")
    assert "is let in" in await say(phone, f"/pair {code}", "olga")
    await phone.answers_to(stranger, 2)


async def link(phone: FakeChannel, desk: FakeChannel, person: str) -> None:
    await say(desk, f"Remember that my desk is kanarie{person}desk", f"{person}desk")
    code = re.findall(r"/link (\w{4}-\w{4})", await say(phone, "/link", person))[0]
    await say(desk, f"/link {code}", f"{person}desk")
    await until_told(phone, f"acct-{person}desk-77")
    await say(phone, "/link yes", person)
    await until_told(desk, "Linked:")


async def live(gateway: Gateway, phone: FakeChannel, desk: FakeChannel, person: str) -> None:
    """Everything of which anything is kept."""
    word = f"kanarie{person}"
    await let_in(gateway, phone, person)
    await say(phone, "/new", person)  # what had a file in it is not trusted with the memory
    await say(phone, f"Remember that {SAME}", person)
    await say(phone, "Remember that the gate is green", person)
    await link(phone, desk, person)
    await say(desk, f"My sister is called {word}sister", f"{person}desk")
    for number in range(6):  # more than a file may hold: the oldest goes to the archive
        await say(desk, f"Remember that my note {number} is {word}note{number} {'x' * 240}", f"{person}desk")
        await say(phone, f"Remember that the room {number} is {word}room{number} {'y' * 240}", person)
    quoting = desk.message("Remember that my cat is called Mia", conversation="chat-x", user="x")
    quoting = replace(
        quoting,
        conversation=replace(quoting.conversation, conversation=f"chat-{person}desk-88"),
        sender=replace(quoting.sender, user=account(f"{person}desk")),
        text=f"Remember that my cat is called {word}cat",
        quotes=(QuotedText(origin="quoted mail", text=f"{word}quoted"),),
    )
    await desk.deliver(quoting)
    assert "waits for your yes" in (await desk.answers_to(quoting))[0]
    await say(desk, f"All of you, {word}group", f"{person}desk", group="round-table")
    await say(phone, "/new", person)
    await say(phone, f"/search {word}note1", person)
    await say(phone, f"And now {word}last", person)


async def leave_traces(gateway: Gateway, person: str) -> None:
    """What the trace memory has besides: told to all, merged, linked, archived, imported, waiting."""
    trace_store, user_id = gateway.trace_store, (await user_ids(gateway))[account(person)]
    assert trace_store is not None
    assert gateway.traces.memory is not None
    async with asyncio.timeout(60):
        await gateway.traces.memory.idle()
    word = f"kanarie{person}"
    viewer = Viewer(user_id=user_id, personality_id="assistant", session_id=None)
    told = Trace(content=f"{word}told everybody", owner=Owner("organization", ORGANIZATION), author=user_id)
    own = Trace(content=f"{word}own trace", owner=viewer.owner("persona"), author=user_id)
    for trace in (told, own):
        await trace_store.add(viewer, trace)

    def more(connection: sqlite3.Connection) -> None:
        (owner,) = connection.execute("SELECT owner FROM traces WHERE id = ?", (own.id,)).fetchone()
        connection.execute("INSERT INTO archive VALUES (?, ?, 'hash', 1)", (own.id, f"{word}verbatim"))
        connection.execute("INSERT INTO records VALUES ('node', ?, ?, '{}')", (f"{word}node", owner))
        edge = (f"node:{owner}:{word}node", f"node:{owner}:{word}other")
        connection.execute("INSERT INTO edges VALUES (?, ?, 'link', 1.0, '{}', 1)", edge)

    await trace_store.database.write(more)
    scope = MemoryScope(personality_id="assistant", user_id=user_id, session_id="s_none", turn_id=f"t_{person}")
    job = IngestJob(scope=scope, speaker=f"{word}speaker")

    def wait(connection: sqlite3.Connection) -> None:
        insert_job(connection, job)
        values = (json.dumps([f"{word}fact"]), scope.turn_id)
        connection.execute("UPDATE ingest_jobs SET is_given_up = 1, facts = ? WHERE turn_id = ?", values)

        key = (f"k_{person}", f"{word}key", b"hash", "chat", user_id, 1)
        connection.execute("INSERT INTO api_keys VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)", key)
        answer = (f"once-{person}", b"hash", "1", 1, 200, "", f"{word}answered".encode())
        connection.execute("INSERT INTO idempotent_requests VALUES ('', ?, ?, ?, ?, ?, ?, ?)", answer)

    await gateway.store.engine.write(wait)


async def everybody(gateway: Gateway, phone: FakeChannel, desk: FakeChannel) -> None:
    for person in ("ada", "ben"):
        await live(gateway, phone, desk, person)
        await leave_traces(gateway, person)
    merged = [
        Trace(content=f"kanarie{person}merged", owner=Owner("organization", ORGANIZATION), author=user)
        for person, user in (("ada", (await user_ids(gateway))[account("ada")]), ("ben", "u_nobody"))
    ]
    viewer = Viewer(user_id=None, personality_id="assistant", session_id=None)
    assert gateway.trace_store is not None
    for trace in merged:
        await gateway.trace_store.add(viewer, trace)
    await gateway.trace_store.merge(viewer, [trace.id for trace in merged])
    await quiet(gateway)


def left_of(home: Path, needles: Sequence[str]) -> list[str]:
    """In any byte, in the packed copies of the journal, and among the words of the indexes, which are stored packed."""
    found = found_in(home, needles)
    prefix = words_of(NEEDLES[0])
    for name in (DATABASE_NAME, TRACES_NAME):
        with contextlib.closing(sqlite3.connect(home / name)) as connection:
            register_functions(connection)
            connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab ('main', 'search', 'row')")
            sql = "SELECT term FROM temp.vocabulary WHERE instr(term, ?)"
            found += [f"{name}: the word {row[0]}" for row in connection.execute(sql, (prefix,))]
    return found


def rows_of_ben(home: Path, gone: Sequence[str]) -> dict[str, list[str]]:
    """Every row of every table of both databases that names Ben and not Ada, and the files in his directories."""
    found: dict[str, list[str]] = {}
    for name in (DATABASE_NAME, TRACES_NAME):
        with contextlib.closing(sqlite3.connect(home / name)) as connection:
            register_functions(connection)
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                if table.startswith("search"):
                    continue
                rows = [repr(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 (names of ours)
                theirs = [row for row in rows if "ben" in row and not any(word in row for word in gone)]
                found[f"{name} {table}"] = sorted(theirs)
    return found


async def forget(desk: FakeChannel) -> None:
    asked = await say(desk, "/forget-me", "adadesk")
    code = re.findall(r"/forget-me (\w+)", asked)[0]
    assert "erasing everything" in await say(desk, f"/forget-me {code}", "adadesk")


async def ids_of(gateway: Gateway, person: str) -> list[str]:
    return list(await gateway.linking.people.ids((await user_ids(gateway))[account(person)]))


@pytest.mark.slow
async def test_a_person_known_in_every_way_gets_everything_and_then_nothing_tells_of_them(
    house: House, tmp_path: Path
) -> None:
    backup, old = tmp_path / "backup.tar.gz", tmp_path / "old"
    async with two_channels(house) as (gateway, phone, desk):
        await everybody(gateway, phone, desk)
        ids = await ids_of(gateway, "ada")
        assert len(ids) == 2  # the one who was absorbed, too
        needles = [*NEEDLES, *ids]
        _check_that_it_is_everywhere(house.home, needles)
        await say(phone, "/export", "ada")
        (attachment,) = phone.sent[-1].attachments
        _check_export(Path(attachment.ref), ids)
        await take_backup(house.home, backup)
        read_archive(backup, old)
        for name in (DATABASE_NAME, TRACES_NAME):
            (house.home / f"{name}.before-3").write_bytes((old / name).read_bytes())
        old.rename(house.home / "replaced-20261121T000000Z")
        before, notes = rows_of_ben(house.home, needles), _notes_of(house.home, await ids_of(gateway, "ben"))
        await forget(desk)
        await until_done(gateway)
        assert left_of(house.home, needles) == []
        # others keep what they had, the same facts among it
        after = rows_of_ben(house.home, needles)
        for table in ("messages", "inbox", "memory_proposals", "user_links", "account_ranks", "admissions", "sessions"):
            assert after[f"{DATABASE_NAME} {table}"] == before[f"{DATABASE_NAME} {table}"], table
        traces = {row for row in before[f"{TRACES_NAME} traces"] if "merged" not in row}
        assert traces
        assert traces <= set(after[f"{TRACES_NAME} traces"])
        assert _notes_of(house.home, await ids_of(gateway, "ben")) == notes
        assert any("Argo" in text for text in notes.values())
        shared = house.home / "personalities/assistant"
        kept = "".join(path.read_text() for path in shared.glob("*.md"))
        assert "the gate is green" in kept
        assert "kanariebenroom0" in kept
        found = await gateway.store.sessions.search_messages("kanariebennote1", user_id=None)
        assert found
        assert not await gateway.store.problems()
        # who was merged with Ada stands alone again
        assert any("kanariebenmerged" in row and "None, None)" in row for row in after[f"{TRACES_NAME} traces"])
        # a stranger anew
        answer = await say(phone, "Do you know me?", "ada")
        assert "I do not know you yet" in answer
        assert "Argo" not in await say(desk, "What is my boat?", "adadesk")
        assert (await user_ids(gateway))[account("adadesk")] not in ids
    assert json.loads((house.home / TOMBSTONES_NAME).read_text())["erasures"][0].keys() == {
        "id", "erased_at", "key", "digests",
    }  # fmt: skip
    restored = tmp_path / "restored"
    restored.mkdir()
    (restored / TOMBSTONES_NAME).write_bytes((house.home / TOMBSTONES_NAME).read_bytes())
    done = restore(backup, restored, is_replacing=True, clean=[clean_restored])
    assert done.cleaned == ("Taken out again: 1 person erased since the backup was made.",)
    assert left_of(restored, needles) == []
    assert found_in(restored, ["kanariebennote1"])


def _notes_of(home: Path, ids: Sequence[str]) -> dict[str, str]:
    return {
        str(path.relative_to(home)): path.read_text() for each in ids for path in (home / "users" / each).rglob("*.md")
    }


def _check_that_it_is_everywhere(home: Path, needles: Sequence[str]) -> None:
    """The test can fail: every table that may hold a person does hold Ada."""
    with contextlib.closing(sqlite3.connect(home / DATABASE_NAME)) as connection:
        for table in (
            "inbox", "outbox", "sessions", "messages", "usage", "usage_days", "memory_journal", "memory_proposals",
            "user_links", "link_requests", "link_tries", "admissions", "ingest_jobs", "turns_since_consolidation",
            "api_keys", "idempotent_requests",
        ):  # fmt: skip
            rows = [repr(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 (names of ours)
            assert any(word in row for row in rows for word in needles), table
    with contextlib.closing(sqlite3.connect(home / TRACES_NAME)) as connection:
        for table in ("owners", "traces", "archive", "records", "edges"):
            rows = [repr(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 (names of ours)
            assert any(word in row for row in rows for word in needles), table
    files = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert any("/before-" in name for name in files)
    assert any("archive" in name for name in files), files


def _check_export(path: Path, ids: Sequence[str]) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    everything = "\n".join(files.values())
    words = ("held", "desk", "sister", "note0", "note5", "room0", "cat", "group", "last", "told", "own")
    for word in words:
        assert f"kanarieada{word}" in everything, word
    assert "kanarieben" not in everything
    assert account("ben") not in everything
    known = json.loads(files["accounts.json"])
    assert known["users"] == sorted(ids)
    assert len(known["accounts"]) == 2
    assert known["access"]["admissions"][0]["account"] == f"fake:{account('ada')}"
    assert known["links"]
    assert json.loads(files["memory/proposals.json"])[0]["state"] == "waiting"
    assert "You are let in" in files["notices.json"]
    assert any("/before-" in name for name in files)
    assert files["README.md"].startswith("# Everything that is kept about you")
    assert any(name.startswith("sessions/") and name.endswith(".md") for name in files)


async def test_what_came_with_a_link_that_was_undone_goes_from_the_other_side_too(house: House) -> None:
    """Ada and Eve were one for a while; then Ada is erased, and Eve has her own notes and history."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "Remember that my dog is called Rex", "eve")
        await say(channel, "Remember that my cat is called kanarieadacat", "ada")
        before = (await user_ids(gateway))[account("ada")]
        code = re.findall(r"/link (\w{4}-\w{4})", await say(channel, "/link", "eve"))[0]
        await say(channel, f"/link {code}", "ada")
        await until_told(channel, "Your code was typed")
        await say(channel, "/link yes", "eve")
        await until_told(channel, "Linked:")
        await say(channel, "Remember that my bird is called Pip", "eve")  # so that the way back is no mere copy
        await say(channel, "While we were one, kanarieadaone", "ada")
        await say(channel, "/unlink", "eve")
        await until_told(channel, "No longer linked")
        await quiet(gateway)
        known = await user_ids(gateway)
        assert known[account("ada")] == before
        await gateway.privacy.schedule_erasure(before)
        await until_done(gateway)
        assert found_in(house.home, ["kanarieada", account("ada"), "chat-ada-88", before]) == []
        notes = (house.home / "users" / known[account("eve")] / "USER.md").read_text()
        assert "Rex" in notes
        assert "Pip" in notes
        assert await say(channel, "What is my dog?", "eve")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_an_erasure_that_is_killed_is_finished_at_the_next_start(house: House, step: str) -> None:
    """By SIGKILL, before each step: the next start ends it before anybody can write."""
    async with two_channels(house) as (gateway, phone, desk):
        await everybody(gateway, phone, desk)
        ids = await ids_of(gateway, "ada")
    erasing = forks.start(erase_and_die.begin, house.home, ids[0], step)
    assert await asyncio.to_thread(forks.ended, erasing) == -signal.SIGKILL
    async with two_channels(house) as (gateway, _, _):
        assert not await gateway.privacy.eraser().due()
        assert account("ada") not in await user_ids(gateway)
    assert left_of(house.home, [*NEEDLES, *ids]) == []
    assert found_in(house.home, ["kanariebenlast"])
