"""People in a memory on a server: erased there too, exported as they edited it there, and united for both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import MemoryUnavailable
from gateway.memory.webdav import memory as memory_module
from gateway.memory.webdav.memory import WebdavMemory
from gateway.testing.memory import add, scope
from tests.gateway.memory.webdav.conftest import Line, Opens

SHARED = "personalities/assistant/MEMORY.md"
LINES = {SHARED: ["The kanarieada door is blue"]}


async def two_note(memory: WebdavMemory) -> None:
    """Ada and Ben, of themselves and of what all share; Ada also for one personality alone."""
    await memory.sync(scope("t1"), [add("user", "Ada kanarieada"), add("memory", "The kanarieada door is blue")])
    await memory.sync(scope("t2", place="per-user"), [add("memory", "Private kanarieada")])
    await memory.sync(scope("t3", user="u_2"), [add("user", "Ben"), add("memory", "The gate is green")])
    await memory.settle()


def traces_in(*places: Path) -> list[str]:
    """The names of what still tells of Ada, on a disk; but the history, which is in a database."""
    found = [path for place in places for path in place.rglob("*")]
    return [
        str(path)
        for path in found
        if "u_1" in path.name or (path.is_file() and ".db" not in path.name and b"kanarieada" in path.read_bytes())
    ]


async def test_who_is_erased_is_gone_on_the_server_and_what_others_edited_there_stays(
    memory: WebdavMemory, folder: Path, tmp_path: Path
) -> None:
    await two_note(memory)
    assert (folder / "users/u_1/personalities/assistant/MEMORY.md").exists()
    (folder / SHARED).write_text("The kanarieada door is blue\n\nThe gate is green\n\nBy hand\n")
    (folder / "users/u_1/diary.txt").write_text("kanarieada, put there by hand")
    await memory.erase(["u_1"], LINES)
    assert (folder / SHARED).read_text() == "The gate is green\n\nBy hand\n"
    assert not traces_in(folder, tmp_path)
    assert (folder / "users/u_2/USER.md").read_text() == "Ben\n"
    await memory.settle()
    found = await memory.prefetch(scope("look", user="u_2"))
    assert found is not None
    assert found.project_memory == "The gate is green\n\nBy hand\n"
    assert not traces_in(folder, tmp_path), "what was asked since has not brought them back"


async def test_an_erasure_waits_for_a_server_that_is_away_and_is_done_when_it_is_back(
    opens: Opens, line: Line, folder: Path, tmp_path: Path
) -> None:
    memory = opens()
    await two_note(memory)
    line.is_cut = True
    for _ in range(2):
        with pytest.raises(MemoryUnavailable):
            await memory.erase(["u_1"], LINES)
    assert (folder / "users/u_1/USER.md").exists()
    line.is_cut = False
    await memory.erase(["u_1"], LINES)
    assert not traces_in(folder, tmp_path)


@pytest.mark.parametrize("step", ["merged", "lines_erased", "put", "noted", "user_erased"])
async def test_an_erasure_that_breaks_off_is_done_by_the_next_process(
    opens: Opens, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    first = opens()
    await two_note(first)
    (folder / SHARED).write_text("The kanarieada door is blue\n\nThe gate is green\n\nBy hand\n")

    def crash(name: str) -> None:
        if name == f"memory.webdav.{step}":
            raise KeyboardInterrupt(name)

    with monkeypatch.context() as patched:
        patched.setattr(memory_module, "reach", crash)
        with pytest.raises(KeyboardInterrupt, match=step):
            await first.erase(["u_1"], LINES)
    await first.close()
    second = opens()
    await second.open()
    await second.settle()
    for _ in range(2):  # again is harmless
        await second.erase(["u_1"], LINES)
    assert (folder / SHARED).read_text() == "The gate is green\n\nBy hand\n"
    assert not traces_in(folder, tmp_path)


async def test_an_export_has_what_was_edited_on_the_server(memory: WebdavMemory, folder: Path) -> None:
    await two_note(memory)
    (folder / "users/u_1/USER.md").write_text("Ada, by hand\n")
    (folder / "users/u_1/personalities/assistant/MEMORY.md").write_text("Private, by hand\n")
    assert await memory.export(["u_1"]) == {
        "u_1/USER.md": b"Ada, by hand\n",
        "u_1/personalities/assistant/MEMORY.md": b"Private, by hand\n",
    }


async def test_an_export_has_what_is_here_where_the_server_is_away(opens: Opens, line: Line) -> None:
    memory = opens()
    await two_note(memory)
    line.is_cut = True
    assert (await memory.export(["u_1"]))["u_1/USER.md"] == b"Ada kanarieada\n"


async def test_two_people_become_one_on_the_server_too_and_two_again(memory: WebdavMemory, folder: Path) -> None:
    await memory.sync(scope("t1"), [add("user", "Ada")])
    await memory.sync(scope("t2", user="u_2"), [add("user", "Works at night")])
    await memory.settle()
    (folder / "users/u_2/USER.md").write_text("Works at night\n\nBy hand\n")
    await memory.unite("link1", "u_1", "u_2")
    await memory.settle()
    assert (folder / "users/u_1/USER.md").read_text() == "Ada\n\nWorks at night\n\nBy hand\n"
    assert await memory.part("link1", "u_1", "u_2", ["u_1"]) is False
    await memory.settle()
    assert (folder / "users/u_1/USER.md").read_text() == "Ada\n"
    assert (folder / "users/u_2/USER.md").read_text() == "Works at night\n\nBy hand\n"
