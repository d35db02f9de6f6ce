"""People edit the files with their own editors, which know no locks."""

import os

import pytest

from gateway.errors import FileError
from tests.conformance.memory import add, remove, scope

MEMORY = "personalities/assistant/MEMORY.md"


class Editor:
    """Saves once, at a named step of a write."""

    def __init__(self, at_step, save):
        self.at_step = at_step
        self.save = save

    def __call__(self, step):
        if step == self.at_step and self.save is not None:
            save, self.save = self.save, None
            save()


def by_rename(path, change):
    def save():
        other = path.with_name("editor's own")
        other.write_text(change(path.read_text() if path.exists() else ""))
        other.replace(path)

    return save


def in_place(path, change):
    def save():
        path.write_text(change(path.read_text() if path.exists() else ""))

    return save


@pytest.mark.parametrize("style", [by_rename, in_place])
@pytest.mark.parametrize("step", ["looked", "staged", "linked", "recorded"])
async def test_an_editor_that_saves_before_the_rename_is_built_upon(markdown, root, style, step):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "ours 1")])
    provider = markdown(on_step=Editor(step, style(path, lambda text: text + "by hand\n")))
    assert (await provider.sync(scope("t2"), [add("memory", "ours 2")])).outcomes == ("applied",)
    assert path.read_text() == "ours 1\nby hand\n\nours 2\n"
    assert [entry.action for entry in await provider.log(scope("x"))] == ["add", "edit", "add"]


async def test_an_editor_that_creates_the_file_first_is_built_upon(markdown, root):
    path = root / MEMORY
    provider = markdown(on_step=Editor("recorded", in_place(path, lambda _: "by hand\n")))
    await provider.sync(scope("t"), [add("memory", "ours")])
    assert path.read_text() == "by hand\n\nours\n"


@pytest.mark.parametrize("step", ["compared", "renamed"])
async def test_a_save_into_the_version_that_was_just_replaced_is_not_lost(markdown, root, step):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "ours 1")])
    opened = path.open("r+")  # the editor has the old file open while we rename the new one over it

    def save():
        opened.write("ours 1, corrected by hand\n")
        opened.close()

    provider = markdown(on_step=Editor(step, save))
    await provider.sync(scope("t2"), [add("memory", "ours 2")])
    assert path.read_text() == "ours 1, corrected by hand\n\nours 2\n"


@pytest.mark.parametrize("style", [by_rename, in_place])
async def test_a_save_in_the_instant_between_comparing_and_renaming_is_not_lost(markdown, root, style):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "ours 1")])
    provider = markdown(on_step=Editor("compared", style(path, lambda text: text + "by hand\n")))
    await provider.sync(scope("t2"), [add("memory", "ours 2")])
    assert path.read_text() == "ours 1\nby hand\n\nours 2\n"


async def test_a_file_that_appears_in_that_instant_is_not_lost(markdown, root):
    path = root / MEMORY
    provider = markdown(on_step=Editor("compared", in_place(path, lambda _: "by hand\n")))
    await provider.sync(scope("t"), [add("memory", "ours")])
    assert path.read_text() == "by hand\n\nours\n"


async def test_a_late_save_into_the_replaced_version_is_found_by_the_next_write(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "ours 1")])
    with path.open("r+") as opened:
        await provider.sync(scope("t2"), [add("memory", "ours 2")])
        opened.write("ours 1, corrected by hand\n")
    await provider.sync(scope("t3"), [add("memory", "ours 3")])
    assert path.read_text() == "ours 1, corrected by hand\n\nours 2\n\nours 3\n"


async def test_an_editor_that_had_not_seen_our_update_takes_it_back_only_until_the_next_write(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "old"), add("memory", "wrong")])
    stale = path.read_text()
    await provider.sync(scope("t2"), [add("memory", "ours"), remove("memory", "wrong")])
    path.write_text(stale + "\nby hand\n")
    await provider.sync(scope("t3"), [add("memory", "last")])
    assert path.read_text() == "old\n\n\nby hand\n\nours\n\nlast\n"
    again = [entry for entry in await provider.log(scope("x")) if entry.refers_to is not None]
    assert {entry.action for entry in again} == {"add", "remove"}
    assert [entry.turn_id for entry in await provider.log(scope("x")) if entry.turn_id == "t2"] == ["t2", "t2"]


async def test_what_went_to_the_archive_is_not_brought_back_by_a_hand_edit(markdown, root):
    path = root / MEMORY
    provider = markdown(max_file_bytes=30)
    for fact in ("fact one", "fact two", "fact three"):
        await provider.sync(scope(fact), [add("memory", fact)])
    path.write_text(path.read_text() + "by hand\n")
    await provider.sync(scope("t"), [add("memory", "last")])
    text = path.with_name("memory-archive.md").read_text() + path.read_text()
    assert [line for line in text.split("\n") if line] == ["fact one", "fact two", "fact three", "by hand", "last"]


async def test_what_a_person_takes_out_later_stays_out(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "keep"), add("memory", "out")])
    path.write_text("keep\n")
    later = path.stat().st_mtime + 10
    os.utime(path, (later, later))
    await provider.sync(scope("t2"), [add("memory", "new")])
    assert path.read_text() == "keep\n\nnew\n"


async def test_a_hand_edit_is_seen_by_the_next_prefetch(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "ours")])
    (root / MEMORY).write_text("by hand\r\n", newline="")
    assert (await provider.prefetch(scope("t2"))).project_memory == "by hand\n"


async def test_a_hand_edit_with_foreign_line_ends_is_normalised_by_the_next_write_only(markdown, root):
    path = root / MEMORY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a\r\nb\r\n")
    provider = markdown()
    await provider.sync(scope("t1"), [remove("memory", "nothing")])
    assert path.read_bytes() == b"a\r\nb\r\n"
    await provider.sync(scope("t2"), [remove("memory", "a")])
    assert path.read_bytes() == b"b\n"


async def test_a_deleted_file_begins_anew(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A")])
    path.unlink()
    await provider.sync(scope("t2"), [add("memory", "B")])
    assert path.read_text() == "B\n"


async def test_an_editor_that_never_stops_saving_is_an_error_and_not_a_loop(markdown, root):
    path = root / MEMORY
    path.parent.mkdir(parents=True)
    saves = 0

    def save(step):
        nonlocal saves
        if step == "recorded":
            saves += 1
            path.write_text(f"save {saves}\n" * 3)
            os.utime(path, (saves, saves))

    with pytest.raises(FileError, match="again and again"):
        await markdown(on_step=save).sync(scope("t"), [add("memory", "ours")])
    assert path.read_text() == f"save {saves}\n" * 3
