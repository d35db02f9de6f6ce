"""Notes that are united and parted: on the disk, and in the twin that the search over the protocol works with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.union import has_any, only_in, paragraphs, without
from gateway.protocols import SupportsUnion
from gateway.store.memory_journal import SqlMemoryJournal
from tests.gateway.linking.twins import TwinNotes
from tests.stores import opened_database

LINK = ("l_1", "u_a", "u_b")
ABOVE = ("l_2", "u_c", "u_a")


class Shelf(Protocol):
    """A memory, with a way to look at it and to write it by hand."""

    @property
    def notes(self) -> SupportsUnion: ...

    def read(self, user_id: str) -> str: ...
    def write(self, user_id: str, text: str) -> None: ...


class OnDisk:
    def __init__(self, home: Path, journal: MemoryJournal) -> None:
        self.home = home
        self.notes = MarkdownFileMemoryProvider(home, journal)

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
        self.notes = TwinNotes({})

    def read(self, user_id: str) -> str:
        return self.notes.texts.get(user_id, "")

    def write(self, user_id: str, text: str) -> None:
        self.notes.texts[user_id] = text


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[OnDisk]:
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        made = OnDisk(tmp_path, SqlMemoryJournal(database))
        yield made
        await made.notes.close()


@pytest.fixture(params=["disk", "twin"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    return AsTwin() if request.param == "twin" else request.getfixturevalue("disk")


async def test_each_paragraph_is_there_once_and_what_was_there_stays_in_front(shelf: Shelf) -> None:
    shelf.write("u_a", "# Ada\n\nCat: Mia\n")
    shelf.write("u_b", "Cat: Mia\n\n- one\n- two\n\n\nBoat: Argo")
    for _ in range(2):
        await shelf.notes.unite(*LINK)
    assert shelf.read("u_a") == "# Ada\n\nCat: Mia\n\n- one\n- two\n\nBoat: Argo\n"
    assert shelf.read("u_b") == "Cat: Mia\n\n- one\n- two\n\n\nBoat: Argo"


async def test_parting_brings_back_every_byte_where_nothing_changed(shelf: Shelf) -> None:
    shelf.write("u_a", "  odd\n\n\n\ntext without an end")
    shelf.write("u_b", "Boat: Argo\n")
    await shelf.notes.unite(*LINK)
    for _ in range(2):
        assert not await shelf.notes.part(*LINK, ["u_a"])
        assert shelf.read("u_a") == "  odd\n\n\n\ntext without an end"


async def test_what_was_added_stays_and_what_was_forgotten_stays_forgotten(shelf: Shelf) -> None:
    shelf.write("u_a", "Cat: Mia\n\nTea.\n")
    shelf.write("u_b", "Boat: Argo\n\nCat: Mia\n")
    await shelf.notes.unite(*LINK)
    shelf.write("u_a", shelf.read("u_a").replace("Tea.\n\n", "") + "\nHorse.\n")
    for _ in range(2):
        assert await shelf.notes.part(*LINK, ["u_a"])
        assert paragraphs(shelf.read("u_a")) == ["Cat: Mia", "Horse."]


async def test_where_one_of_them_had_no_notes(shelf: Shelf) -> None:
    await shelf.notes.unite(*LINK)
    assert not await shelf.notes.part(*LINK, ["u_a"])
    shelf.write("u_b", "Boat: Argo\n")
    other = ("l_3", "u_a", "u_b")
    await shelf.notes.unite(*other)
    assert shelf.read("u_a") == "Boat: Argo\n"
    assert not await shelf.notes.part(*other, ["u_a"])
    assert shelf.read("u_a") == ""


async def test_whoever_absorbed_the_survivor_since_gives_it_back_too(shelf: Shelf) -> None:
    shelf.write("u_a", "Cat: Mia\n")
    shelf.write("u_b", "Boat: Argo\n")
    shelf.write("u_c", "Tea.\n")
    await shelf.notes.unite(*LINK)
    await shelf.notes.unite(*ABOVE)
    assert paragraphs(shelf.read("u_c")) == ["Tea.", "Cat: Mia", "Boat: Argo"]
    await shelf.notes.part(*LINK, ["u_a", "u_c"])
    assert (shelf.read("u_a"), shelf.read("u_c")) == ("Cat: Mia\n", "Tea.\n\nCat: Mia\n")
    await shelf.notes.part(*ABOVE, ["u_c"])
    assert shelf.read("u_c") == "Tea.\n"


async def test_both_originals_are_kept_beside_for_their_owner_only_and_no_prompt_reads_them(
    disk: OnDisk, tmp_path: Path
) -> None:
    disk.write("u_a", "Cat: Mia\r\n\xff")
    disk.write("u_b", "Boat: Argo\n")
    personal = tmp_path / "users" / "u_b" / "personalities" / "engineer" / "MEMORY.md"
    personal.parent.mkdir(parents=True)
    personal.write_text("Uses vi.\n")
    await disk.notes.unite(*LINK)
    for user_id, name in (("u_a", "USER.md"), ("u_b", "USER.md"), ("u_b", "personalities/engineer/MEMORY.md")):
        kept = tmp_path / "users" / user_id / "before-l_1" / name
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "users/u_a/before-l_1/USER.md").read_text() == "Cat: Mia\n\xff"
    united = tmp_path / "users" / "u_a" / "personalities" / "engineer" / "MEMORY.md"
    assert united.read_text() == "Uses vi.\n"
    await disk.notes.part(*LINK, ["u_a"])
    assert united.read_text() == ""
    log = await disk.notes.log(limit=10)
    assert "link" in {entry.channel for entry in log}, "the history says where it came from"


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
