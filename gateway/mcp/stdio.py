"""The transport to a server that is a process of ours: one JSON message a line, each of 8 MB at most.

The process has a group of its own, which is ended with it. What it says on its standard error is kept for people and
never shown on our terminal. The SDK's own transport reads a line of any length, and starts no sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from gateway.mcp.errors import CannotStart
from gateway.mcp.groups import forget_group, note_group
from gateway.sandbox.launch import CANNOT

MAX_LINE_BYTES = 8 << 20
_MAX_LINE_CHARS = 500
_DRAINED_BYTES = 1 << 20
_ENDS_WITHIN_S = 2.0
T = TypeVar("T")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server is started.

    Attributes:
        environment: all of it.
        note: a file that says which process group runs, for the next start of the gateway.
    """

    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    note: Path


class StdioProcess:
    """One run of a server.

    Attributes:
        said: the last lines of its standard error, and what it wrote to its output that is no message.
    """

    def __init__(self, launch: Launch, *, said: deque[str], hide: Callable[[str], str]) -> None:
        """Nothing runs yet; `hide` strikes secrets from what it says."""
        self._launch = launch
        self._hide = hide
        self._process: Process | None = None
        self.said = said
        self._has_ended = self._is_told = False
        self._wrong: str | None = None

    @property
    def fault(self) -> str | None:
        """Why it ended by itself, or why we ended it; None where it was only told to."""
        if self._wrong is not None or not self._has_ended or self._process is None:
            return self._wrong
        code, last = self._process.returncode, self.said[-1] if self.said else ""
        if code == CANNOT and last.startswith("sandbox: "):
            return f"it was not started: {last}; `sandbox.read` names what it needs besides the system's directories"
        said = f": {last}" if last else ""
        return f"it ended with the exit code {code}{said}; `ethos mcp` shows more of what it said"

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[TransportStreams]:
        """Start it; the messages that come from it, and a place for those to it. Then all of its group is ended.

        Raises:
            CannotStart: there is no such program, or it may not be run.
        """
        process = self._process = await self._started()
        arrived, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        writing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read(process, arrived)),
            asyncio.create_task(self._write(process, leaving)),
            asyncio.create_task(self._listen(process)),
        ]
        try:
            yield reading, writing
        finally:
            self._is_told = True
            reading.close()
            writing.close()
            await _ended(process)
            forget_group(self._launch.note)
            await asyncio.wait(tasks, timeout=_ENDS_WITHIN_S)  # its last words are on their way
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _started(self) -> Process:
        launch = self._launch
        self.said.clear()
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=launch.directory,
                env=dict(launch.environment),
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            text = f"{launch.command[0]} cannot be started: {why}; install it, or write its whole path in `command`"
            raise CannotStart(text) from error
        await asyncio.to_thread(note_group, launch.note, process.pid)
        return process

    async def _read(self, process: Process, arrived: anyio.abc.ObjectSendStream[SessionMessage | Exception]) -> None:
        stdout = _pipe(process.stdout)
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with arrived:
                await self._pass_on(stdout, arrived)
        while await stdout.read(_DRAINED_BYTES):  # what is left, so that it can go on to its end
            pass

    async def _pass_on(
        self, stdout: asyncio.StreamReader, arrived: anyio.abc.ObjectSendStream[SessionMessage | Exception]
    ) -> None:
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                self._wrong = f"it wrote a line of more than {MAX_LINE_BYTES >> 20} MB"
                return
            if not line:
                self._has_ended = not self._is_told
                return
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:  # many a server greets people there
                self._keep(line)
                continue
            await arrived.send(SessionMessage(message))

    async def _write(self, process: Process, leaving: anyio.abc.ObjectReceiveStream[SessionMessage]) -> None:
        stdin = _pipe(process.stdin)
        with contextlib.suppress(ConnectionError):  # it has ended, and the reader says so
            async with leaving:
                async for one in leaving:
                    text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()

    async def _listen(self, process: Process) -> None:
        stderr = _pipe(process.stderr)
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue  # a line of many megabytes
            if not line:
                return
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        text = self._hide(line.decode("utf-8", "replace")).strip()
        if text:
            self.said.append(_CONTROLS.sub("", text)[:_MAX_LINE_CHARS])


def _pipe(end: T | None) -> T:
    if end is None:
        raise RuntimeError("a process without the pipe that it was started with")
    return end


async def _ended(process: Process) -> None:
    """Let it go by itself, as the protocol says, by closing its input; then end what is left of its group."""
    _pipe(process.stdin).close()
    for is_last in (False, True):
        with contextlib.suppress(TimeoutError):  # `wait` also waits for children that have its output
            async with asyncio.timeout(_ENDS_WITHIN_S):
                await process.wait()
        if not is_last:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
