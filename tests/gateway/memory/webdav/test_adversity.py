"""What happens to servers: a folder that goes away, one file that cannot be read, very many documents."""

import asyncio
from pathlib import Path

import pytest

from gateway.memory.webdav.memory import WebdavMemory
from gateway.testing.memory import add, scope
from tests.gateway.memory.webdav.conftest import until

pytestmark = pytest.mark.usefixtures("impatient")
KEY = "personalities/assistant/MEMORY.md"


async def test_a_folder_that_is_gone_empties_no_document(memory: WebdavMemory, folder: Path) -> None:
    await memory.sync(scope("t"), [add("memory", "Tea.")])
    await memory.settle()
    away = folder.rename(folder.with_name(f"{folder.name}-away"))
    found = await memory.prefetch(scope("t2"))
    assert found is not None
    assert found.project_memory == "Tea.\n"
    assert "there is no such folder" in (memory.problem or "")
    away.rename(folder)
    await until(lambda: memory.problem is None)
    assert (folder / KEY).read_text() == "Tea.\n"
    (folder / KEY).unlink()  # one file that is deleted is meant to be
    assert await memory.prefetch(scope("t3")) is None


async def test_a_server_that_is_away_stays_known_to_be(memory: WebdavMemory, line) -> None:
    await memory.sync(scope("t"), [add("memory", "Tea.")])
    await memory.settle()
    line.is_cut = True
    await memory.prefetch(scope("t2"))
    for _ in range(50):
        assert memory.problem is not None
        await asyncio.sleep(0.01)
    line.is_cut = False
    await until(lambda: memory.problem is None)


async def test_one_file_that_cannot_be_read_holds_up_no_other(memory: WebdavMemory, folder: Path) -> None:
    await memory.sync(scope("t", user="u_1"), [add("user", "Ada.")])
    await memory.sync(scope("t2", user="u_2"), [add("user", "Ben.")])
    await memory.settle()
    theirs = folder / "users/u_1/USER.md"
    theirs.write_bytes(b"x" * 3_000_000)
    await memory.prefetch(scope("t3", user="u_1"))
    (folder / "users/u_2/USER.md").write_text("Ben, by hand.\n")
    found = await memory.prefetch(scope("t4", user="u_2"))
    assert found is not None
    assert found.user_memory == "Ben, by hand.\n"
    await memory.sync(scope("t5", user="u_2"), [add("user", "Here.")])
    await until(lambda: "Here." in (folder / "users/u_2/USER.md").read_text())
    assert any("u_1/USER.md is longer" in problem for problem in memory.problems)
    theirs.write_text("Ada, short.\n")
    await until(lambda: not memory.problems)
    found = await memory.prefetch(scope("t6", user="u_1"))
    assert found is not None
    assert found.user_memory == "Ada, short.\n"


async def test_very_many_documents_at_the_start(opens, folder: Path, tmp_path: Path) -> None:
    memory = opens()
    root = memory._files.root
    for number in range(60):
        path = root / f"users/u_{number}/USER.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"{number}\n")
    await memory.open()
    problems: set[str] = set()
    most = 0
    async with asyncio.timeout(100):
        while memory.late:
            problems.update(memory.problems)
            most = max(most, len(memory._exchanges))
            await asyncio.sleep(0.01)
    assert not problems
    assert 0 < most <= 8
