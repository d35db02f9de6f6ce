"""The gateway as a service manager and an operator meet it: signals, reloads, and how it tells of itself."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ethos import Ethos as Client
from tests.scenarios.process import PATIENCE_S, Ethos

pytestmark = pytest.mark.slow

MORE = "  second: {kind: tests.fake_channel}\n"
CONFIG = "web: {port: 0}\nchannels:\n"


class Service:
    """A gateway that a manager has started; its log, line by line."""

    def __init__(self, ethos: Ethos, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**ethos.environment, **environment},
        )

        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._seen: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def logged(self, event: str) -> dict[str, Any]:
        """The next line of the log with that event, in whichever order the events came."""
        while True:
            for line in self._seen:
                if f'"event": "{event}"' in line:
                    self._seen.remove(line)
                    found: dict[str, Any] = json.loads(line)
                    return found
            line_or_end = self._lines.get(timeout=PATIENCE_S)
            assert line_or_end is not None, "the gateway ended: " + "".join(self._seen)
            self._seen.append(line_or_end)

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        return self.process.wait(timeout=patience_s)


@pytest.fixture
def service(ethos: Ethos) -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def start(**environment: str) -> Service:
        started.append(Service(ethos, **environment))
        return started[-1]

    ethos.configure(CONFIG)
    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        each._reader.join()
        assert each.process.stderr is not None
        each.process.stderr.close()


# ---- reload ---------------------------------------------------------------------------------------------------------


def test_sighup_reads_the_configuration_again_and_keeps_the_last_good_one(
    ethos: Ethos, service: Callable[..., Service]
) -> None:
    serving = service()
    serving.logged("serving")
    ethos.configure(CONFIG + MORE + "log: {level: debug}\n")
    serving.process.send_signal(signal.SIGHUP)
    assert serving.logged("config_reloaded")["at_once"] == ["channels.second", "log.level"]
    assert serving.logged("channel_up")["channel"] == "second"
    ethos.configure(CONFIG + MORE + "limits: {steps_per_turn: many}\nmodel: nobody\n")
    serving.process.send_signal(signal.SIGHUP)
    problems = [serving.logged("config_not_taken_over")["problem"] for _ in range(2)]
    assert any(problem.startswith("config.yaml:4:26: limits.steps_per_turn: ") for problem in problems)
    assert any(problem.startswith("config.yaml:5:8: model: there is no model") for problem in problems)
    status = ethos.run("status", "--json")
    assert status.returncode == 0
    assert [one for one in json.loads(status.stdout)["problems"] if "config.yaml:5:8" in one]
    assert "config.yaml:5:8" in ethos.run("doctor").stdout
    assert "second" in status.stdout
    ethos.configure(CONFIG + MORE)
    serving.process.send_signal(signal.SIGHUP)
    serving.logged("config_reloaded")
    assert ethos.run("chat", "Still there?").returncode == 0
    assert json.loads(ethos.run("status", "--json").stdout)["problems"] == []
    serving.process.send_signal(signal.SIGTERM)
    assert serving.ended() == 0


def test_a_retried_reply_is_sent_by_the_running_gateway_at_once(ethos: Ethos, service: Callable[..., Service]) -> None:
    """No message need come, and nobody polls."""
    service().logged("serving")
    assert ethos.run("chat", "Hello").returncode == 0
    program = (
        "import sqlite3, sys\n"
        "with sqlite3.connect(sys.argv[1]) as c:\n"
        "    print(c.execute(\"UPDATE outbox SET state='dead', ended_at=1 \"\n"
        "                    ' WHERE id = (SELECT id FROM outbox ORDER BY created_at DESC LIMIT 1)'\n"
        "                    ' RETURNING id').fetchone()[0])\n"
    )
    database = ethos.home / "ethos.sqlite"
    seq = subprocess.run([sys.executable, "-c", program, database], capture_output=True, text=True, check=True).stdout
    answer = ethos.run("deliveries", "retry", "outbox", seq.strip())
    assert answer.stdout == "The running gateway takes it up now.\n"
    deadline = time.monotonic() + PATIENCE_S
    with Client(home=ethos.home) as client:
        while list(client.deliveries.list("outbox")):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_second_gateway_on_one_directory_is_refused_until_the_first_is_gone(
    ethos: Ethos, service: Callable[..., Service]
) -> None:
    """Row 9: it is told whose the directory is; a kill lets go of it at once, and SIGTERM ends with 0."""
    first = service()
    first.logged("serving")
    refused = ethos.run("serve", "--no-chat")
    assert refused.returncode == 75
    assert f"process {first.process.pid} is running on {ethos.home}" in refused.stderr
    assert "To talk to it: `ethos chat`." in refused.stderr
    first.process.kill()
    first.ended()
    second = service()
    second.logged("serving")
    second.process.send_signal(signal.SIGTERM)
    assert second.ended() == 0


# ---- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    ethos: Ethos, service: Callable[..., Service], silent_port: int, number: signal.Signals
) -> None:
    """The first waits for a turn that would take an hour."""
    ethos.configure(
        CONFIG + "shutdown_s: 3600\nmodel: slow\nlimits: {turn_timeout_s: 3600}\nmodels: {slow: {provider: openai, "
        f"model: x, base_url: 'http://127.0.0.1:{silent_port}/v1', timeout_s: 3600}}}}\n"
    )
    serving = service()
    serving.logged("serving")
    chatting = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "chat", "Hello"], env=ethos.environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        with Client(home=ethos.home) as client:
            while not list(client.deliveries.list("inbox", state="running")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
        serving.process.send_signal(number)
        while not _has_default_handler(serving.process.pid, number):
            assert time.monotonic() < deadline
        assert serving.process.poll() is None, "the first lets the turn go on"
        serving.process.send_signal(number)
        assert serving.ended() == -number
    finally:
        chatting.kill()
        chatting.wait()
    waiting = json.loads(ethos.run("deliveries", "list", "inbox", "--json").stdout)
    assert [one["state"] for one in waiting] == ["running"], "it is taken up at the next start"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def _has_default_handler(pid: int, number: int) -> bool:
    """Whether the kernel alone would act on the signal, from `/proc/<pid>/status` (proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    [caught] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")]
    return not caught >> (number - 1) & 1


# ---- the service manager --------------------------------------------------------------------------------------------


@contextmanager
def manager(address: str) -> Iterator[Callable[[str], dict[str, str]]]:
    """A socket as systemd has it; waits for the next datagram with a key."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + address[1:] if address.startswith("@") else address)
        listening.settimeout(PATIENCE_S)

        def told(key: str) -> dict[str, str]:
            while True:
                text = listening.recv(4096).decode()
                states = dict(line.split("=", 1) for line in text.splitlines())
                if key in states:
                    return states

        yield told


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_service_manager_is_told_of_start_life_reload_and_end(
    ethos: Ethos, service: Callable[..., Service], tmp_path: Path, kind: str
) -> None:
    address = str(tmp_path / "notify") if kind == "path" else f"@ethos-test-{os.getpid()}"
    with manager(address) as told:
        serving = service(NOTIFY_SOCKET=address, WATCHDOG_USEC="400000")
        ready = told("READY")
        assert ready["READY"] == "1"
        assert ready["STATUS"] == "0 turns running"
        assert "web" not in ready, "no secret, no address"
        for _ in range(3):
            assert told("WATCHDOG")["WATCHDOG"] == "1"
        before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        serving.process.send_signal(signal.SIGHUP)
        reloading = told("RELOADING")
        assert reloading["RELOADING"] == "1"
        assert before_us <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert told("READY")["READY"] == "1"
        serving.process.send_signal(signal.SIGTERM)
        assert told("STOPPING")["STOPPING"] == "1"
        assert serving.ended() == 0


def test_an_event_loop_or_a_store_that_hangs_gives_no_sign_of_life(
    ethos: Ethos, service: Callable[..., Service], tmp_path: Path
) -> None:
    """Another process holds the database; once it lets go, the signs come again."""
    address = str(tmp_path / "notify")
    with manager(address) as told:
        service(NOTIFY_SOCKET=address, WATCHDOG_USEC="200000")
        told("WATCHDOG")
        program = (
            "import sqlite3, sys\n"
            "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "c.execute('PRAGMA busy_timeout = 20000')\n"
            "c.execute('BEGIN IMMEDIATE')\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, ethos.home / "ethos.sqlite"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        silent_since = time.monotonic()
        with pytest.raises(TimeoutError):
            _drain(told, silent_since + 3.0)
        holder.communicate("")
        assert told("WATCHDOG")["WATCHDOG"] == "1"


def _drain(told: Callable[[str], dict[str, str]], until: float) -> None:
    """Read signs until none comes for a second; those that were on their way when the store was taken may still."""
    listening: socket.socket = told.__closure__[0].cell_contents  # type: ignore[attr-defined]
    listening.settimeout(1.0)
    try:
        while time.monotonic() < until:
            listening.recv(4096)
    finally:
        listening.settimeout(PATIENCE_S)


def test_where_nobody_listens_it_serves_all_the_same(
    ethos: Ethos, service: Callable[..., Service], tmp_path: Path
) -> None:
    serving = service(NOTIFY_SOCKET=str(tmp_path / "nobody"), WATCHDOG_USEC="100000")
    assert "nobody" not in serving.logged("service_manager_not_told")["error"]
    assert ethos.run("chat", "Hello").returncode == 0
