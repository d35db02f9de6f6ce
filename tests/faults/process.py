"""The driver's side of the nursery: gateways in processes of their own, started, killed and waited for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


def small_disk_missing() -> str | None:
    """What a small file system of one's own needs and does not find here."""
    if shutil.which("unshare") is None:
        return "unshare is missing: apt-get install util-linux"
    flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    tried = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    return f"no mount namespace can be made ({tried.stderr.strip()}): be root, or allow unprivileged user namespaces"


class Serving:
    """A gateway that was started.

    Attributes:
        status: set to its exit code, or minus the signal that ended it.
    """

    def __init__(self, pid: int, status: asyncio.Future[int]) -> None:
        self.pid = pid
        self.status = status

    def signal(self, number: signal.Signals) -> None:
        if not self.status.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return await self.status

    async def ended(self, timeout_s: float) -> int | None:
        """Its status, or None if it still runs after so long."""
        await asyncio.wait([self.status], timeout=timeout_s)
        return self.status.result() if self.status.done() else None


class Nursery:
    """Starts gateways: `async with Nursery() as nursery: serving = await nursery.start(home)`."""

    def __init__(
        self, parts: Sequence[str] = (), *, disk_mb: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Nothing is started yet.

        Args:
            parts: modules to import once for all, besides the gateway's own.
            disk_mb: the size of a file system of its gateways' own, which `disk` leads to.
            environment: of all its gateways, from the start of the interpreter on.
        """
        self._parts = parts
        self._disk_mb = disk_mb
        self._environment = dict(environment or {})
        self.disk = Path()
        self._numbers = itertools.count(1)
        self._started: dict[int, asyncio.Future[Serving]] = {}
        self._running: dict[int, Serving] = {}

    async def __aenter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if name != "ETHOS_FAILPOINTS"}
        self._process = await asyncio.create_subprocess_exec(
            *self._on_small_disk(),
            sys.executable,
            "-m",
            "tests.faults.nursery",
            *self._parts,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**environment, **self._environment, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        assert await self._process.stdout.readline(), "the nursery ended"
        if self._disk_mb is not None:
            self.disk = Path(f"/proc/{self._process.pid}/root") / self._mount.relative_to("/")
        self._reading = asyncio.create_task(self._read(self._process.stdout))
        return self

    async def __aexit__(self, *_: object) -> None:
        for serving in list(self._running.values()):
            await serving.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading
        if self._disk_mb is not None:
            self._mount.rmdir()

    def _on_small_disk(self) -> list[str]:
        """A mount namespace with a tmpfs in it; one who is not root needs a user namespace around it."""
        if self._disk_mb is None:
            return []
        self._mount = Path(tempfile.mkdtemp(prefix="ethos-disk-"))
        mount = 'mount -t tmpfs -o mode=700,size="$0"m none "$1" && shift && exec "$@"'
        flags = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
        return ["unshare", *flags, "sh", "-c", mount, str(self._disk_mb), str(self._mount)]

    async def start(
        self,
        home: Path,
        *,
        failpoint: str = "",
        log: Path | None = None,
        prepare: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Serving:
        """Start a gateway.

        Args:
            home: its data directory.
            log: where its output goes; None for `<home>.log`.
            failpoint: as the environment variable `ETHOS_FAILPOINTS` has it.
            prepare: functions to call in its process before it starts, `module:function`; they get the environment.
        """
        number = next(self._numbers)
        self._started[number] = asyncio.get_running_loop().create_future()
        asked = {
            "number": number,
            "home": str(self._mount / home.relative_to(self.disk)) if self._disk_mb is not None else str(home),
            "log": str(log or home.with_name(home.name + ".log")),
            "failpoint": failpoint,
            "prepare": list(prepare),
            "environment": dict(environment or {}),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        return await self._started[number]

    async def _read(self, lines: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        while line := await lines.readline():
            said: dict[str, Any] = json.loads(line)
            serving = self._running.setdefault(said["pid"], Serving(said["pid"], loop.create_future()))
            if "number" in said:
                started = self._started.pop(said["number"])
                if not started.cancelled():
                    started.set_result(serving)
            else:
                del self._running[said["pid"]]
                serving.status.set_result(said["status"])
