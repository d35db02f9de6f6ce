"""Uploads that break off in the middle. Apache then keeps what it had, wsgidav what had come; nothing is lost there."""

from collections import Counter
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.merging import merge_for_mine
from gateway.memory.webdav import server
from gateway.memory.webdav.copies import Copies
from gateway.memory.webdav.cut_uploads import base_of
from gateway.memory.webdav.memory import WebdavMemory
from gateway.memory.webdav.remote_file import RemoteFile
from gateway.testing.memory import add, remove, scope
from tests.gateway.memory.webdav.conftest import Line, Opens, until, uploading

KEY = "personalities/assistant/MEMORY.md"
BEFORE = "Tea.\n\nRye.\n\nOats.\n"
SENT = "Tea.\n\nOats.\n\nJam.\n\nPlums.\n"


@pytest.fixture(autouse=True)
def _short_locks(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOCK_S", 1)


@pytest.mark.parametrize("size", range(len(SENT) + 1))
def test_what_a_cut_swallowed_comes_back_with_what_was_edited_on_top(size: int) -> None:
    had = SENT[:size]
    here = SENT.replace("Oats", "Oat bran") + "\nFigs.\n"
    for there in (had, f"Mine.\n{had}"):
        base = base_of(BEFORE.encode(), SENT.encode(), there.encode()).decode()
        merged, _ = merge_for_mine(base, there, here)
        lines = [line for line in merged.splitlines() if line]
        new = ["Mine."] if there != had else []
        assert sorted(lines) == sorted([*new, "Tea.", "Oat bran.", "Jam.", "Plums.", "Figs."])


@st.composite
def cut(draw: st.DrawFn) -> tuple[str, str, str, bool]:
    """A text, what was made of it and sent, a part of that as somebody saved it again, and whether lines repeat."""
    words = ["---", "Tea.", "Tea is green.", "Rye.", "Oats."]
    old = draw(st.lists(st.sampled_from(words), max_size=8))
    new = [line for line in old if draw(st.booleans())] + draw(st.lists(st.sampled_from(["Jam.", "Figs.", "---"])))
    before, sent = ("\n".join(f"{line}\n" for line in lines) for lines in (old, new))
    had = sent[: draw(st.integers(0, len(sent)))]
    there = draw(st.sampled_from([had, f"Mine.\n{had}", f"{had}\nMine.\n"]))
    return before, sent, there, len({*new}) < len(new)


@given(cut())
def test_no_cut_loses_a_line(texts: tuple[str, str, str, bool]) -> None:
    """Lines that repeat may come once too often where nothing tells them apart, and never too seldom."""
    before, sent, there, has_repeats = texts
    base = base_of(before.encode(), sent.encode(), there.encode()).decode()
    merged = sent if base == there else merge_for_mine(base, there, sent)[0]
    wanted, found = (Counter(line for line in text.splitlines() if line) for text in (sent, merged))
    wanted["Mine."] = int("Mine." in there)
    assert found >= wanted
    assert has_repeats or found == wanted


@pytest.mark.parametrize(
    ("there", "merged"),
    [
        (BEFORE, SENT),
        (f"Mine.\n{BEFORE}", f"Mine.\n{SENT}"),
        (f"Mine.\n{SENT}", f"Mine.\n{SENT}"),
        (SENT.replace("Jam.\n\n", ""), SENT.replace("Jam.\n\n", "")),  # taken out by hand
        (BEFORE.replace("Tea.\n\n", ""), SENT.replace("Tea.\n\n", "")),
    ],
)
def test_an_upload_that_came_or_did_not_come_leaves_edits_as_they_are(there: str, merged: str) -> None:
    base = base_of(BEFORE.encode(), SENT.encode(), there.encode()).decode()
    assert merge_for_mine(base, there, SENT)[0] == merged


@pytest.mark.parametrize("size", [0, 3, 12])
async def test_a_line_that_is_cut_during_an_upload(memory: WebdavMemory, folder: Path, line: Line, size: int) -> None:
    await memory.sync(scope("t"), [add("memory", "Tea."), add("memory", "Rye.")])
    await memory.settle()
    line.cut_at = size
    await memory.sync(scope("t2"), [remove("memory", "Rye."), add("memory", "Oats.")])
    await until(lambda: memory.problem is not None)
    line.is_cut, line.cut_at = False, None
    await until(lambda: memory.problem is None)
    await memory.settle()
    found = await memory.prefetch(scope("t3"))
    assert found is not None
    assert found.project_memory == "Tea.\n\nOats.\n"
    assert (folder / KEY).read_text() == found.project_memory
    assert {change.turn_id for change in await memory.log(scope("t"), "memory")} == {"t", "t2"}


async def test_an_upload_that_came_to_nothing_is_forgotten_when_both_sides_agree(
    memory: WebdavMemory, line: Line, tmp_path: Path
) -> None:
    await memory.sync(scope("t"), [add("memory", "Tea.")])
    await memory.settle()
    line.is_cut = True
    await memory.sync(scope("t2"), [add("memory", "A secret.")])
    await until(lambda: memory.problem is not None)
    [change, _] = await memory.log(scope("t3"), "memory")
    await memory.undo(scope("t3"), change.id)
    assert [path for path in (tmp_path / "copies").iterdir() if b"A secret." in path.read_bytes()]
    line.is_cut = False
    await until(lambda: memory.problem is None)
    await memory.settle()
    assert not [path for path in (tmp_path / "copies").iterdir() if b"A secret." in path.read_bytes()]


async def test_a_process_that_died_during_an_upload_and_an_edit_of_what_it_left(
    opens: Opens, folder: Path, line: Line, dav
) -> None:
    first = opens()
    await first.open()
    await first.sync(scope("t"), [add("memory", "Tea."), add("memory", "Rye.")])
    await first.settle()
    line.cut_at = 3
    await first.sync(scope("t2"), [remove("memory", "Rye."), add("memory", "Oats.")])
    await until(lambda: first.problem is not None)
    await first.close()
    document = folder / KEY
    if dav.has_locks:
        await until(lambda: document.read_text() == "Tea")
    document.write_text(f"Mine.\n{document.read_text()}")
    line.is_cut, line.cut_at = False, None
    second = opens()
    line._inner = httpx.AsyncHTTPTransport()
    await second.open()
    await second.settle()
    found = await second.prefetch(scope("t3"))
    assert found is not None
    assert found.project_memory is not None
    assert sorted(found.project_memory.split()) == ["Mine.", "Oats.", "Tea."]
    assert document.read_text() == found.project_memory


@pytest.mark.parametrize("dav", ["wsgidav"], indirect=True)  # Apache puts a file in place when all of it has come
async def test_a_file_is_not_read_while_another_uploads_it(memory: WebdavMemory, folder: Path, dav) -> None:
    await memory.sync(scope("t"), [add("memory", "Tea."), add("memory", "Rye.")])
    await memory.settle()
    new = b"Tea.\n\nRye.\n\nMine.\n"
    request = httpx.Request("PUT", f"{dav.url}/{folder.name}/{KEY}", content=new)
    async with uploading(request, 5):
        await until(lambda: (folder / KEY).read_bytes() != b"Tea.\n\nRye.\n")
        found = await memory.prefetch(scope("t2"))
        assert found is not None
        assert found.project_memory == "Tea.\n\nRye.\n"
    (folder / KEY).write_bytes(new)
    await memory.settle()
    found = await memory.prefetch(scope("t3"))
    assert found is not None
    assert found.project_memory == new.decode()
    assert [change.action for change in await memory.log(scope("t"), "memory")] == ["edit", "add", "add"]


def test_an_erasure_reaches_an_upload_that_broke_off(tmp_path: Path) -> None:
    copies, shared, own = Copies(tmp_path / "copies"), "personalities/assistant/MEMORY.md", "users/u_1/USER.md"
    for key in (shared, own):
        copies.write(key, RemoteFile())
        copies.begin_upload(key, RemoteFile(), b"Ada likes tea.\n\nRain.\n")
    copies.erase(["u_1"], {shared: ["Ada likes tea."]})
    assert copies.keys() == [shared]
    assert copies.upload(shared, RemoteFile()) is not None
    assert not [path for path in (tmp_path / "copies").iterdir() if b"Ada" in path.read_bytes()]
