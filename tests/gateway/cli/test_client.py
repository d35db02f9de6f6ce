"""The gateway as commands reach it: running, at rest, and in between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from ethos import AsyncEthos
from gateway.app.gateway import Gateway
from gateway.cli.client import connected
from gateway.cli.errors import GatewaySilent, explained
from gateway.config.file import load_config
from gateway.errors import ConfigError, DataDirectoryLocked, EthosError, LockTimeout, SchemaTooNew, StoreUnavailable
from gateway.files import running_gateway as module
from gateway.files.home import DATABASE_NAME, LOCK_NAME, prepare_home
from gateway.files.locks import hold
from gateway.files.unix_socket import SOCKET_NAME, listen
from gateway.sdk.client import Client
from gateway.sdk.errors import APIConnectionError, APITimeoutError, error_from
from gateway.sdk.in_process import InProcessTransport
from gateway.sdk.transport import PIECE_BYTES, HttpRequest
from gateway.services.caller import Malformed, NotFound, Refused
from gateway.store.stores import open_store
from gateway.web.api.problems import on_error

WAIT_S = 60
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETHOS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def note(text: str) -> str:
    """Write the shared memory of the default personality, as a command would."""
    async with connected(makes=True) as client:
        before = await client.memory.get("memory")
        return (await client.memory.write("memory", text, before.version)).content


async def noted() -> str:
    async with connected() as client:
        return (await client.memory.get("memory")).content


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[Gateway]:
    async with Gateway(home, load_config(home=home).config, only=(), is_served=False) as gateway:
        stop = asyncio.Event()
        serving = asyncio.create_task(gateway.run(stop))
        await asyncio.wait_for(gateway.is_serving.wait(), WAIT_S)
        yield gateway
        stop.set()
        await asyncio.wait_for(serving, WAIT_S)


# ---- at rest --------------------------------------------------------------------------------------------------------


async def test_looking_makes_nothing_where_there_is_no_directory(home: Path) -> None:
    async with connected() as client:
        assert [one async for one in client.sessions.list()] == []
        assert (await client.memory.get("memory")).content == ""
    assert not home.exists()


async def test_looking_makes_no_database_beside_a_configuration(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("memory: {traces: {enabled: true}}\n")
    assert await noted() == ""
    assert sorted(path.name for path in home.iterdir()) == ["config.yaml"]


async def test_a_command_that_writes_makes_the_directory_and_the_next_one_reads(home: Path) -> None:
    assert await note("Tea is green.\n") == "Tea is green.\n"
    assert home.stat().st_mode & 0o077 == 0
    assert await noted() == "Tea is green.\n"
    async with running(home):
        assert await noted() == "Tea is green.\n"
        await note("Tea is black.\n")
    assert await noted() == "Tea is black.\n"


_ONE_OF_MANY = """
import asyncio, sys
from gateway.cli.client import connected
from gateway.cli.errors import GatewaySilent, explained

async def main():
    async with connected(makes=True) as client:
        await client.personalities.create(sys.argv[1], name=sys.argv[1], copy_of="assistant")

with explained():
    asyncio.run(main())
"""


@pytest.mark.slow
def test_many_commands_that_write_at_once_wait_for_each_other(home: Path) -> None:
    """Also for the first of them, which makes the directory."""
    names = [f"p{number}" for number in range(20)]
    processes = [
        subprocess.Popen([sys.executable, "-c", _ONE_OF_MANY, name], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for name in names
    ]
    told = [process.communicate(timeout=4 * WAIT_S)[1] for process in processes]
    assert [(process.returncode, text) for process, text in zip(processes, told, strict=True)] == [(0, "")] * 20
    assert {path.name for path in (home / "personalities").iterdir()} >= {*names}


async def test_the_lock_of_a_killed_process_holds_nobody_up(home: Path) -> None:
    await note("Tea.\n")
    listen(home / SOCKET_NAME).close()  # what it left
    program = (
        "import sys, time, pathlib; from gateway.files.locks import hold; from gateway.files.home import *\n"
        f"held = hold(pathlib.Path({str(home / LOCK_NAME)!r})); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waiting = asyncio.create_task(noted())
    holder.send_signal(signal.SIGKILL)
    assert await asyncio.wait_for(waiting, WAIT_S) == "Tea.\n"
    holder.wait()
    holder.stdout.close()


async def test_a_directory_that_is_held_for_too_long_is_said_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await note("Tea.\n")
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    monkeypatch.setattr("gateway.cli.client.PATIENCE_S", 0.1)
    held = hold(home / LOCK_NAME)
    with pytest.raises(DataDirectoryLocked, match=f"process {os.getpid()} is running on"):
        await noted()
    held.release()
    assert await noted() == "Tea.\n"


async def test_a_gateway_that_starts_or_ends_meanwhile_is_waited_for(home: Path) -> None:
    await note("Tea.\n")
    held = hold(home / LOCK_NAME)  # as a command that is just at work has it
    starting = asyncio.create_task(_run_once(home))
    waiting = [asyncio.create_task(noted()) for _ in range(3)]
    await asyncio.sleep(0)
    held.release()
    assert await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S) == ["Tea.\n"] * 3
    await asyncio.wait_for(starting, WAIT_S)
    assert await noted() == "Tea.\n"


async def _run_once(home: Path) -> None:
    async with running(home) as gateway, AsyncEthos(home=gateway.home) as client:
        assert (await client.system.health()).is_ready


async def test_a_second_gateway_is_refused_at_once(home: Path) -> None:
    prepare_home(home)
    clock = asyncio.get_running_loop().time
    async with running(home):
        began_at = clock()
        with pytest.raises(DataDirectoryLocked):
            await _run_once(home)
        assert clock() - began_at < module.PATIENCE_S / 2


async def test_a_gateway_that_does_not_answer_is_named_soon_and_asked_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await note("Tea.\n")
    monkeypatch.setattr("gateway.cli.waiting.TELL_S", 0.1)
    defaults = {**Client.__init__.__kwdefaults__, "timeout": 1.0}
    monkeypatch.setattr(Client.__init__, "__kwdefaults__", defaults)
    held = hold(home / LOCK_NAME)
    with listen(home / SOCKET_NAME):
        began_at = asyncio.get_running_loop().time()
        with pytest.raises(GatewaySilent, match="has not answered for 1 s"):
            await noted()
        assert asyncio.get_running_loop().time() - began_at < 2
    held.release()
    told = f"ethos: waiting for the gateway (process {os.getpid()}, {home / SOCKET_NAME})\n"
    assert capsys.readouterr().err == told


# ---- what is wrong --------------------------------------------------------------------------------------------------


async def test_a_broken_configuration_is_an_error_at_rest_and_none_while_a_gateway_runs(home: Path) -> None:
    await note("Tea.\n")
    async with running(home):
        (home / "config.yaml").write_text("memory: {max_file_bytes: many}\n")
        assert await noted() == "Tea.\n"
    with pytest.raises(ConfigError, match="max_file_bytes"):
        await noted()


async def test_a_secret_that_only_the_gateway_has_is_not_missed(home: Path) -> None:
    await note("Tea.\n")
    hook = "{kind: webhook, secret: '${HOOK_SECRET_OF_A_SERVICE}', reply_url: 'http://127.0.0.1:9/'}"
    (home / "config.yaml").write_text(f"channels: {{hook: {hook}}}\nmemory: {{max_file_bytes: 1000000}}\n")
    assert await noted() == "Tea.\n"
    (home / "config.yaml").write_text(f"channels: {{hook: {hook}}}\nmemory: {{max_file_bytes: many}}\n")
    with pytest.raises(ConfigError, match="max_file_bytes"):
        await noted()


async def test_a_database_of_a_newer_program_is_left_alone(home: Path) -> None:
    await note("Tea.\n")
    store = open_store(home / DATABASE_NAME)
    await store.engine.write(lambda connection: connection.execute("PRAGMA user_version = 9999"))
    await store.close()
    with pytest.raises(SchemaTooNew):
        await noted()


_AS_ANOTHER_USER = """
import asyncio, os, sys
from gateway.cli.client import connected
from gateway.cli.errors import GatewaySilent, explained

async def main():
    async with connected() as client:
        print((await client.memory.get("memory")).content)

asyncio.run(main())  # loads what the other user may not read
os.environ["ETHOS_HOME"] = sys.argv[1]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with explained():
    asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes a user to whom the modes of files mean something")
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_directory_that_cannot_be_written_is_one_line(home: Path, *, is_whole: bool) -> None:
    """All of it, or only the directory itself, in which SQLite makes files beside the database."""
    asyncio.run(note("Tea.\n"))
    for path in [*home.rglob("*"), home]:
        os.chown(path, 65_534, 65_534)
        if is_whole or path == home:
            path.chmod(0o500 if path.is_dir() else 0o400)
    for above in [*home.parents][:-2]:
        above.chmod(above.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER_USER, str(home)],
        env={**os.environ, "ETHOS_HOME": str(home.parent / "none")},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith("ethos: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert str(home) in done.stderr
    assert is_whole or done.stderr.startswith(f"ethos: this user may not write into {home}, "), done.stderr


async def test_a_memory_file_of_fifty_megabytes_is_read(home: Path) -> None:
    await note("Tea.\n")
    (path,) = (home / "personalities").glob("**/MEMORY.md")
    path.write_text("- a line of a memory that has grown\n" * (50_000_000 // 36))
    text = await noted()
    assert len(text) == path.stat().st_size


def test_a_command_that_tells_no_one_loads_no_library_of_a_platform(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text('channels: {tg: {kind: telegram, token: "1:canary"}}\n')
    program = (
        "import sys\n"
        "from gateway.cli import app\n"
        "try:\n    app(['people', 'list', '--json'])\n"
        "finally:\n    print('telegram' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=WAIT_S
    )
    assert done.stdout.split() == ["[]", "False"], done.stderr


# ---- answers larger than memory -------------------------------------------------------------------------------------


def request_for(path: str, **more: Any) -> HttpRequest:
    usual = {"method": "GET", "headers": {}, "content": None, "timeout_s": WAIT_S}
    return HttpRequest(url=f"http://localhost{path}", **usual | more)


async def test_what_is_answered_in_this_process_is_read_while_it_is_written(tmp_path: Path) -> None:
    written, ended = 0, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": b"data: " + b"x" * 1016 + b"\n\n", "more_body": True})
                written += 1
            await send({"type": "http.response.body", "body": b""})
        finally:
            ended.set()

    transport = InProcessTransport(app)
    async with transport.stream(request_for("/")) as source:
        for read in range(1, 11):
            assert (await anext(source.events)).data == "x" * 1016
            assert written <= read + 2
    await asyncio.wait_for(ended.wait(), WAIT_S)
    assert written < 20, "who leaves ends it"
    assert len((await transport.send(request_for("/"))).body) == 1_024_000
    await transport.send(request_for("/", download=tmp_path / "export"))
    assert (tmp_path / "export").stat().st_size == 1_024_000


async def test_a_body_passes_on_in_pieces_and_a_fault_is_no_endless_wait(tmp_path: Path) -> None:
    taken: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["more_body"]:
            taken.append(len(message["body"]))
        if scope["path"] == "/fault":
            raise RuntimeError("boom")
        await send({"type": "http.response.start", "status": 201, "headers": [(b"x-path", scope["path"].encode())]})
        await send({"type": "http.response.body", "body": b""})

    upload = tmp_path / "import"
    upload.write_bytes(b"y" * (2 * PIECE_BYTES + 1))
    transport = InProcessTransport(app)
    answer = await transport.send(request_for("/%C3%A4", method="POST", upload=upload))
    assert (answer.status, answer.headers["x-path"]) == (201, "/\xc3\xa4")
    assert taken == [PIECE_BYTES, PIECE_BYTES, 1], "one piece at a time"
    with pytest.raises(APIConnectionError):
        await transport.send(request_for("/fault"))
    with pytest.raises(APITimeoutError):
        await InProcessTransport(_silent).send(request_for("/", timeout_s=0.01))
    with pytest.raises(APITimeoutError):
        async with InProcessTransport(_silent).stream(request_for("/", timeout_s=0.01)):
            pass


async def test_a_file_that_is_refused_before_its_end_does_not_stay_open(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    upload = tmp_path / "import"
    upload.write_bytes(b"y" * (2 * PIECE_BYTES))
    gc.disable()
    try:
        await InProcessTransport(app).send(request_for("/", method="POST", upload=upload))
        opened = [one.resolve() for one in Path("/proc/self/fd").iterdir()]
    finally:
        gc.enable()
    assert upload.resolve() not in opened


async def test_an_answer_that_breaks_off_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("boom")

    for request in (request_for("/"), request_for("/", download=tmp_path / "export")):
        with pytest.raises(APIConnectionError, match="broke its answer off"):
            await InProcessTransport(app).send(request)
        with pytest.raises(RuntimeError, match="boom"):
            await InProcessTransport(app, raises_faults=True).send(request)
    assert list(tmp_path.iterdir()) == []


async def test_a_fault_at_rest_is_raised_since_no_log_says_why(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("gateway.services.sessions.SessionService.export", fault)
    async with connected() as client:
        with pytest.raises(RuntimeError, match="boom"):
            await client.sessions.export("s_1")


async def _silent(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


# ---- errors ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ends(code: int) -> Iterator[None]:
    with pytest.raises(SystemExit) as ended, explained():
        yield
    assert ended.value.code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("there is no session s_1"), 1),
        (Refused("message 3 is done; only dead letters are tried again"), 1),
        (Malformed("name a session or a conversation"), 1),
        (StoreUnavailable("the disk is full"), 69),
        (LockTimeout("MEMORY.md", 10.0, "process 7"), 75),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_an_error_of_a_service_says_and_means_the_same_through_the_api(
    error: EthosError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with ends(code):
        raise error
    directly = capsys.readouterr().err
    response = await on_error(Request({"type": "http"}), error)
    with ends(code):
        raise error_from(response.status_code, response.headers, bytes(response.body))
    assert capsys.readouterr().err == directly == f"ethos: {error}\n"


async def test_a_gateway_that_has_gone_is_one_line_and_worth_another_try(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_home(home)
    with ends(75):
        async with AsyncEthos(home=home, max_retries=0) as client:
            await client.system.health()
    assert capsys.readouterr().err == f"ethos: no gateway runs on {home}; start it with `ethos serve`\n"


def test_no_thread_is_left_behind_by_a_command(home: Path) -> None:
    asyncio.run(note("Tea.\n"))
    before = threading.active_count()
    asyncio.run(noted())
    assert threading.active_count() <= before
