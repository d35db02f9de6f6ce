"""Process groups of servers, noted so that the next start ends those that a killed gateway has left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import structlog

from gateway.files.atomic import write_atomically

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_log = structlog.get_logger(__name__)


def note_group(note: Path, leader: int) -> None:
    """Write down which group runs; `leader` is the number of its first process."""
    write_atomically(note, json.dumps({"group": leader, "began": _began(leader), "boot": _boot()}).encode())


def forget_group(note: Path) -> None:
    """It has ended."""
    note.unlink(missing_ok=True)


def end_left_over(directory: Path) -> int:
    """End every group that is noted in a directory and still runs; how many there were. Blocks."""
    ended = 0
    for note in sorted(directory.glob("*.group")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(note.read_text())
            if noted["boot"] == _boot() and _is_same(noted["group"], noted["began"]):
                os.killpg(noted["group"], signal.SIGKILL)
                _log.warning("server_left_over", server=note.stem, group=noted["group"])
                ended += 1
        forget_group(note)
    return ended


def _is_same(group: int, began: int) -> bool:
    """Whether a group is the one that was noted, and not a later one under its number.

    A number is given to nobody while a group has it. So either its leader is still there and began then, or the leader
    is gone and its children are not: they began later.
    """
    beginnings = dict(members(group))
    if not beginnings:
        return False
    return beginnings[group] == began if group in beginnings else min(beginnings.values()) >= began


def members(group: int) -> Iterator[tuple[int, int]]:
    """Number of each process of a group, and when it began, in ticks since the machine was started."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _fields(int(place.name))
            if int(fields[2]) == group and fields[0] != "Z":
                yield int(place.name), int(fields[19])


def _fields(process: int) -> list[str]:
    """Of proc_pid_stat(5), from the third on: a name may hold spaces and brackets."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _began(process: int) -> int:
    """In ticks since the machine was started; 0 where it is gone already."""
    try:
        return int(_fields(process)[19])
    except (OSError, ValueError, IndexError):
        return 0


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
