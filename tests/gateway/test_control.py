"""The operator's own door: who may use it, and what it makes of what comes."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.app import control as control_module
from gateway.app.control import SOCKET_NAME, ControlSocket, NotReached, ask
from gateway.errors import StoreUnavailable


async def echo(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"heard": request["word"]}


async def fail(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    raise StoreUnavailable("the disk is full")


@asynccontextmanager
async def listening(home: Path) -> AsyncIterator[None]:
    (home / "run").mkdir(parents=True, exist_ok=True)
    control = ControlSocket(home, {"echo": echo, "fail": fail})
    await control.start()
    try:
        yield
    finally:
        await control.stop()


async def asked(home: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return await asyncio.to_thread(ask, home, request, timeout_s=20.0)


async def test_a_request_is_answered_however_long_the_path_is(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 40)
    async with listening(home):
        assert await asked(home, {"do": "echo", "word": "é"}) == {"ok": True, "heard": "é"}
        assert stat.S_IMODE((home / SOCKET_NAME).stat().st_mode) == 0o600
    assert not (home / SOCKET_NAME).exists()


async def test_what_went_wrong_is_told(tmp_path: Path) -> None:
    async with listening(tmp_path):
        with pytest.raises(NotReached, match="the disk is full"):
            await asked(tmp_path, {"do": "fail"})
        for request in ({"do": "something else"}, {}, {"do": ["echo"]}):
            with pytest.raises(NotReached, match="does not know this request"):
                await asked(tmp_path, request)
        with pytest.raises(NotReached, match="word"):
            await asked(tmp_path, {"do": "echo"})


@pytest.mark.parametrize("fault", [RuntimeError("odd"), OSError(5, "odd"), ValueError("odd")])
async def test_a_fault_of_the_gateway_is_answered_as_one_and_is_in_its_log(tmp_path: Path, fault: Exception) -> None:
    """Without an answer a command takes it that no gateway runs, and goes on as if it were alone."""

    async def breaks(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise fault

    (tmp_path / "run").mkdir()
    control = ControlSocket(tmp_path, {"break": breaks})
    await control.start()
    try:
        with structlog.testing.capture_logs() as logged, pytest.raises(NotReached, match="its log says why"):
            await asked(tmp_path, {"do": "break"})
        assert [line["event"] for line in logged] == ["control_fault"]
    finally:
        await control.stop()


async def test_what_is_no_request_harms_nothing(tmp_path: Path) -> None:
    async with listening(tmp_path):
        for line in (b"", b"hello\n", b"[]\n", b"\xff\xfe\n", b"x" * (2 << 20)):
            reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET_NAME)
            try:
                writer.write(line)
                writer.write_eof()
                answer = await reader.read()
                assert not answer or json.loads(answer)["ok"] is False
            except ConnectionError:
                pass
            finally:
                writer.close()
        assert (await asked(tmp_path, {"do": "echo", "word": 1}))["heard"] == 1


async def test_the_socket_of_a_dead_process_is_replaced_and_a_missing_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / SOCKET_NAME))
    left.close()
    with pytest.raises(NotReached, match="no gateway answers"):
        await asked(tmp_path, {"do": "echo", "word": 1})
    async with listening(tmp_path):
        assert (await asked(tmp_path, {"do": "echo", "word": 1}))["heard"] == 1
    with pytest.raises(NotReached, match="no gateway answers"):
        await asked(tmp_path, {"do": "echo", "word": 1})


async def test_what_was_asked_before_the_end_is_answered_and_what_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a request does goes on behind the end: the store is closed next."""
    monkeypatch.setattr(control_module, "END_TIMEOUT_S", 0.2)
    begun, released, ended = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()

    async def slow(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.release()
        await released.wait()
        return {"done": True}

    async def endless(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    (tmp_path / "run").mkdir()
    control = ControlSocket(tmp_path, {"slow": slow, "endless": endless})
    await control.start()
    asking = asyncio.create_task(asked(tmp_path, {"do": "slow"}))
    hopeless = asyncio.create_task(asked(tmp_path, {"do": "endless"}))
    async with asyncio.timeout(20):
        await begun.acquire()
        await begun.acquire()
        stopping = asyncio.create_task(control.stop())
        await asyncio.sleep(0)
        released.set()
        await stopping
        assert ended.is_set()
        assert (await asking)["done"]
        with pytest.raises(NotReached):
            await hopeless
