"""Gateways under `strace`: what they ask of the kernel, in order, and errors in place of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.process import ROOT, Serving
from tests.faults.stream import Stream

WATCHED = (
    "pwrite64,read,write,fsync,fdatasync,rename,renameat,renameat2,link,linkat,ftruncate,sendto,sendmsg,recvfrom,unlink"
)
_CALL = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)", re.DOTALL)


def strace_missing() -> str | None:
    """Why nothing can be traced here, with what mends it."""
    if shutil.which("strace") is None:
        return "strace is missing: apt-get install strace"
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the kernel: it began in one line of the trace and had ended by another."""

    name: str
    text: str
    began: int
    ended: int

    @property
    def is_sync(self) -> bool:
        return self.name in ("fsync", "fdatasync") and self.text.rstrip().endswith("= 0")

    def is_of(self, path: Path) -> bool:
        """By its first descriptor."""
        return re.match(rf"\d+<{re.escape(str(path))}>", self.text) is not None


def calls(trace: str) -> list[Call]:
    """The calls of all threads, in the order in which they ended."""
    found: list[Call] = []
    open_calls: dict[str, tuple[str, str, int]] = {}
    for number, line in enumerate(trace.splitlines()):
        match = _CALL.match(line)
        if match is None:
            continue
        thread, resumed, name, text = match.groups()
        if resumed is not None and thread in open_calls:
            name, before, began = open_calls.pop(thread)
            found.append(Call(name, before + text, began, number))
        elif text.endswith("<unfinished ...>"):
            open_calls[thread] = (name, text.removesuffix("<unfinished ...>"), number)
        elif name is not None:
            found.append(Call(name, text, number, number))
    return found


async def start_traced(home: Path, log: Path, options: Sequence[str]) -> Serving:
    """`ethos serve` with strace between it and the kernel."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(
                "strace",
                "-f",
                "-qq",
                "--seccomp-bpf",
                *options,
                sys.executable,
                "-m",
                "gateway.cli",
                "serve",
                "--no-chat",
            ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**os.environ, "ETHOS_HOME": str(home), "PYTHONPATH": str(ROOT)},
        )
    ending = asyncio.create_task(process.wait())
    pid = await _child_of(process)
    serving = Serving(pid, asyncio.get_running_loop().create_future())
    ending.add_done_callback(lambda task: serving.status.set_result(task.result()))
    serving.keeper = ending  # type: ignore[attr-defined]
    return serving


async def _child_of(process: asyncio.subprocess.Process) -> int:
    """The traced process: strace's only child once it runs."""
    while process.returncode is None:
        for pid in _children(process.pid):
            with contextlib.suppress(OSError):
                # strace has other children for a moment, to find out what the kernel can do
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable) + b"\0"):
                    return pid
        await asyncio.sleep(0.005)  # nothing tells when a foreign process has a child
    return process.pid


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


class TracedStream(Stream):
    """Lives under strace; `options` are its own, for all lives but the last."""

    def __init__(self, *args: Any, options: Sequence[str], **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._options = options
        self.trace = self._directory / "trace"

    async def _start(self, setting: str) -> Serving:
        assert not setting
        return await start_traced(self._home, self._log, ["-o", str(self.trace), *self._options])
