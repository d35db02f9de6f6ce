"""Notes that are united and parted: on the disk, and in the twin that the search over the protocol works with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FileError
from gateway.memory.journal import JournalRequest, MemoryJournal
from gateway.memory.linked_notes import MarkdownNotes, has_any, only_in, paragraphs, without
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.people.linking.links import Link, PersonalNotes
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.memory_journal import SqliteMemoryJournal
from tests.gateway.linking.twins import TwinNotes
from tests.stores import opened_database

LINK = Link(id="l_1", survivor="u_a", absorbed="u_b", accounts=(), parties=(), by="code", linked_at=datetime.now(UTC))
ABOVE = Link(id="l_2", survivor="u_c", absorbed="u_a", accounts=(), parties=(), by="code", linked_at=datetime.now(UTC))


class Shelf(Protocol):
    """Notes, with a way to look at them and to write them by hand."""

    notes: PersonalNotes

    def read(self, user_id: str) -> str: ...
    def write(self, user_id: str, text: str) -> None: ...


class OnDisk:
    def __init__(self, home: Path, journal: MemoryJournal) -> None:
        self.home = home
        self.journal = journal
        self.memory = MarkdownFileMemoryProvider(home, journal)
        self.notes: PersonalNotes = MarkdownNotes(self.memory)

    def path(self, user_id: str) -> Path:
        return self.home / "users" / user_id / "USER.md"

    def read(self, user_id: str) -> str:
        path = self.path(user_id)
        return path.read_text() if path.exists() else ""

    def write(self, user_id: str, text: str) -> None:
        self.path(user_id).parent.mkdir(parents=True, exist_ok=True)
        self.path(user_id).write_text(text)


class AsTwin:
    def __init__(self) -> None:
        self.twin = TwinNotes({})
        self.notes: PersonalNotes = self.twin

    def read(self, user_id: str) -> str:
        return self.twin.texts.get(user_id, "")

    def write(self, user_id: str, text: str) -> None:
        self.twin.texts[user_id] = text


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[OnDisk]:
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        made = OnDisk(tmp_path, SqliteMemoryJournal(database))
        yield made
        await made.memory.close()


@pytest.fixture(params=["disk", "twin"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    return AsTwin() if request.param == "twin" else request.getfixturevalue("disk")


async def test_each_paragraph_is_there_once_and_what_was_there_stays_in_front(shelf: Shelf) -> None:
    shelf.write("u_a", "# Ada\n\nCat: Mia\n")
    shelf.write("u_b", "Cat: Mia\n\n- one\n- two\n\n\nBoat: Argo")
    for _ in range(2):
        await shelf.notes.unite(LINK)
    assert shelf.read("u_a") == "# Ada\n\nCat: Mia\n\n- one\n- two\n\nBoat: Argo\n"
    assert shelf.read("u_b") == "Cat: Mia\n\n- one\n- two\n\n\nBoat: Argo"


async def test_parting_brings_back_every_byte_where_nothing_changed(shelf: Shelf) -> None:
    shelf.write("u_a", "  odd\n\n\n\ntext without an end")
    shelf.write("u_b", "Boat: Argo\n")
    await shelf.notes.unite(LINK)
    for _ in range(2):
        assert not await shelf.notes.part(LINK, ["u_a"])
        assert shelf.read("u_a") == "  odd\n\n\n\ntext without an end"


async def test_what_was_added_stays_and_what_was_forgotten_stays_forgotten(shelf: Shelf) -> None:
    shelf.write("u_a", "Cat: Mia\n\nTea.\n")
    shelf.write("u_b", "Boat: Argo\n\nCat: Mia\n")
    await shelf.notes.unite(LINK)
    shelf.write("u_a", shelf.read("u_a").replace("Tea.\n\n", "") + "\nHorse.\n")
    for _ in range(2):
        assert await shelf.notes.part(LINK, ["u_a"])
        assert paragraphs(shelf.read("u_a")) == ["Cat: Mia", "Horse."]


async def test_where_one_of_them_had_no_notes(shelf: Shelf) -> None:
    await shelf.notes.unite(LINK)
    assert not await shelf.notes.part(LINK, ["u_a"])
    shelf.write("u_b", "Boat: Argo\n")
    other = Link(id="l_3", survivor="u_a", absorbed="u_b", accounts=(), parties=(), by="code", linked_at=LINK.linked_at)
    await shelf.notes.unite(other)
    assert shelf.read("u_a") == "Boat: Argo\n"
    assert not await shelf.notes.part(other, ["u_a"])
    assert shelf.read("u_a") == ""


async def test_whoever_absorbed_the_survivor_since_gives_it_back_too(shelf: Shelf) -> None:
    shelf.write("u_a", "Cat: Mia\n")
    shelf.write("u_b", "Boat: Argo\n")
    shelf.write("u_c", "Tea.\n")
    await shelf.notes.unite(LINK)
    await shelf.notes.unite(ABOVE)
    assert paragraphs(shelf.read("u_c")) == ["Tea.", "Cat: Mia", "Boat: Argo"]
    await shelf.notes.part(LINK, ["u_a", "u_c"])
    assert (shelf.read("u_a"), shelf.read("u_c")) == ("Cat: Mia\n", "Tea.\n\nCat: Mia\n")
    await shelf.notes.part(ABOVE, ["u_c"])
    assert shelf.read("u_c") == "Tea.\n"


async def test_both_originals_are_kept_beside_for_their_owner_only_and_no_prompt_reads_them(
    disk: OnDisk, tmp_path: Path
) -> None:
    disk.write("u_a", "Cat: Mia\r\n\xff")
    disk.write("u_b", "Boat: Argo\n")
    personal = tmp_path / "users" / "u_b" / "personalities" / "engineer" / "MEMORY.md"
    personal.parent.mkdir(parents=True)
    personal.write_text("Uses vi.\n")
    await disk.notes.unite(LINK)
    for user_id, name in (("u_a", "USER.md"), ("u_b", "USER.md"), ("u_b", "personalities/engineer/MEMORY.md")):
        kept = tmp_path / "users" / user_id / "before-l_1" / name
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "users/u_a/before-l_1/USER.md").read_text() == "Cat: Mia\n\xff"
    united = tmp_path / "users" / "u_a" / "personalities" / "engineer" / "MEMORY.md"
    assert united.read_text() == "Uses vi.\n"
    await disk.notes.part(LINK, ["u_a"])
    assert united.read_text() == ""
    log = await disk.memory.log(limit=10)
    assert "link" in {entry.channel for entry in log}, "the history says where it came from"


async def test_what_is_noted_and_not_yet_in_the_files_is_waited_for(disk: OnDisk) -> None:
    """A turn whose notes could not be written, on a full disk, writes them later; the union comes after that."""
    scope = MemoryScope(personality_id="assistant", user_id="u_b", session_id=None, turn_id="t_1")
    noted = MemoryUpdate.add("user", "Boat: Argo")
    ask = JournalRequest(
        scope=scope,
        index=0,
        document="users/u_b/USER.md",
        store="user",
        action="add",
        content="Boat: Argo",
        at=datetime.now(UTC),
    )
    await disk.journal.begin([ask])
    with pytest.raises(FileError, match="not in the files yet"):
        await disk.notes.unite(LINK)
    await disk.memory.sync(scope, [noted])
    await disk.notes.unite(LINK)
    assert disk.read("u_a") == "Boat: Argo\n"


@given(st.text(alphabet="ab\n \t"), st.text(alphabet="ab\n \t"))
def test_the_union_has_all_paragraphs_once_and_taking_them_out_leaves_the_rest(mine: str, theirs: str) -> None:
    brought = only_in(theirs, mine)
    united = "\n\n".join([*paragraphs(mine), *brought])
    assert {part.strip() for part in paragraphs(united)} == {
        part.strip() for text in (mine, theirs) for part in paragraphs(text)
    }
    assert len(brought) == len({part.strip() for part in brought})
    assert has_any(united, brought) is bool(brought)
    assert paragraphs(without(united, brought)) == paragraphs(mine)
