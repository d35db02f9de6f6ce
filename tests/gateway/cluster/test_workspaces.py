"""Files of people where many workers share a database: one directory of all, whoever of them works on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.app.workspaces import MARKER_NAME
from gateway.config.file import load_config
from gateway.errors import ConfigError, FileError
from gateway.sandbox.workspace import MAX_FILE_BYTES, NoSuchFile, Workspace, Workspaces
from gateway.store.settings import known_workspaces
from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import PATIENCE_S, SECRET, config, reaches
from tests.scripted_model import ScriptedModel, call

WRITER = """
import sys
from pathlib import Path
from gateway.sandbox.workspace import NoSuchFile, Workspace
workspace, name, count = Workspace(Path(sys.argv[1]), quota_bytes=int(sys.argv[4])), sys.argv[2], int(sys.argv[3])
for number in range(count):
    try:
        workspace.write(f"{name}/{number}.txt", b"x" * 100, is_own=True)
    except NoSuchFile as error:
        assert "full" in str(error)
"""


def home_of(tmp_path: Path, url: str, name: str, place: Path, more: str = "") -> Path:
    tools = f"tools: {{files: true, python: true, workspaces: '{place}'}}\nlimits: {{lease_s: 5}}\n{more}"
    home = config(tmp_path / name, url, name, tools)
    text = (home / "config.yaml").read_text().replace("access: open", "access: open, max_attachment_bytes: 100000")
    (home / "config.yaml").write_text(text)
    return home


@contextlib.asynccontextmanager
async def serving(home: Path, *steps: object) -> AsyncIterator[Gateway]:
    """A worker whose model says this."""
    stop, model = asyncio.Event(), ScriptedModel(*steps)
    settings = load_config(home=home, environment={"ROOT": SECRET}).config
    async with Gateway(home, settings, is_served=False, model=lambda _name: model) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        try:
            await gateway.is_serving.wait()
            await reaches(gateway, "up")
            yield gateway
        finally:
            stop.set()
            await running


def channel_of(gateway: Gateway) -> FakeChannel:
    [channel] = gateway.adapters
    assert isinstance(channel, FakeChannel)
    return channel


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory that all workers share."""
    (made := tmp_path / "shared").mkdir(mode=0o700)
    return made


def write(name: str, text: str) -> object:
    return call("write_file", json.dumps({"name": name, "text": text}))


async def test_what_one_worker_writes_another_reads_sends_exports_and_erases(
    postgres_url: str, place: Path, tmp_path: Path
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with serving(
            home_of(tmp_path, postgres_url, "north", place), [write("tea.md", "green kanarie")], "Kept."
        ) as north:
            assert await channel_of(north).ask("keep it") == "Kept."
            # The other worker answers, and this one has the channel and delivers what it sends.
            await north.dispatcher.drain(0.0)
            steps = [[call("read_file", '{"name": "tea.md"}')], [call("send_file", '{"name": "tea.md"}')], "Here."]
            async with second(home_of(tmp_path, postgres_url, "south", place), steps) as (south, model):
                assert await channel_of(north).ask("send it") == "Here."
                assert model.requests[1].messages[-1].text == "green kanarie"
                assert channel_of(north).files == {"tea.md": b"green kanarie"}
                assert not [*(south.home / "exports").glob("*/*")], "nothing is left on its own disk"
                [user] = await south.identities.users()
                name, _ = await south.privacy.write_export(user.id)
                with zipfile.ZipFile(south.home / name) as archive:
                    assert archive.read("files/tea.md") == b"green kanarie"
                assert (place / "users" / user.id / "files" / "tea.md").exists()
                erasure = await south.privacy.schedule_erasure(user.id)
                while not (await south.store.engine.rows("SELECT 1 FROM erasures WHERE id = ?", (erasure,))):
                    await asyncio.sleep(0.02)
                assert not (place / "users" / user.id).exists()
                assert not await south.store.engine.rows("SELECT 1 FROM blobs")
    assert not [*tmp_path.glob("*th/users/*/files")], "the workers' own directories have none"


@contextlib.asynccontextmanager
async def second(home: Path, steps: list[object]) -> AsyncIterator[tuple[Gateway, ScriptedModel]]:
    """A worker that answers, while another has the channel."""
    stop, model = asyncio.Event(), ScriptedModel(*steps)
    settings = load_config(home=home, environment={"ROOT": SECRET}).config
    async with Gateway(home, settings, is_served=False, model=lambda _name: model) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        try:
            await gateway.is_serving.wait()
            yield gateway, model
        finally:
            stop.set()
            await running


async def test_a_linked_persons_files_come_together_at_whichever_worker(
    postgres_url: str, place: Path, tmp_path: Path
) -> None:
    async with asyncio.timeout(PATIENCE_S), serving(home_of(tmp_path, postgres_url, "north", place)) as north:
        north.workspaces.of_person("u_desk").write("tea.md", b"green", is_own=True)
        async with second(home_of(tmp_path, postgres_url, "south", place), []) as (south, _):
            south.workspaces.unite("u_phone", "u_desk")
            assert north.workspaces.of_person("u_phone").read("of-u_desk/tea.md") == (b"green", True)
            north.workspaces.part("u_phone", "u_desk")
            assert south.workspaces.of_person("u_desk").read("tea.md") == (b"green", True)


def test_writers_in_several_processes_lose_nothing_and_stay_below_the_quota(tmp_path: Path) -> None:
    def run(count: int, quota_bytes: int) -> Workspace:
        root = tmp_path / f"users-{quota_bytes}" / "files"
        words = [str(count), str(quota_bytes)]
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(root), name, *words], env={**os.environ})
            for name in ("a", "b", "c")
        ]
        assert [writer.wait(60) for writer in writers] == [0, 0, 0]
        return Workspace(root, quota_bytes=quota_bytes)

    roomy = run(40, 1_000_000)
    assert [file.is_own for file in roomy.files()] == [True] * 120, "and of none it is forgotten that it is their own"
    narrow = run(40, 5_050)
    assert narrow.used_bytes() == 5_000
    with pytest.raises(NoSuchFile, match="full"):
        narrow.write("one", b"x" * 100, is_own=True)
    assert MAX_FILE_BYTES > 5_050


async def refused(home: Path) -> str:
    settings = load_config(home=home, environment={"ROOT": SECRET}).config
    with pytest.raises(ConfigError) as error:
        async with Gateway(home, settings, is_served=False):
            pass
    return str(error.value)


async def test_a_directory_that_is_not_the_one_of_all_is_refused_at_the_start(
    postgres_url: str, place: Path, tmp_path: Path
) -> None:
    missing = home_of(tmp_path, postgres_url, "lost", tmp_path / "nowhere")
    assert "there is no directory" in await refused(missing)
    inside = home_of(tmp_path, postgres_url, "inside", tmp_path / "inside" / "files")
    assert "lie in one another; expected two apart" in await refused(inside)
    async with asyncio.timeout(PATIENCE_S), serving(home_of(tmp_path, postgres_url, "north", place)) as north:
        marker = json.loads((place / MARKER_NAME).read_text())
        assert await known_workspaces(north.store.engine) == marker["directory"]
        (empty := tmp_path / "empty").mkdir()
        told = await refused(home_of(tmp_path, postgres_url, "east", empty))
        assert "is not the directory that the other workers use, or its disk is not mounted" in told
        assert not [*empty.iterdir()], "nothing is left in it"
        (other := tmp_path / "other").mkdir()
        (other / MARKER_NAME).write_text(json.dumps({**marker, "directory": "another"}))
        assert "another directory than that of the other workers" in await refused(
            home_of(tmp_path, postgres_url, "west", other)
        )
        (other / MARKER_NAME).write_text(json.dumps({"gateway": "of others", "directory": "another"}))
        assert "belongs to another gateway" in await refused(home_of(tmp_path, postgres_url, "south", other))
        # A disk that goes away while the worker runs.
        workspace = north.workspaces.of_person("u_ada")
        workspace.write("tea.md", b"green", is_own=True)
        place.rename(tmp_path / "gone")
        place.mkdir()
        for use in (workspace.files, workspace.make, lambda: workspace.read("tea.md")):
            with pytest.raises(FileError, match="is not there any more; mount it again"):
                use()
        assert not [*place.iterdir()], "nothing is written beside it"


async def test_a_command_on_a_machine_without_the_directory_fails_only_where_it_needs_it(
    postgres_url: str, tmp_path: Path
) -> None:
    home = home_of(tmp_path, postgres_url, "desk", tmp_path / "nowhere")
    settings = load_config(home=home, environment={"ROOT": SECRET}).config
    gateway = Gateway(home, settings)
    async with gateway.at_rest():
        assert list(await gateway.identities.users()) == []
        with pytest.raises(FileError, match="there is no directory"):
            gateway.workspaces.of_person("u_ada").files()


async def test_two_that_start_at_once_with_different_directories_are_not_both_taken(
    postgres_url: str, tmp_path: Path
) -> None:
    homes = []
    for name in ("north", "south"):
        (tmp_path / f"of-{name}").mkdir()
        homes.append(home_of(tmp_path, postgres_url, name, tmp_path / f"of-{name}"))

    async def starts(home: Path) -> bool:
        settings = load_config(home=home, environment={"ROOT": SECRET}).config
        try:
            async with Gateway(home, settings, is_served=False):
                return True
        except ConfigError:
            return False

    async with asyncio.timeout(PATIENCE_S):
        assert sorted(await asyncio.gather(*map(starts, homes))) == [False, True]


async def test_a_worker_killed_while_its_program_runs_leaves_the_files_to_the_next(
    postgres_url: str, place: Path, tmp_path: Path
) -> None:
    """Another goes on with the conversation and the files."""
    code = "import time; open('begun', 'w').write('x'); time.sleep(50)"
    home = home_of(tmp_path, postgres_url, "north", place)
    script = f"""
import asyncio, json
from pathlib import Path
from tests.gateway.cluster.test_workspaces import channel_of, serving
from tests.scripted_model import call
async def main():
    run = call("run_python", json.dumps({{"code": {code!r}}}))
    async with serving(Path({str(home)!r}), [run], "Done.") as gateway:
        await channel_of(gateway).ask("run it")
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not [*place.glob("users/*/files/begun")]:
                assert process.poll() is None
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.wait()
            steps: list[object] = [[write("after.md", "on we go")], "Back again."]
            async with serving(home_of(tmp_path, postgres_url, "south", place), *steps, *steps) as south:
                while not any("Back again." in message.text for message in channel_of(south).sent):
                    await asyncio.sleep(0.02)
                [user] = await south.identities.users()
                workspace = Workspaces(place).of_person(user.id)
                assert {file.name for file in workspace.files()} == {"begun", "after.md"}
    finally:
        process.kill()
        process.wait()
