"""The ways to shut a program in, from the strongest: bubblewrap, Landlock, or a command that the operator names.

Each makes a command out of a command. What it leaves is the same: the system's directories to read, one workspace, an
empty temporary directory, a small environment; and no network, unless the operator opened it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from gateway.sandbox import launch

TierName = Literal["bubblewrap", "landlock", "command", "bare"]
_LAUNCH = Path(launch.__file__)
_MEBIBYTE = 1 << 20
# What programs need of the system; those that are links are links inside, too.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/ssl", "/etc/ca-certificates", "/etc/nsswitch.conf", "/etc/mime.types",
)  # fmt: skip
_FOR_NETWORK = ("/etc/resolv.conf", "/etc/hosts")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use.

    Attributes:
        wall_s: then its whole group is killed.
        processes: threads count.
        file_bytes: of one file.
        output_bytes: that are kept of what it prints.
    """

    wall_s: float = 60.0
    cpu_s: int = 30
    memory_bytes: int = 512 * _MEBIBYTE
    processes: int = 64
    file_bytes: int = 64 * _MEBIBYTE
    output_bytes: int = _MEBIBYTE

    @property
    def of_kernel(self) -> Mapping[str, int]:
        """Those that `launch` sets."""
        return {
            "cpu_s": self.cpu_s,
            "memory_bytes": self.memory_bytes,
            "file_bytes": self.file_bytes,
            "processes": self.processes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a program is left with.

    Attributes:
        workspace: the directory that it may write to; it starts there.
        temporary: an empty directory, removed afterwards.
        readable: further files and directories, such as those of a language.
        writable: further ones that it may change.
        variables: of its environment, besides four that each program has.
        network: whether it may open sockets.
    """

    workspace: Path
    temporary: Path
    readable: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def environment(self) -> Mapping[str, str]:
        """All of it."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.workspace),
            "TMPDIR": str(self.temporary),
            "LC_ALL": "C.UTF-8",
            **self.variables,
        }


class Tier(Protocol):
    """One way."""

    @property
    def name(self) -> TierName:
        """Of the way."""

    def command(self, plan: Plan, command: Sequence[str]) -> Sequence[str]:
        """The command that runs a command shut in."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces of its own, made by bwrap(1), as an ordinary user.

    bwrap itself gets the small environment: what `--clearenv` removes could still be read at its process.
    """

    program: str
    name: TierName = "bubblewrap"

    def command(self, plan: Plan, command: Sequence[str]) -> Sequence[str]:
        """As `Tier`."""
        words = [
            self.program, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
            "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
        ]  # fmt: skip
        if plan.network:
            words.append("--share-net")
        for place in map(Path, _SYSTEM):
            if place.is_symlink():
                words += ["--symlink", str(place.readlink()), str(place)]
            elif place.exists():
                words += ["--ro-bind", str(place), str(place)]
        for name in (*_SETTINGS, *(_FOR_NETWORK if plan.network else ())):
            words += ["--ro-bind-try", name, name]
        for place in _readable(plan):
            words += ["--ro-bind", str(place), str(place)]
        for place in (plan.workspace, plan.temporary, *plan.writable):
            words += ["--bind", str(place), str(place)]
        words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(plan.workspace), "--"]
        return [*words, *_launched({"limits": plan.limits.of_kernel}, command)]


@dataclass(frozen=True, slots=True)
class Landlock:
    """Landlock and a filter of system calls: where no namespaces can be made, such as in a container."""

    name: TierName = "landlock"

    def command(self, plan: Plan, command: Sequence[str]) -> Sequence[str]:
        """As `Tier`."""
        readable = [*_SYSTEM, *_SETTINGS, *(_FOR_NETWORK if plan.network else ()), *map(str, _readable(plan))]
        landlock = {
            "readable": readable,
            "writable": [*map(str, (plan.workspace, plan.temporary, *plan.writable)), *_DEVICES],
            "network": plan.network,
        }
        return _launched({"limits": plan.limits.of_kernel, "landlock": landlock, "parent": os.getpid()}, command)


@dataclass(frozen=True, slots=True)
class Command:
    """What the operator puts in front, such as a container run. `{workspace}` and `{temporary}` stand for the paths."""

    words: Sequence[str]
    name: TierName = "command"

    def command(self, plan: Plan, command: Sequence[str]) -> Sequence[str]:
        """As `Tier`."""
        places = {"{workspace}": str(plan.workspace), "{temporary}": str(plan.temporary)}
        return [*(places.get(word, word) for word in self.words), *command]


@dataclass(frozen=True, slots=True)
class Bare:
    """Limits of time and memory alone: for a program of ours that has nothing to break out by, whatever it reads."""

    name: TierName = "bare"

    def command(self, plan: Plan, command: Sequence[str]) -> Sequence[str]:
        """As `Tier`."""
        return _launched({"limits": plan.limits.of_kernel, "parent": os.getpid()}, command)


def bubblewrap() -> Bubblewrap | None:
    """Where bwrap is installed."""
    program = shutil.which("bwrap")
    return None if program is None else Bubblewrap(program)


def _launched(plan: Mapping[str, Any], command: Sequence[str]) -> Sequence[str]:
    return [sys.executable, "-I", "-S", str(_LAUNCH), json.dumps(plan), *command]


def _readable(plan: Plan) -> Sequence[Path]:
    """What the launcher and the program need besides the system: a Python of its own, and what the plan names."""
    python = {Path(sys.prefix), Path(sys.base_prefix), _LAUNCH, *plan.readable}
    return sorted(place for place in python if not str(place).startswith("/usr/"))
