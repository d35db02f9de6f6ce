"""The Markdown provider and its files."""

import asyncio
import errno
import os
import stat
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from gateway.errors import FileError, InvalidId, LockTimeout, UnsafePath
from gateway.memory import atomic_document as live_file
from gateway.testing.memory import BAD_IDS, add, remove, replace, scope

MEMORY = "personalities/assistant/MEMORY.md"


def names(directory):
    return sorted(each.name for each in directory.iterdir())


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("per-personality", MEMORY),
        ("global", "MEMORY.md"),
        ("per-user", "users/u_1/personalities/assistant/MEMORY.md"),
    ],
)
async def test_each_scope_has_its_place(markdown, root, place, path):
    provider = markdown()
    await provider.sync(scope("t", place=place), [add("memory", "M"), add("user", "U")])
    assert (root / path).read_text() == "M\n"
    assert (root / "users/u_1/USER.md").read_text() == "U\n"
    assert (root / path).parent.joinpath(".memory.lock").exists()
    assert (root / "users/u_1/.memory.lock").exists()


async def test_files_are_0600_and_directories_0700(markdown, root):
    await markdown(max_file_bytes=20).sync(scope("t"), [add("memory", "a line\n" * 10), add("user", "U")])
    for path in root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_a_malformed_id_writes_nothing_anywhere(markdown, root, tmp_path, bad):
    provider = markdown()
    for at in (scope("t", personality=bad), scope("t", user=bad)):
        with pytest.raises(InvalidId):
            await provider.sync(at, [add("memory", "x"), add("user", "x")])
    assert names(root) == []
    assert {"data"} <= set(names(tmp_path)) <= {"data", "journal.db", "journal.db-wal", "journal.db-shm"}


@pytest.mark.parametrize(
    "link", ["personalities", "personalities/assistant", MEMORY, "personalities/assistant/memory-archive.md"]
)
async def test_a_link_that_leads_out_is_refused_and_what_it_leads_to_is_untouched(markdown, root, tmp_path, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(outside if "." not in link else outside / "file")
    provider = markdown()
    with pytest.raises(UnsafePath):
        await provider.sync(scope("t"), [add("memory", "x")])
    with pytest.raises(UnsafePath):
        await provider.read(scope("t"), "memory")
    assert names(outside) == []


async def test_a_link_inside_is_followed_and_stays_a_link(markdown, root):
    (root / "notes.md").write_text("mine\n")
    (root / MEMORY).parent.mkdir(parents=True)
    (root / MEMORY).symlink_to(root / "notes.md")
    await markdown().sync(scope("t"), [add("memory", "ours")])
    assert (root / MEMORY).is_symlink()
    assert (root / "notes.md").read_text() == "mine\n\nours\n"


@pytest.mark.parametrize("updates", [[], [add("memory", " ")], [remove("memory", "x")], [remove("memory", "")]])
async def test_what_changes_nothing_makes_no_file_and_no_lock(markdown, root, updates):
    await markdown().sync(scope("t"), updates)
    assert names(root) == []


async def test_several_updates_are_one_write(markdown):
    steps = []
    provider = markdown(on_step=steps.append)
    await provider.sync(scope("t"), [add("memory", "A"), add("memory", "B"), remove("memory", "A")])
    assert steps.count("renamed") == 1


async def test_tasks_that_wait_for_one_file_share_a_write(markdown):
    steps = []
    provider = markdown(on_step=steps.append)
    await asyncio.gather(*(provider.sync(scope(f"t{number}"), [add("memory", f"{number}.")]) for number in range(50)))
    assert steps.count("renamed") <= 3
    text = (await provider.read(scope("x"), "memory")).content
    assert all(text.count(f"{number}.\n") >= 1 for number in range(50))


async def test_a_memory_write_costs_two_fsyncs(markdown, monkeypatch):
    count = 0
    real = os.fsync

    def counted(fd):
        nonlocal count
        count += 1
        real(fd)

    provider = markdown()
    await provider.sync(scope("t0"), [add("memory", "A"), add("user", "A")])
    monkeypatch.setattr(os, "fsync", counted)
    await provider.sync(scope("t1"), [add("memory", "B")])
    assert count == 2
    await provider.sync(scope("t2"), [add("memory", "C"), add("user", "C")])
    assert count == 6
    await provider.prefetch(scope("t3"))
    await provider.sync(scope("t3"), [remove("memory", "nothing")])
    assert count == 6


async def test_what_does_not_fit_goes_to_the_archive_and_nothing_is_lost(markdown, root):
    provider = markdown(max_file_bytes=100)
    facts = [f"fact number {number:03}" for number in range(30)]
    for fact in facts:
        await provider.sync(scope(fact), [add("memory", fact)])
        assert 0 < (root / MEMORY).stat().st_size <= 100
    archive = (root / MEMORY).with_name("memory-archive.md").read_text()
    live = (root / MEMORY).read_text()
    assert [line for line in (archive + live).split("\n") if line] == facts
    assert "archive" not in str(await provider.prefetch(scope("x")))
    assert facts[0] not in (await provider.prefetch(scope("x"))).project_memory


async def test_one_long_line_does_not_empty_the_file(markdown, root):
    await markdown(max_file_bytes=10).sync(scope("t"), [add("memory", "ß" * 20)])
    assert (root / MEMORY).read_text() == "ßßßß\n"
    assert (root / MEMORY).with_name("memory-archive.md").read_text() == "ß" * 16


async def test_bytes_that_are_not_utf8_are_shown_but_not_changed(markdown, root):
    (root / MEMORY).parent.mkdir(parents=True)
    (root / MEMORY).write_bytes(b"caf\xe9\n")
    provider = markdown()
    assert (await provider.prefetch(scope("t"))).project_memory == "caf\ufffd\n"
    await provider.sync(scope("t"), [add("memory", "more")])
    assert (root / MEMORY).read_bytes() == b"caf\xe9\n\nmore\n"


async def test_a_file_that_cannot_be_read_does_not_hide_the_other(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "of all"), add("user", "of one")])
    (user,) = root.glob("users/*/USER.md")
    user.unlink()
    user.mkdir()
    with capture_logs() as logs:
        context = await provider.prefetch(scope("t2"))
    assert (context.user_memory, context.project_memory) == (None, "of all\n")
    assert [(line["event"], line["store"]) for line in logs] == [("memory_file_unreadable", "user")]
    (root / MEMORY).unlink()
    (root / MEMORY).mkdir()
    with pytest.raises(FileError, match="is not a regular file; move it away"):
        await provider.prefetch(scope("t3"))


async def test_the_hidden_files_beside_a_memory_never_grow_without_end(markdown, root):
    provider = markdown()
    most = 0
    for number in range(150):
        await provider.sync(scope(f"t{number}"), [replace("memory", str(number))])
        most = max(most, len(names((root / MEMORY).parent)))
    assert most <= 70
    # The next process tidies what this one left.
    await markdown().sync(scope("last"), [replace("memory", "last")])
    assert len(names((root / MEMORY).parent)) <= 5


async def test_the_version_before_is_kept_beside(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A")])
    await provider.sync(scope("t2"), [add("memory", "B")])
    assert (root / MEMORY).with_name(".MEMORY.md.previous").read_text() == "A\n"


async def test_a_full_disk_is_an_error_that_loses_nothing(markdown, root, journal, monkeypatch):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A")])
    before = (root / MEMORY).read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(live_file, "write_new", full)
        with pytest.raises(FileError, match=r"No space left.*untouched"):
            await provider.sync(scope("t2"), [add("memory", "B")])
    assert (root / MEMORY).read_bytes() == before
    assert [at.turn_id for at, _ in await journal.unsettled()] == ["t2"]
    assert await provider.replay() == 1
    assert (root / MEMORY).read_text() == "A\n\nB\n"
    assert not [name for name in names((root / MEMORY).parent) if name.endswith(".new")]


async def test_a_lock_that_is_held_too_long_names_its_holder_and_the_update_is_applied_later(markdown, root, journal):
    (root / MEMORY).parent.mkdir(parents=True)
    program = "import sys; from pathlib import Path; from gateway.files.locks import hold; hold(Path(sys.argv[1]));"
    program += "print(flush=True); sys.stdin.read()"
    lock = (root / MEMORY).with_name(".memory.lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", program.replace("hold(Path", "held = hold(Path"), str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert holder.stdout.readline() == b"\n"
        provider = markdown(lock_timeout_s=0.05)
        with pytest.raises(LockTimeout, match=f"process {holder.pid}"):
            await provider.sync(scope("t"), [add("memory", "A")])
    finally:
        holder.kill()
        holder.communicate()
    assert not (root / MEMORY).exists()
    assert await markdown().replay() == 1
    assert (root / MEMORY).read_text() == "A\n"
    assert await journal.unsettled() == []


async def test_a_caller_that_is_cancelled_leaves_no_half_of_anything(markdown, root):
    provider = markdown()
    tasks = [asyncio.create_task(provider.sync(scope(f"t{n}"), [add("memory", f"{n}.")])) for n in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await provider.close()
    await provider.replay()
    text = (root / MEMORY).read_text()
    assert all(text.count(f"{n}.\n") == 1 for n in range(1, 10, 2))
    assert all(text.count(f"{n}.\n") <= 1 for n in range(10))


async def test_two_providers_on_one_directory_lose_nothing(markdown):
    providers = [markdown(), markdown()]
    await asyncio.gather(
        *(providers[n % 2].sync(scope(f"t{n}"), [add("memory", f"<{n}>")]) for n in range(40)),
    )
    text = (await providers[0].read(scope("x"), "memory")).content
    assert sorted(text.split()) == sorted(f"<{n}>" for n in range(40))
