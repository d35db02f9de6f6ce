"""What a person does on the first day, through the real command."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.scenarios.process import ROOT, Ethos


def test_a_first_answer_needs_no_key_no_account_and_no_file(tmp_path: Path) -> None:
    ethos = Ethos(tmp_path / "nothing there yet")
    done = ethos.run("chat", stdin="hi\n")
    assert done.returncode == 0, done.stderr
    assert "I am the offline model" in done.stdout
    assert (ethos.home / "users" / "identity-map.json").exists()
    assert (ethos.home.stat().st_mode & 0o777, (ethos.home / "ethos.sqlite").stat().st_mode & 0o777) == (0o700, 0o600)


def test_what_was_told_is_still_known_after_kill_9_and_a_restart(ethos: Ethos) -> None:
    ethos.serve()
    ethos.run("chat", stdin="remember that my cat is called Mia")
    ethos.kill()
    ethos.serve()
    assert "Mia" in ethos.run("chat", "what", "do", "you", "know", "about", "me?").stdout
    assert ethos.stop() == 0
    assert "Mia" in ethos.run("chat", "what", "do", "you", "know", "about", "me?").stdout
    [user] = [path for path in (ethos.home / "users").iterdir() if path.is_dir()]
    assert "Mia" in (user / "USER.md").read_text()


def test_two_chats_at_once_talk_to_one_gateway(ethos: Ethos) -> None:
    ethos.serve()
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "chat", "--conversation", name, "repeat", "after", "me:", name],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=ethos.environment,
        )
        for name in ("one", "two")
    ]
    assert ["one" in both[0].communicate(timeout=60)[0], "two" in both[1].communicate(timeout=60)[0]] == [True, True]


@pytest.mark.slow
def test_a_chat_goes_on_when_the_one_that_ran_its_gateway_ended_and_another_gateway_came(ethos: Ethos) -> None:
    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "chat", "--lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, bufsize=1, env=ethos.environment,
        )  # fmt: skip

    def ask(process: subprocess.Popen[str], text: str) -> None:
        assert process.stdin is not None
        process.stdin.write(f"repeat after me: {text}\n")

    def answer(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 60)
        return process.stdout.readline() if ready else "nothing"

    ethos.run("chat", "hello")
    first, second = start(), None
    try:
        ask(first, "one")
        assert answer(first) == "one\n"
        second = start()
        ask(second, "two")
        assert answer(second) == "two\n"
        first.communicate(timeout=60)
        ask(second, "three")
        assert second.stderr is not None
        assert "the gateway is away; waiting for it. `ethos serve` starts one" in second.stderr.readline()
        ethos.serve()
        assert answer(second) == "three\n"
        second.communicate(timeout=60)
        assert second.returncode == 0
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()


def test_the_operator_is_known_from_the_first_message_on(ethos: Ethos) -> None:
    ethos.serve()
    identity_map = ethos.home / "users" / "identity-map.json"
    assert not identity_map.exists()
    ethos.run("chat", "remember", "that", "my", "cat", "is", "called", "Mia")
    assert set(json.loads(identity_map.read_text())["identities"]) == {"local:operator"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_ends_in_order_when_it_is_told_to(ethos: Ethos, number: signal.Signals) -> None:
    ethos.serve()
    assert ethos.stop(number) == 0
    assert not (ethos.home / "run" / "gateway.json").exists()


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_a_chat_whose_terminal_is_closed_ends_its_gateway_in_order(ethos: Ethos, command: str) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", command],
        stdin=slave, stdout=slave, stderr=slave, env={**ethos.environment, "TERM": "xterm"}, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        shown = b""
        while b"Ctrl-D: leave" not in shown:
            ready, _, _ = select.select([master], [], [], 30)
            assert ready, shown
            shown += os.read(master, 65536)
        running = ethos.home / "run" / "gateway.json"
        assert running.exists()
        process.send_signal(signal.SIGHUP)
        os.close(master)
        process.wait(30)
        assert not running.exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_closed_stream_is_an_empty_one_and_nobody_elses_file_gets_its_number(ethos: Ethos) -> None:
    assert ethos.run("chat", "remember that my name is Ada").returncode == 0
    codes = {
        "status": 3,
        "doctor": ethos.run("doctor").returncode,
        "memory log": 0,
        "sessions list": 0,
        "config show": 0,
    }
    for command, code in codes.items():
        shell = f"exec {shlex.quote(sys.executable)} -m gateway.cli {command} <&- >&- 2>&-"
        done = subprocess.run(["sh", "-c", shell], env=ethos.environment, check=False, timeout=60)
        assert done.returncode == code, command
    with contextlib.closing(sqlite3.connect(ethos.home / "ethos.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_disk_without_room_for_the_answer_is_named_plainly(ethos: Ethos) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gateway.cli", "status"],
            stdout=full, stderr=subprocess.PIPE, text=True, env=ethos.environment, check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "ethos: No space left on device\n")


def test_health_says_ok_to_everybody_and_more_to_nobody_without_the_token(ethos: Ethos) -> None:
    running = ethos.serve()
    answer = json.loads(urllib.request.urlopen(running["url"] + "health", timeout=60).read())  # noqa: S310 (our own)
    assert answer == {"status": "ok"}


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ("chanels: {}\n", 78, "config.yaml:1:1: chanels: "),
        ("web: {port: eight}\n", 78, "config.yaml:1:13: web.port: "),
        ('models: {m: {provider: openai, model: x, api_key: "${NO_SUCH_KEY}"}}\n', 78, "NO_SUCH_KEY"),
    ],
)
def test_a_broken_configuration_says_where_and_what_was_expected(
    ethos: Ethos, config: str, code: int, said: str
) -> None:
    ethos.configure(config)
    done = ethos.run("serve", "--no-chat")
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_busy_port_is_named_with_the_key_that_changes_it(ethos: Ethos) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ethos.configure(f"web: {{port: {port}}}\n")
        done = ethos.run("serve", "--no-chat")
    assert done.returncode == 78
    assert str(port) in done.stderr
    assert "web.port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_database_is_named_and_left_as_it_is(ethos: Ethos) -> None:
    (ethos.home / "ethos.sqlite").write_bytes(b"this is no database" * 100)
    done = ethos.run("chat", "hi")
    assert done.returncode == 69
    assert "ethos.sqlite" in done.stderr
    assert "Traceback" not in done.stderr
    assert (ethos.home / "ethos.sqlite").read_bytes() == b"this is no database" * 100


def test_a_message_of_five_megabytes_and_bytes_that_are_no_text_are_answered_or_refused_with_a_word(
    ethos: Ethos,
) -> None:
    ethos.serve()
    large = ethos.run("chat", stdin="x" * 5_000_000)
    assert large.returncode != 0
    assert large.stderr.strip()
    assert "Traceback" not in large.stderr
    assert "echo" in ethos.run("chat", stdin=b"repeat after me: echo \x00\xff\xed\xa0\x80").stdout


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = Ethos(tmp_path / "file" / "home").run("chat", "hi")
    assert done.returncode != 0
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_works_from_any_directory(ethos: Ethos) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "--version"],
        capture_output=True,
        text=True,
        env=ethos.environment,
        cwd=os.sep,
        check=True,
    )
    assert done.stdout.startswith("ethos ")
    assert ROOT.exists()
