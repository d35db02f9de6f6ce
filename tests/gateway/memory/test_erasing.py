"""A person in the Markdown files: nothing that is taken out comes back by what the history knows."""

import asyncio

import pytest

from gateway.errors import LockTimeout
from gateway.files.locks import FileLock
from gateway.testing.memory import add, remove, scope, text_of

MEMORY = "personalities/assistant/MEMORY.md"
LINES = {MEMORY: ["kanarieada"]}


@pytest.fixture
async def filled(markdown):
    provider = markdown()
    await provider.sync(scope("t1", user="u_2"), [add("memory", "Ben")])
    await provider.sync(scope("t2"), [add("memory", "kanarieada"), add("user", "kanarieada")])
    return provider


async def test_a_turn_that_comes_in_between_does_not_bring_the_lines_back(filled, markdown, journal, monkeypatch):
    """It finds the file changed, and would think that somebody edited it who had not read the newest line."""
    other, forget = markdown(), journal.forget
    turns = []

    async def forget_slowly(*args):
        turns.append(asyncio.create_task(text_of(other, user="u_2")))
        await asyncio.wait(turns, timeout=0.3)
        await forget(*args)

    monkeypatch.setattr(journal, "forget", forget_slowly)
    await filled.erase(["u_1"], LINES)
    assert [await turn for turn in turns] == ["Ben\n"]
    await other.sync(scope("t3", user="u_2"), [add("memory", "Again")])
    assert await text_of(other, user="u_2") == "Ben\n\nAgain\n"


async def test_what_was_cut_and_what_lies_beside_the_file_goes_too(markdown, root):
    provider = markdown(max_file_bytes=40)
    for number in range(6):
        await provider.sync(scope(f"t{number}"), [add("memory", f"kanarieada {number}")])
        await provider.sync(scope(f"b{number}", user="u_2"), [add("memory", f"Ben {number}")])
    assert "kanarieada" in (root / MEMORY).with_name("memory-archive.md").read_text()
    await provider.erase(["u_1"], {MEMORY: [f"kanarieada {number}" for number in range(6)]})
    found = [path for path in root.rglob("*") if path.is_file()]
    assert not [path for path in found if b"kanarieada" in path.read_bytes()]
    assert "Ben 0" in (root / MEMORY).with_name("memory-archive.md").read_text()


async def test_the_history_of_others_stays_without_the_words(filled):
    await filled.sync(scope("t3", user="u_2"), [remove("memory", "kanarieada"), add("memory", "Red")])
    await filled.erase(["u_1"], LINES)
    log = await filled.log(scope("x"))
    assert [(one.action, one.content) for one in log] == [("add", "Red"), ("remove", ""), ("add", "Ben")]
    assert "kanarieada" not in str(log)


async def test_a_file_that_is_locked_is_an_error_and_all_is_known_for_the_next_try(markdown, root):
    provider = markdown(lock_timeout_s=0.01)
    await provider.sync(scope("t1"), [add("memory", "kanarieada")])
    async with FileLock((root / MEMORY).with_name(".memory.lock"), 1):
        with pytest.raises(LockTimeout):
            await provider.erase(["u_1"], LINES)
    assert [one.content for one in await provider.log()] == ["kanarieada"]
    await provider.erase(["u_1"], LINES)
    assert (root / MEMORY).read_text() == ""


async def test_malformed_ids_erase_nothing(filled, root):
    lines = {"../x": ["Ben"], "users/../MEMORY.md": ["Ben"], "": ["Ben"], "\ud800": ["Ben"], MEMORY: []}
    await filled.erase(["", "..", "a/b", "\ud800"], lines)
    assert await text_of(filled, user="u_2") == "Ben\n\nkanarieada\n"
    assert (root / "users/u_1/USER.md").exists()


async def test_a_turn_that_was_given_up_and_still_waits_for_the_file_writes_nothing_after_it(markdown, root):
    provider = markdown(lock_timeout_s=5)
    await provider.sync(scope("t1"), [add("user", "kanarieada")])
    user_md = root / "users/u_1/USER.md"
    async with FileLock(user_md.with_name(".memory.lock"), 1):
        turn = asyncio.create_task(provider.sync(scope("t2"), [add("user", "kanarieada again")]))
        await asyncio.wait([turn], timeout=0.2)
        turn.cancel()
        erasing = asyncio.create_task(provider.erase(["u_1"], {}))
        await asyncio.wait([erasing], timeout=0.2)
        assert not erasing.done()
    await erasing
    await provider.close()
    assert not user_md.exists()
    assert await provider.log() == []
