"""`ethos status`, and every command while a gateway runs on the directory."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import socketserver
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway import __version__
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.files.locks import hold
from gateway.files.unix_socket import SOCKET_NAME, short_path
from gateway.web.token import token_of
from tests.gateway.cli.commands.conftest import Ethos

SECRET = bytes(range(32))


def test_without_a_gateway_the_exit_code_is_3(ethos: Ethos, fresh_home: Path) -> None:
    answer = ethos("status")
    assert (answer.code, answer.out) == (
        3,
        f"Gateway  not running; `ethos serve` starts it\nData     {fresh_home}\n",
    )
    told = ethos("status", "--json")
    assert (told.code, told.value["state"], told.value["is_running"]) == (3, "not_running", False)
    assert not fresh_home.exists()


def test_a_running_gateway_says_how_it_is(
    ethos: Ethos, serving: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")  # the token is for nobody else
    answer = ethos("status", "--json")
    status = answer.value
    assert (answer.code, status["state"], status["pid"]) == (0, "ok", serving.pid)
    assert status["version"] == __version__
    assert [(one["name"], one["kind"], one["state"]) for one in status["channels"]] == [("fake", "fake", "up")]
    assert status["queues"] == {"inbox": [], "outbox": []}
    out = ethos("status").out
    assert f"Gateway  running, all well\nData     {status['home']}\nProcess  {serving.pid}\n" in out
    assert "fake     fake  up     -\n" in out


def test_every_command_works_while_a_gateway_runs(
    ethos: Ethos, serving: subprocess.Popen[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sh -c 'echo edited >> \"$1\"' -")
    (session, *_) = ethos("sessions", "list", "--json").value
    for words in (
        "memory show -u fake:1",
        "memory log --diff",
        "memory why Rex -u fake:1",
        "memory edit",
        "memory undo 1",
        f"sessions show {session['id']}",
        "sessions search rex",
        "people list",
        "personalities list",
        "deliveries list inbox",
        "deliveries list outbox",
        "config check",
        "config show",
        "doctor",
    ):
        answer = ethos(*words.split())
        assert (answer.code, answer.err) == (0, ""), words
    assert (home / "personalities" / "assistant" / "MEMORY.md").read_text() == "edited\n"


def test_the_link_that_logs_in_is_shown_on_a_terminal_only(
    ethos: Ethos, held: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {opened}.draft\nmv {opened}.draft {opened}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setenv("DISPLAY", ":0")
    left(held, "http://127.0.0.1:8420/")
    answer = ethos("open")
    assert (answer.code, answer.out) == (
        0,
        f"http://127.0.0.1:8420/ (the token to log in is in {held / 'web-token'})\n",
    )
    assert ethos("open", "--json").value["url"] == "http://127.0.0.1:8420/"
    assert not opened.exists()
    shown = on_terminal("open")
    assert shown == f"http://127.0.0.1:8420/?token={'t' * 40}"
    assert opened.read_text() == "http://127.0.0.1:8420/\n", "no program has the token among its arguments"


def on_terminal(*arguments: str) -> str:
    """What the command prints where its output is a terminal."""
    person, terminal = os.openpty()
    try:
        subprocess.run([sys.executable, "-m", "gateway.cli", *arguments], stdout=terminal, check=True, timeout=60)
    finally:
        os.close(terminal)
    with os.fdopen(person, "rb") as screen:
        return screen.read1(4096).decode().strip()


def test_a_derived_token_is_shown_on_a_terminal_and_has_no_file(
    ethos: Ethos, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOT_SECRET", SECRET.hex())
    monkeypatch.delenv("DISPLAY", raising=False)
    (held / "config.yaml").write_text("secret: ${ROOT_SECRET}\nmodel: no-such-model\n")
    left(held, "http://127.0.0.1:8420/")
    told = "the token to log in is derived from `secret`; `ethos open` on a terminal shows it"
    assert ethos("open").out == f"http://127.0.0.1:8420/ ({told})\n"
    assert ethos("open", "--json").value == {"url": "http://127.0.0.1:8420/", "token_file": None}
    assert on_terminal("open") == f"http://127.0.0.1:8420/?token={token_of(SECRET)}"


@pytest.mark.parametrize(
    ("secret", "problem"),
    [(None, "the environment variable ROOT_SECRET is not set"), ("changeme", "openssl rand -hex 32")],
    ids=["not set in this shell", "no good"],
)
def test_a_secret_that_the_shell_does_not_have_is_told(
    ethos: Ethos, held: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None, problem: str
) -> None:
    monkeypatch.delenv("ROOT_SECRET", raising=False)
    if secret is not None:
        monkeypatch.setenv("ROOT_SECRET", secret)
    (held / "config.yaml").write_text("secret: ${ROOT_SECRET}\n")
    left(held, "http://127.0.0.1:8420/")
    answer = ethos("open")
    assert (answer.code, answer.out) == (78, "")
    assert answer.err.startswith(
        "ethos: http://127.0.0.1:8420/ needs a token, which is derived from `secret`:\nethos: config.yaml:1:9: secret: "
    )
    assert problem in answer.err
    assert "changeme" not in answer.err


def test_no_page_is_opened_where_there_is_none(ethos: Ethos, home: Path) -> None:
    answer = ethos("open")
    assert (answer.code, answer.err) == (69, f"ethos: no gateway runs on {home}; `ethos serve` starts one\n")


def test_what_waits_in_the_queues_is_counted_by_channel(ethos: Ethos, home: Path) -> None:
    with sqlite3.connect(home / "ethos.sqlite") as connection:
        connection.execute(
            "UPDATE inbox SET state = 'parked', ended_at = NULL WHERE turn_id = (SELECT min(turn_id) FROM inbox)"
        )
    connection.close()
    answer = ethos("status", "--json")
    ((row,), outbox) = (answer.value["queues"][queue] for queue in ("inbox", "outbox"))
    assert (row["channel"], row["state"], row["count"], outbox) == ("fake", "parked", 1, [])
    assert 0 < row["oldest_s"] < 3600
    assert "inbox  fake     parked  1         " in ethos("status").out


def test_a_database_that_is_broken_is_a_problem_of_the_status_too(ethos: Ethos, home: Path) -> None:
    (home / "ethos.sqlite").write_bytes(b"no database" * 500)
    answer = ethos("status", "--json")
    assert (answer.code, answer.value["queues"]) == (3, None)
    assert "is damaged, or not a database" in answer.value["problems"][0]


# ---- gateways that do not answer ------------------------------------------------------------------------------------


def left(home: Path, url: str | None, pid: int | None = None) -> None:
    """What a gateway leaves in its directory when it starts."""
    (home / "run").mkdir(exist_ok=True)
    word = {"pid": pid or os.getpid(), "url": url, "started_at": "2026-11-20T10:00:00+00:00"}
    (home / "run" / "gateway.json").write_text(json.dumps(word))


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers as it is told, and keeps what it was asked."""

    asked: list[str]
    status: int
    body: bytes

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers.get('authorization', '')}".strip())
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def address_string(self) -> str:
        return "a Unix socket"

    def log_message(self, *_: object) -> None:
        """Nothing."""


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server on a Unix socket."""

    daemon_threads = True


@contextmanager
def stranger(home: Path, status: int, body: bytes) -> Iterator[list[str]]:
    """A server at the gateway's socket; what it was asked, and with which authorization."""
    asked: list[str] = []
    handler = type("Handler", (Stranger,), {"asked": asked, "status": status, "body": body})
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    path = home / SOCKET_NAME
    with short_path(path) as short:
        server = UnixServer(short, handler)
    with server:
        path.chmod(0o600)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()
            path.unlink()


@pytest.fixture
def held(home: Path) -> Iterator[Path]:
    """A directory whose lock this process holds, with a token."""
    (home / "web-token").write_text("t" * 40)
    lock = hold(home / ".gateway.lock")
    yield home
    lock.release()


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        ((200, b'{"status": "ok"}'), "ok", 0),
        ((503, b'{"status": "starting"}'), "starting", 4),
        ((200, b'{"status": "degraded", "problems": ["telex: no line"]}'), "degraded", 1),
        ((503, b'{"status": "failing", "problems": ["telex: no paper"]}'), "failing", 1),
        ((200, b'{"status": "odd"}'), "failing", 1),
        ((401, b""), "not_responding", 1),
        ((200, b"<html>"), "not_responding", 1),
        ((404, b"{}"), "not_responding", 1),
    ],
)
def test_the_exit_code_follows_what_the_gateway_says(
    ethos: Ethos, held: Path, answer: tuple[int, bytes], state: str, code: int
) -> None:
    with stranger(held, *answer) as asked:
        left(held, None)
        told = ethos("status", "--json")
        assert (told.code, told.value["state"]) == (code, state)
        assert asked == ["/health"]
        if state != "ok":
            assert ethos("status").out.startswith("Gateway  ")


def test_the_first_line_calls_well_only_what_has_no_problems(ethos: Ethos, held: Path) -> None:
    problem = "waiting for a restart: web"
    with stranger(held, 200, json.dumps({"status": "ok", "problems": [problem]}).encode()):
        left(held, None)
        told = ethos("status")
    assert told.out.startswith("Gateway  running, and has the problems below\n")
    assert told.out.endswith(f"\nProblems\n  {problem}\n")
    assert told.code == 0, "it works"


def test_a_channel_that_is_far_behind_is_told(ethos: Ethos, held: Path) -> None:
    lags = {"a": {"inbox_lag_s": 7300, "outbox_lag_s": 1}, "b": {"inbox_lag_s": 3, "outbox_lag_s": 0}}
    channels = [{"name": name, "kind": "k", "state": "up", **lag} for name, lag in lags.items()]
    with stranger(held, 200, json.dumps({"status": "ok", "channels": channels}).encode()):
        left(held, None)
        out = ethos("status").out
    assert "The channel a is behind by 2 h.\n" in out
    assert "The channel b" not in out


def test_a_gateway_that_was_killed_does_not_run_though_it_left_word(ethos: Ethos, home: Path) -> None:
    left(home, "http://127.0.0.1:8420/")
    assert ethos("status").code == 3
    lock = hold(home / ".gateway.lock")
    left(home, "http://127.0.0.1:8420/", pid=1)
    assert ethos("status", "--json").value["state"] == "starting"
    lock.release()


def test_a_gateway_that_does_not_answer_is_not_well(ethos: Ethos, held: Path) -> None:
    left(held, None)
    answer = ethos("status")
    assert answer.code == 1
    assert "running, and does not answer" in answer.out
    assert f"{held / SOCKET_NAME} does not answer" in answer.out


async def test_a_gateway_without_a_web_server_says_how_it_is(ethos_beside: Ethos, home: Path) -> None:
    """One that a chat runs for itself."""
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, only=(), is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        answer = await asyncio.to_thread(ethos_beside, "status", "--json")
        stop.set()
        await running
    assert (answer.code, answer.value["state"], answer.value["url"]) == (0, "ok", None)
    assert answer.value["version"]


def test_looking_never_takes_the_lock_from_a_gateway(home: Path, ethos: Ethos) -> None:
    ethos("status")
    hold(home / ".gateway.lock").release()


def test_the_command_loads_no_web_server_to_say_how_it_is(home: Path) -> None:
    program = (
        "import sys; sys.argv = ['ethos', 'status']\n"
        "from gateway.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('starlette', 'uvicorn', 'httpx', 'gateway.app.gateway') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_takes_long_to_load_is_left_to_the_commands_that_need_it() -> None:
    """Each command would wait for it, `ethos --help` and the completion of a shell, too."""
    heavy = ("fastapi", "httpx", "prompt_toolkit", "pydantic", "rich", "sqlite3", "starlette", "structlog", "uvicorn")
    program = f"import sys, gateway.cli; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
