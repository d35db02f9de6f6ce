"""People edit the files with their own editors, which know no locks."""

import errno
import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from gateway.errors import FileError, MemoryConflict
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.proposals import SqlProposals
from gateway.testing.memory import add, remove, replace, scope

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


class ProcessEnds(Exception):
    """Stands for `kill -9`: what is on the disk then stays."""


def saved_before(path, text, then_end_at):
    """An editor that wrote its file a second before it renames it, between comparing and renaming; then a death."""
    other = path.with_name("editor's own")
    other.write_text(text)
    earlier = other.stat().st_mtime - 1
    os.utime(other, (earlier, earlier))

    def on_step(step):
        if step == "compared" and other.exists():
            other.replace(path)
        if step == then_end_at:
            raise ProcessEnds

    return on_step


async def test_a_save_in_that_instant_of_a_file_that_was_written_before_is_not_lost(markdown, root):
    path = root / MEMORY
    await markdown().sync(scope("t1"), [add("memory", "ours 1"), add("memory", "wrong"), add("memory", "kept")])
    provider = markdown(on_step=saved_before(path, "ours 1\n\nkept\nby hand\n", then_end_at="never"))
    await provider.sync(scope("t2"), [add("memory", "ours 2")])
    assert lines(path) == ["ours 1", "kept", "by hand", "ours 2"]


@pytest.mark.parametrize("step", ["exchanged", "renamed"])
async def test_a_save_in_that_instant_is_not_lost_when_the_process_dies_over_it(markdown, root, step):
    path = root / MEMORY
    await markdown().sync(scope("t1"), [add("memory", "ours 1"), add("memory", "wrong"), add("memory", "kept")])
    dying = markdown(on_step=saved_before(path, "ours 1\n\nkept\nby hand\n", then_end_at=step))
    with pytest.raises(ProcessEnds):
        await dying.sync(scope("t2"), [add("memory", "ours 2")])
    assert "by hand" not in path.read_text()
    provider = markdown()
    await provider.sync(scope("t2"), [add("memory", "ours 2")])
    assert lines(path) == ["ours 1", "kept", "by hand", "ours 2"]
    log = await provider.log(scope("x"))
    for newer, older in pairwise(entry for entry in log if entry.outcome == "applied"):
        assert newer.hash_before == older.hash_after


@pytest.mark.parametrize("hours", [0, 30])
@pytest.mark.parametrize("step", ["exchanged", "renamed"])
async def test_such_a_save_is_not_lost_either_when_the_person_saves_again_before_the_next_write(
    markdown, root, step, hours
):
    path = root / MEMORY
    await markdown().sync(scope("t1"), [add("memory", "ours 1"), add("memory", "wrong"), add("memory", "old")])
    dying = markdown(on_step=saved_before(path, "ours 1\n\nold\nby hand\n", then_end_at=step))
    with pytest.raises(ProcessEnds):
        await dying.sync(scope("t2"), [add("memory", "ours 2")])
    save_later(path, path.read_text().replace("old\n", "").replace("ours 1", "ours 1\nby hand as well"), 3600 * hours)
    provider = markdown()
    await provider.sync(scope("t3"), [add("memory", "ours 3")])
    assert sorted(lines(path)) == ["by hand", "by hand as well", "ours 1", "ours 2", "ours 3"]
    log = await provider.log(scope("x"))
    for newer, older in pairwise(entry for entry in log if entry.outcome == "applied"):
        assert newer.hash_before == older.hash_after


async def test_of_two_such_saves_that_change_one_line_both_stay(markdown, root):
    path = root / MEMORY
    await markdown().sync(scope("t1"), [add("memory", "likes tea"), add("memory", "ours 1")])
    dying = markdown(on_step=saved_before(path, "likes green tea\n\nours 1\n", then_end_at="renamed"))
    with pytest.raises(ProcessEnds):
        await dying.sync(scope("t2"), [add("memory", "ours 2")])
    path.write_text(path.read_text().replace("tea", "black tea"))
    await markdown().sync(scope("t3"), [add("memory", "ours 3")])
    assert sorted(lines(path)) == ["likes black tea", "likes green tea", "ours 1", "ours 2", "ours 3"]


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


@pytest.mark.parametrize("hours", [0.1, 30])
async def test_a_late_save_of_the_same_lines_takes_nothing_out(markdown, root, hours):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "ours 1")])
    with path.open("r+") as opened:
        await provider.sync(scope("t2"), [add("memory", "ours 2"), add("memory", "ours 3")])
        opened.write("ours 1\n\n\n")
    previous = path.with_name(".MEMORY.md.previous")
    later = previous.stat().st_mtime + hours * 3600
    os.utime(previous, (later, later))
    await provider.sync(scope("t3"), [add("memory", "ours 4")])
    assert lines(path) == ["ours 1", "ours 2", "ours 3", "ours 4"]


async def test_an_editor_that_had_not_seen_our_update_takes_it_back_only_until_the_next_write(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "old"), add("memory", "wrong")])
    stale = path.read_text()
    await provider.sync(scope("t2"), [add("memory", "ours"), remove("memory", "wrong")])
    path.write_text(stale + "\nby hand\n")
    await provider.sync(scope("t3"), [add("memory", "last")])
    assert path.read_text() == "old\n\n\nours\n\nby hand\n\nlast\n"
    log = await provider.log(scope("x"))
    assert [entry.action for entry in log] == ["add", "edit", "edit", "remove", "add", "add", "add"]
    assert [entry.refers_to for entry in log[1:3]] == [log[4].id, None]
    for newer, older in pairwise(log):
        assert newer.hash_before == older.hash_after


async def opened_before(provider, path, *lines):
    """The text as an editor has it that was opened before the agent added lines, which were written a while ago."""
    await provider.sync(scope("t0"), [add("memory", "# Notes\n\n- likes tea\n- lives in Paris")])
    stale = path.read_text()
    for line in lines:
        await provider.sync(scope(f"adds {line}"), [add("memory", line)])
    return stale


def full_disk(_path, _data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lines(path):
    return [line for line in path.read_text().split("\n") if line]


def save_later(path, text, seconds=600):
    """Save, as if it were that much later."""
    path.write_text(text)
    later = path.stat().st_mtime + seconds
    os.utime(path, (later, later))


async def test_an_editor_that_was_open_for_minutes_takes_nothing_out(markdown, root):
    provider, path = markdown(), root / MEMORY
    stale = await opened_before(provider, path, "ours 1", "ours 2")
    save_later(path, stale.replace("tea", "green tea"))
    await provider.sync(scope("t2"), [add("memory", "last")])
    assert path.read_text() == "# Notes\n\n- likes green tea\n- lives in Paris\n\nours 1\n\nours 2\n\nlast\n"


async def test_what_an_editor_had_not_read_is_there_for_the_next_prompt(markdown, root):
    provider, path = markdown(), root / MEMORY
    stale = await opened_before(provider, path, "ours 1")
    save_later(path, stale.replace("tea", "green tea"))
    context = await provider.prefetch(scope("t2"))
    assert context.project_memory == path.read_text()
    assert lines(path) == ["# Notes", "- likes green tea", "- lives in Paris", "ours 1"]
    assert [entry.action for entry in await provider.log(scope("x"))] == ["edit", "edit", "add", "add"]


async def test_a_prompt_does_not_wait_for_a_disk_that_takes_nothing(markdown, root, monkeypatch):
    provider, path = markdown(), root / MEMORY
    stale = await opened_before(provider, path, "ours 1")
    save_later(path, stale.replace("tea", "green tea"))
    monkeypatch.setattr("gateway.memory.atomic_document.write_new", full_disk)
    assert (await provider.prefetch(scope("t2"))).project_memory == stale.replace("tea", "green tea")
    monkeypatch.undo()
    await provider.sync(scope("t3"), [add("memory", "last")])
    assert lines(path) == ["# Notes", "- likes green tea", "- lives in Paris", "ours 1", "last"]


async def test_an_editor_that_saves_twice_without_reading_takes_nothing_out(markdown, root):
    provider, path = markdown(), root / MEMORY
    stale = await opened_before(provider, path, "ours 1")
    for number in (1, 2):
        stale = stale.replace("# Notes\n", f"# Notes\n- by hand {number}\n")
        save_later(path, stale, 600 * number)
        await provider.sync(scope(f"t{number}"), [add("memory", f"late {number}")])
    wanted = "# Notes|- by hand 2|- by hand 1|- likes tea|- lives in Paris|ours 1|late 1|late 2"
    assert lines(path) == wanted.split("|")


@pytest.mark.parametrize("removed", ["ours 1", "ours 2", "- likes tea"])
async def test_a_line_that_a_person_takes_out_stays_out(markdown, root, removed):
    provider, path = markdown(), root / MEMORY
    await opened_before(provider, path, "ours 1", "ours 2")
    save_later(path, path.read_text().replace(f"{removed}\n", ""))
    await provider.sync(scope("t2"), [add("memory", "last")])
    assert removed not in path.read_text()
    assert "last" in path.read_text()


@pytest.mark.parametrize("seconds", [0, 600])
async def test_who_takes_their_own_line_out_keeps_what_they_had_not_read(markdown, root, seconds):
    provider, path = markdown(), root / MEMORY
    await provider.sync(scope("t0"), [add("memory", "# Notes\n\n- likes tea\n- lives in Paris")])
    before = path.read_text()
    path.write_text(before + "- by hand\n")
    await provider.prefetch(scope("t1"))
    await provider.sync(scope("t1"), [add("memory", "ours")])
    save_later(path, before, seconds)
    await provider.sync(scope("t2"), [add("memory", "last")])
    assert lines(path) == ["# Notes", "- likes tea", "- lives in Paris", "ours", "last"]


async def test_a_text_that_a_person_empties_stays_empty(markdown, root):
    provider, path = markdown(), root / MEMORY
    await opened_before(provider, path, "ours 1", "ours 2")
    save_later(path, "\n")
    await provider.sync(scope("t2"), [add("memory", "last")])
    assert path.read_text() == "last\n"


async def test_a_line_that_came_back_is_gone_when_the_person_takes_it_out_again(markdown, root):
    provider, path = markdown(), root / MEMORY
    stale = await opened_before(provider, path, "ours 1")
    fixed = stale.replace("tea", "green tea")  # read with "ours 1", which they took out together with another change
    save_later(path, fixed)
    await provider.sync(scope("t2"), [remove("memory", "Paris")])
    assert "ours 1" in path.read_text()
    save_later(path, path.read_text().replace("ours 1\n", ""), 1200)
    await provider.sync(scope("t3"), [add("memory", "last")])
    assert lines(path) == ["# Notes", "- likes green tea", "last"]


async def test_a_second_save_before_the_rename_takes_nothing_out(markdown, root):
    path = root / MEMORY
    stale = await opened_before(markdown(), path, "ours 1")
    await markdown().sync(scope("t2"), [remove("memory", "Paris")])
    path.write_text(stale + "by hand 1\n")
    provider = markdown(on_step=Editor("recorded", in_place(path, lambda text: text + "by hand 2\n")))
    assert (await provider.sync(scope("t3"), [add("memory", "last")])).outcomes == ("applied",)
    assert lines(path) == ["# Notes", "- likes tea", "ours 1", "by hand 1", "by hand 2", "last"]


async def test_where_both_changed_a_line_the_persons_stands_and_the_agents_is_a_proposal(root, database):
    path, proposals = root / MEMORY, SqlProposals(database)
    provider = MarkdownFileMemoryProvider(root, SqlMemoryJournal(database))
    stale = await opened_before(provider, path, "ours 1")
    await provider.sync(scope("t2"), [replace("memory", "# Notes\n\n- likes coffee\n- lives in Paris\n\nours 1")])
    save_later(path, stale.replace("tea", "green tea"))
    await provider.sync(scope("t3"), [add("memory", "last")])
    await provider.close()
    assert path.read_text() == "# Notes\n\n- likes green tea\n- lives in Paris\n\nours 1\n\nlast\n"
    (proposal,) = await proposals.proposals()
    assert (proposal.store, proposal.updates) == ("memory", (add("memory", "- likes coffee"),))
    assert (proposal.scope.user_id, proposal.scope.session_id) == ("u_1", "s")
    assert proposal.sources == ("an edit of the same lines by hand",)
    assert {entry.content for entry in await provider.log(scope("x")) if entry.action == "edit"} == {""}


async def test_whoever_is_refused_for_a_hand_edit_finds_it_in_the_history(markdown, root):
    provider, path = markdown(), root / MEMORY
    await provider.sync(scope("t1"), [add("memory", "ours")])
    version = (await provider.read(scope("x"), "memory")).version
    path.write_text("ours\nby hand\n")
    with pytest.raises(MemoryConflict):
        await provider.write(scope("w"), "memory", "mine", version)
    assert [(entry.action, entry.outcome) for entry in await provider.log(scope("x"))] == [
        ("edit", "applied"),
        ("add", "applied"),
    ]
    await provider.sync(scope("t2"), [add("memory", "last")])
    assert [entry.action for entry in await provider.log(scope("x"))] == ["add", "edit", "add"]


async def test_a_hand_edit_is_listed_before_the_change_that_came_after_it(markdown, root):
    provider, path = markdown(), root / MEMORY
    await provider.sync(scope("t1"), [add("memory", "ours 1")])
    path.write_text("ours 1\nby hand\n")
    saved_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    await provider.sync(scope("t2"), [add("memory", "ours 2")])
    for log in (await provider.log(scope("x")), await provider.log()):
        assert [entry.action for entry in log] == ["add", "edit", "add"]
        assert abs(log[1].at - saved_at) < timedelta(milliseconds=1)


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


async def test_who_corrects_the_only_line_of_an_old_text_takes_nothing_out(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "Ada lives in Paris")])
    opened = path.read_text()
    await provider.sync(scope("t2"), [add("memory", "sings"), add("memory", "has a dog")])
    path.write_text(opened.replace("Paris", "Rome"))
    await provider.sync(scope("t3"), [add("memory", "likes tea")])
    assert path.read_text() == "Ada lives in Rome\n\nsings\n\nhas a dog\n\nlikes tea\n"


async def test_who_corrects_the_only_line_once_more_takes_nothing_out(markdown, root):
    path = root / MEMORY
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "Ada lives in Paris")])
    opened = path.read_text().replace("Paris", "Rome")
    path.write_text(opened)
    await provider.sync(scope("t2"), [remove("memory", "Rome"), add("memory", "sings")])
    path.write_text(opened.replace("Rome", "Rome now"))
    await provider.prefetch(scope("t3"))
    assert path.read_text().split("\n") == ["sings", "Ada lives in Rome now", ""]


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
