"""Runs one program shut in, to its end or to the end of its time, and says what it printed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.sandbox.launch import CANNOT
from gateway.sandbox.tiers import Plan, Tier

_READ_BYTES = 1 << 16
_CANNOT_LINE = b"sandbox: "


class SandboxFailed(Exception):
    """The sandbox could not be closed, so nothing of the program has run; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a program.

    Attributes:
        exit_code: negative for a signal, as `-9`; None where its time ran out.
        output: what it printed on both of its streams, as far as it is kept.
        is_cut: it printed more.
    """

    exit_code: int | None
    output: bytes
    is_cut: bool = False

    @property
    def is_timed_out(self) -> bool:
        """Its time ran out, and all of its group was killed."""
        return self.exit_code is None


@asynccontextmanager
async def temporary() -> AsyncIterator[Path]:
    """A directory (0700) that is removed afterwards, whatever is in it."""
    place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ethos-sandbox-"))
    try:
        yield place
    finally:
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


async def run(tier: Tier, plan: Plan, command: Sequence[str], *, given: bytes = b"") -> Ran:
    """Run a command to its end; `given` is its standard input.

    Raises:
        SandboxFailed: nothing has run.
    """
    words = tier.command(plan, command)
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=PIPE if given else DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=plan.workspace,
            env=dict(plan.environment),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxFailed(f"{words[0]} cannot be started: {error.strerror}") from error
    kept, is_cut = bytearray(), False
    try:
        async with asyncio.timeout(plan.limits.wall_s):
            giving = asyncio.create_task(_give(process, given))
            while process.stdout is not None and (data := await process.stdout.read(_READ_BYTES)):
                room = plan.limits.output_bytes - len(kept)
                kept += data[:room]
                is_cut = is_cut or len(data) > room
            await giving
            exit_code: int | None = await process.wait()
    except TimeoutError:
        exit_code = None
    finally:
        await _end(process)
    if exit_code == CANNOT and kept.startswith(_CANNOT_LINE):
        raise SandboxFailed(kept[len(_CANNOT_LINE) :].decode(errors="replace").strip())
    return Ran(exit_code=exit_code, output=bytes(kept), is_cut=is_cut)


async def _give(process: Process, given: bytes) -> None:
    if process.stdin is not None:
        with contextlib.suppress(ConnectionError):  # it does not read all of it
            process.stdin.write(given)
            await process.stdin.drain()
        process.stdin.close()


async def _end(process: Process) -> None:
    """Kill what is left of its group: children that it left behind, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
