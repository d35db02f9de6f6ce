"""A copy has the same bytes, archives and history; what it cannot take it says; and it may be cut anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.app.memory import make_memory
from gateway.app.traces import memory_in, open_configured_traces
from gateway.config import Config, LiveConfig
from gateway.config.file import load_provider
from gateway.errors import InvalidId, MemoryConflict, NotOffered
from gateway.files.home import DATABASE_NAME
from gateway.memory import rules
from gateway.memory.copying import CopiedDocument, Copying, copies, left_behind
from gateway.memory.stored.whole import CopiesMemory, with_ids
from gateway.protocols import MemoryDocument, MemoryScope, MemoryStoreName, MemoryUpdate, OpensMemory
from gateway.store.stores import open_store
from tests.servers import webdav

MAX_BYTES = 4096
KINDS = ["redis", "postgres", "webdav", "traces", "database"]


@pytest.fixture(scope="session")
def dav() -> Iterator[webdav.WebdavServer]:
    with webdav.wsgidav() as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """An empty place for a memory of a kind, as the command takes it."""

    def made(kind: str) -> str:
        match kind:
            case "redis":
                url = request.getfixturevalue("redis_server").url
                return f"{{kind: redis, url: '{url}', prefix: copy-{uuid4().hex[:8]}}}"
            case "postgres":
                return f"{{kind: postgres, url: '{request.getfixturevalue('postgres_url')}'}}"
            case "webdav":
                server = request.getfixturevalue("dav")
                folder = uuid4().hex
                (server.files / folder).mkdir()
                return f"{{kind: webdav, url: '{server.url}/{folder}', locks: true}}"
        return kind

    return made


@asynccontextmanager
async def memory(home: Path, chosen: str = "markdown") -> AsyncIterator[Any]:
    """The memory that a gateway on this data directory would have."""
    home.mkdir(mode=0o700, exist_ok=True)
    provider = load_provider(chosen, "--to", home)
    parts = Config().memory.model_copy(update={"provider": provider, "max_file_bytes": MAX_BYTES})
    config = Config().model_copy(update={"memory": parts})
    async with AsyncExitStack() as stack:
        store = open_store(home / DATABASE_NAME)
        stack.push_async_callback(store.close)
        traces = None
        if chosen == "traces":
            trace_store = await open_configured_traces(stack, home, config, store)
            traces = memory_in(trace_store, LiveConfig(config))
        made: Any = make_memory(home, config, store, traces)
        assert isinstance(made, CopiesMemory)
        stack.push_async_callback(made.close)
        if isinstance(made, OpensMemory):
            await made.open()
        yield made


async def copied(source: Any, target: Any, *, overwrites: bool = False) -> list[CopiedDocument]:
    one, other = copies(source), copies(target)
    copying = Copying(one, other, overwrites=overwrites)
    return [await copying.copy(key) for key in await one.keys()]


def states(documents: list[CopiedDocument]) -> set[str]:
    return {document.state for document in documents}


def scope(turn: str, **names: Any) -> MemoryScope:
    return replace(
        MemoryScope(personality_id="assistant", user_id="u_ada", session_id="s_1", turn_id=turn, channel="mail"),
        **names,
    )


async def live(home: Path) -> None:
    """What a year leaves, in small: turns, an undo, edits by hand, odd bytes, a cut text, originals of a link."""
    async with memory(home) as files:
        await files.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog."), MemoryUpdate.add("memory", "Brief.")])
        await files.sync(
            scope("t_2"), [MemoryUpdate.add("user", "Called Rex."), MemoryUpdate.remove("user", "no such")]
        )
        await files.sync(scope("t_3"), [MemoryUpdate.add("user", "Eats cake.")])
        [newest, *_] = await files.log(scope("-"), "user")
        await files.undo(scope("t_4"), newest.id)
        notes = home / "personalities" / "assistant" / "MEMORY.md"
        notes.write_bytes(notes.read_bytes().replace(b"\n", b"\r\n") + b"by hand \xff\r\n")
        await files.sync(scope("t_5"), [MemoryUpdate.add("memory", "Speak up.")])
        for number in range(80):
            update = MemoryUpdate.add("memory", f"{number}: {'word ' * 20}")
            await files.sync(scope(f"t_6_{number}", place="per-user"), [update])
    kept = home / "users" / "u_ada" / "before-k_1"
    (kept / "personalities" / "assistant").mkdir(parents=True)
    (kept / "USER.md").write_bytes(b"Before.\n")
    (kept / "personalities" / "assistant" / "MEMORY.md").write_bytes(b"Before, too.\n")
    (kept / ".complete").write_bytes(b"")


def texts(home: Path) -> dict[str, bytes]:
    """Every text that people can find, and every archive."""
    found = [*home.rglob("*.md"), *home.rglob(".complete")]
    return {str(path.relative_to(home)): path.read_bytes() for path in found if "memory" not in path.parts}


async def histories(source: Any) -> dict[str, Any]:
    """Of each document, without the ids."""
    found = {key: (await source.whole(key)).entries for key in await source.keys()}
    return {key: with_ids(entries, range(len(entries))) for key, entries in found.items()}


# ---- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
async def test_there_and_back_gives_the_same_bytes_archives_and_history(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    await live(tmp_path / "one")
    there = place(kind)
    async with memory(tmp_path / "one") as source, memory(tmp_path / "beside", there) as target:
        assert states(await copied(source, target)) == {"copied"}
        assert states(await copied(source, target)) == {"same"}
        before = await histories(source)
        assert await histories(target) == before
        assert sum(len(each) for each in before.values()) > 80
    async with memory(tmp_path / "beside", there) as source, memory(tmp_path / "two") as target:
        assert states(await copied(source, target)) == {"copied"}
        assert await histories(target) == before
    assert texts(tmp_path / "two") == texts(tmp_path / "one")
    assert "users/u_ada/personalities/assistant/memory-archive.md" in texts(tmp_path / "two")
    times = [(tmp_path / name / "users" / "u_ada" / "USER.md").stat().st_mtime for name in ("one", "two")]
    assert times[0] == pytest.approx(times[1], abs=1e-3 if kind == "database" else 1e-5)  # it counts milliseconds


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_changed_before_the_copy_can_be_explained_and_taken_back_after_it(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    await live(tmp_path / "one")
    async with memory(tmp_path / "one") as source, memory(tmp_path / "two", place(kind)) as target:
        await copied(source, target)
        undone, *earlier = await target.log(scope("-"), "user")
        assert undone.action == "undo"
        [taken_back] = [each for each in earlier if each.id == undone.refers_to]  # its id is another one here
        assert (taken_back.action, taken_back.content) == ("add", "Eats cake.")
        origin = await target.why(scope("-"), "Called Rex")
        assert (origin.turn_id, origin.channel) == ("t_2", "mail")
        assert "Eats cake." in (await target.undo(scope("t_7"), undone.id)).content
        assert "Speak up." in (await target.read(scope("-"), "memory")).content


@pytest.mark.parametrize("kind", ["markdown", *KINDS])
async def test_a_turn_that_is_replayed_after_the_copy_is_not_applied_twice(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    updates = [MemoryUpdate.add("user", "Has a dog."), MemoryUpdate.remove("user", "no such")]
    async with memory(tmp_path / "one", place("redis")) as source, memory(tmp_path / "two", place(kind)) as target:
        await source.sync(scope("t_1"), updates)
        await copied(source, target)
        assert (await target.sync(scope("t_1"), updates)).outcomes[0] == "replayed"
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n"


@pytest.mark.parametrize("kind", ["markdown", *KINDS])
async def test_the_list_of_all_changes_has_the_same_order_after_a_copy(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path / "one", place("redis")) as source, memory(tmp_path / "two", place(kind)) as target:
        await target.sync(scope("t_own", personality_id="other"), [MemoryUpdate.add("memory", "Of the target.")])
        for number in range(9):
            user = f"u_{number % 3}"
            await source.sync(scope(f"t_{number}", user_id=user), [MemoryUpdate.add("user", f"{number}")])
        await copied(source, target)
        listed = [each.turn_id for each in await target.log() if each.turn_id != "t_own"]
        assert listed == [f"t_{number}" for number in reversed(range(9))]
        await target.sync(scope("t_9", user_id="u_0"), [MemoryUpdate.add("user", "9")])
        assert (await target.log())[0].turn_id == "t_9"


async def test_an_edit_by_hand_that_no_turn_has_seen_yet_goes_along_as_a_change(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path / "one") as source, memory(tmp_path / "two", place("postgres")) as target:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])
        (tmp_path / "one" / "users" / "u_ada" / "USER.md").write_bytes(b"Has a cat. \xff\n")
        assert states(await copied(source, target)) == {"copied"}
        assert states(await copied(source, target)) == {"same"}
        assert (await target.whole("users/u_ada/USER.md")).document.data == b"Has a cat. \xff\n"
        edit, first = await target.log(scope("-"), "user")
        assert (edit.action, edit.diff) == ("edit", "@@ -1 +1 @@\n-Has a dog.\n+Has a cat. \ufffd")
        assert (await target.undo(scope("t_2"), edit.id)).content == "Has a dog.\n"
        assert first.turn_id == "t_1"


@pytest.mark.parametrize("kind", ["markdown", *KINDS[1:]])
async def test_people_who_were_linked_before_the_copy_can_be_parted_after_it(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path, place("redis")) as source, memory(tmp_path, place(kind)) as target:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])
        await source.sync(scope("t_2", user_id="u_bob"), [MemoryUpdate.add("user", "Has a cat.")])
        await source.unite("k_1", "u_ada", "u_bob")
        await copied(source, target)
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n\nHas a cat.\n"
        await target.part("k_1", "u_ada", "u_bob", ["u_ada", "u_bob"])
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n"


async def test_the_same_edit_by_hand_of_two_documents_is_noted_for_each(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    """The journal of files takes a turn id once, for all documents."""
    users = ("u_ada", "u_bob")
    async with memory(tmp_path / "one") as source, memory(tmp_path / "two", place("redis")) as target:
        for user in users:
            (tmp_path / "one" / "users" / user).mkdir(parents=True)
            (tmp_path / "one" / "users" / user / "USER.md").write_text("Has a dog.\n")
        assert states(await copied(source, target)) == {"copied"}
        async with memory(tmp_path / "three") as back:
            assert states(await copied(target, back)) == {"copied"}
            assert [(await back.log(scope("-", user_id=user), "user"))[0].action for user in users] == ["edit"] * 2


# ---- what is at the target already ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["markdown", *KINDS])
async def test_another_text_at_the_target_is_left_until_it_is_said_otherwise(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path / "one", place("redis")) as source, memory(tmp_path / "two", place(kind)) as target:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog."), MemoryUpdate.add("memory", "Brief.")])
        await target.sync(scope("t_2"), [MemoryUpdate.add("user", "Has a cat.")])
        done = {each.key: each.state for each in await copied(source, target)}
        assert done == {"users/u_ada/USER.md": "conflict", "personalities/assistant/MEMORY.md": "copied"}
        assert (await target.read(scope("-"), "user")).content == "Has a cat.\n"
        done = {each.key: each.state for each in await copied(source, target, overwrites=True)}
        assert done == {"users/u_ada/USER.md": "copied", "personalities/assistant/MEMORY.md": "same"}
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n"
        await target.sync(scope("t_3"), [MemoryUpdate.add("user", "Called Rex.")])
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n\nCalled Rex.\n"


@pytest.mark.parametrize("kind", ["markdown", *KINDS])
async def test_an_earlier_copy_is_brought_up_to_date_without_a_question(
    kind: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path / "one", place("redis")) as source, memory(tmp_path / "two", place(kind)) as target:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])
        await copied(source, target)
        await source.sync(scope("t_2"), [MemoryUpdate.add("user", "Called Rex.")])
        assert states(await copied(source, target)) == {"copied"}
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n\nCalled Rex.\n"


async def test_files_and_their_copies_on_a_server_have_one_journal_and_do_not_disturb_each_other(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    there = place("webdav")
    await live(tmp_path)
    before = texts(tmp_path)
    async with memory(tmp_path) as files, memory(tmp_path, there) as server:
        history = await histories(files)
        assert states(await copied(files, server)) == {"copied"}
        assert states(await copied(server, files)) == {"same"}
        assert (texts(tmp_path), await histories(files), await histories(server)) == (before, history, history)
        await server.sync(scope("t_8"), [MemoryUpdate.add("user", "Called Rex, the second.")])
    async with memory(tmp_path) as files, memory(tmp_path, there) as server:
        done = {each.key for each in await copied(server, files) if each.state == "copied"}
        assert done == {"users/u_ada/USER.md"}
        assert (await files.read(scope("-"), "user")).content.endswith("Called Rex, the second.\n")
        newest, *_ = await files.log(scope("-"), "user")
        assert newest.turn_id == "t_8"


async def test_another_folder_on_a_server_takes_nothing_from_the_one_before(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    """What the new folder does not have was not deleted there; by the files it is copied from one to the other."""
    first, second = place("webdav"), place("webdav")
    async with memory(tmp_path, first) as one:
        await one.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])
    async with memory(tmp_path, second) as two:
        assert await two.prefetch(scope("-")) is None
    async with memory(tmp_path, first) as one:
        assert (await one.read(scope("-"), "user")).content == "Has a dog.\n"
        assert len(await one.log(scope("-"), "user")) == 1
        async with memory(tmp_path) as files:
            assert states(await copied(one, files)) == {"copied"}
    async with memory(tmp_path) as files, memory(tmp_path, second) as two:
        assert states(await copied(files, two)) == {"copied"}
        assert (await two.read(scope("-"), "user")).content == "Has a dog.\n"


async def test_what_is_written_at_the_target_meanwhile_is_not_overwritten(
    tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path / "one", place("redis")) as source, memory(tmp_path / "two") as target:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])
        key = "users/u_ada/USER.md"
        found = await target.whole(key)
        await target.sync(scope("t_2"), [MemoryUpdate.add("user", "Has a cat.")])
        assert not await target.put_whole(key, await source.whole(key), instead_of=found.document)
        assert (await target.read(scope("-"), "user")).content == "Has a cat.\n"


@pytest.mark.parametrize(
    "key", ["users/../USER.md", "users/u_ada/../../x/USER.md", "users/u_ada/before-../USER.md", "other", ""]
)
async def test_a_name_that_would_lead_elsewhere_is_left_and_named(
    key: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    async with memory(tmp_path / "one", place("redis")) as source, memory(tmp_path / "two") as target:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])
        whole = await source.whole("users/u_ada/USER.md")
        assert await source.put_whole(key, whole, instead_of=(await source.whole(key)).document)
        done = {each.key: each.state for each in await copied(source, target)}
        assert done == {"users/u_ada/USER.md": "copied", key: "left"}
        assert [*texts(tmp_path / "two")] == ["users/u_ada/USER.md"]
        with pytest.raises(InvalidId):
            await target.put_whole(key, whole, instead_of=whole.document)


# ---- memories of others ---------------------------------------------------------------------------------------------


class Notes:
    """A memory of somebody else, which gives and takes texts."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def keys(self) -> list[str]:
        return [*self.kept]

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        text = self.kept.get(self._key(scope, store), "")
        return MemoryDocument(content=text, location="notes", modified_at=None, version=rules.version(text.encode()))

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        now = await self.read(scope, store)
        if now.version != expected_version:
            raise MemoryConflict(proposed=content, current=now.content, current_version=now.version)
        self.kept[self._key(scope, store)] = content
        return await self.read(scope, store)

    def _key(self, scope: MemoryScope, store: MemoryStoreName) -> str:
        return (
            f"users/{scope.user_id}/USER.md" if store == "user" else f"personalities/{scope.personality_id}/MEMORY.md"
        )


async def test_a_memory_of_texts_takes_the_texts_and_says_what_stays_behind(tmp_path: Path) -> None:
    await live(tmp_path / "one")
    notes = Notes()
    async with memory(tmp_path / "one") as source:
        only = ("users/u_ada/USER.md", "personalities/assistant/MEMORY.md", "users/u_ada/before-k_1/USER.md")
        copying = Copying(copies(source), copies(notes), overwrites=False)
        done = [await copying.copy(key) for key in only]
        assert [each.state for each in done] == ["copied", "copied", "left"]
        assert notes.kept["users/u_ada/USER.md"] == "Has a dog.\n\nCalled Rex.\n"
        assert left_behind(done) == [
            "histories: no change from before the copy can be listed, explained or taken back (2 documents)",
            "bytes that are no UTF-8 text, and other line ends than LF (1 document)",
            "originals from before links: after `/unlink`, what came in with the link stays (1 document)",
        ]
    async with memory(tmp_path / "two") as target:
        copying = Copying(copies(notes), copies(target), overwrites=False)
        done = [await copying.copy(only[0])]
        assert states(done) == {"copied"}
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n\nCalled Rex.\n"
        [entry] = await target.log(scope("-"), "user")
        assert entry.action == "edit"


def test_a_memory_that_cannot_list_its_documents_is_refused_by_name() -> None:
    class Silent:
        pass

    with pytest.raises(NotOffered, match="Silent cannot be copied"):
        copies(Silent())


# ---- kills ----------------------------------------------------------------------------------------------------------

STEPS = [
    *(f"{name} {count}" for name in ("file.written", "file.renamed") for count in (1, 2, 3)),
    *(f"directory.synced {count}" for count in (1, 3, 5)),
    *(f"{name} {count}" for name in ("lock.held", "lock.releasing") for count in (1, 2, 4)),
    *(f"{name} {count}" for name in ("database.committing", "database.committed") for count in (1, 2, 4)),
]


def copy_command(home: Path, *arguments: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "memory", "copy", *arguments],
        env={**os.environ, "ETHOS_HOME": str(home), "ETHOS_FAILPOINTS": failpoint},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_any_step_and_called_again_it_ends_the_same(
    step: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    home, there = tmp_path / "home", place("redis")
    async with memory(tmp_path / "one", there) as source:
        await source.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog."), MemoryUpdate.add("memory", "Brief.")])
        await source.sync(scope("t_2"), [MemoryUpdate.add("user", "Called Rex.")])
        for number in range(80):
            await source.sync(scope(f"t_3_{number}"), [MemoryUpdate.add("memory", f"{number}: {'word ' * 20}")])
        before = await histories(source)
        whole = await source.whole("personalities/assistant/MEMORY.md")
    async with memory(home) as target:
        await target.sync(scope("t_1"), [MemoryUpdate.add("user", "Has a dog.")])  # an earlier version
    cut = copy_command(home, "--from", there, "--to", "markdown", failpoint=f"kill {step}")
    assert cut.returncode == -9, cut.stderr
    done = copy_command(home, "--from", there, "--to", "markdown")
    assert (done.returncode, done.stderr) == (0, "")
    async with memory(home) as target:
        assert await histories(target) == before
        assert (await target.read(scope("-"), "user")).content == "Has a dog.\n\nCalled Rex.\n"
        now = await target.whole("personalities/assistant/MEMORY.md")
        assert (now.document.data, now.archive) == (whole.document.data, whole.archive)
        assert whole.archive
        assert await histories(target) == before  # nothing there looks like an edit by hand


@pytest.mark.slow
@pytest.mark.parametrize("step", [f"{name} {count}" for name in ("lock.held", "lock.releasing") for count in (1, 2, 3)])
async def test_killed_on_the_way_to_a_server_and_called_again_it_ends_the_same(
    step: str, tmp_path: Path, place: Callable[[str], str]
) -> None:
    home, there = tmp_path / "home", place("postgres")
    await live(home)
    cut = copy_command(home, "--to", there, failpoint=f"kill {step}")
    assert cut.returncode == -9, cut.stderr
    done = copy_command(home, "--to", there)
    assert (done.returncode, done.stderr) == (0, "")
    async with memory(home) as source, memory(tmp_path / "beside", there) as target:
        assert await histories(target) == await histories(source)
        assert states(await copied(source, target)) == {"same"}
