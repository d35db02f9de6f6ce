"""Put an unpacked backup in the place of a data directory, so that a crash in the middle is finished at the next start.

Everything happens inside the data directory, because often nothing else may be written: it is the volume of a
container, or belongs to a service's own user. A note says which names go and which come. From the moment it is durable
there is one way only, forward, and each step is a rename that can be made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from gateway.errors import BackupError
from gateway.files.atomic import make_private_directory, sync_directory, write_atomically
from gateway.files.home import LOCK_NAME
from gateway.files.locks import hold
from gateway.ops.backup.contents import PLACING_NAME, REPLACED_PREFIX, UNPACKED_PREFIX


def present(home: Path) -> list[str]:
    """What a data directory holds, without what restoring itself keeps there."""
    own = (UNPACKED_PREFIX, REPLACED_PREFIX)
    return sorted(
        path.name
        for path in home.iterdir()
        if path.name not in (LOCK_NAME, PLACING_NAME) and not path.name.startswith(own)
    )


def place(home: Path, unpacked: Path, replaced: Path) -> None:
    """Move what is there into `replaced`, and what was unpacked into its place; both lie in `home`, which is locked.

    Raises:
        BackupError: it was broken off in the middle; the next start of the gateway, or this, finishes it.
    """
    note = {
        "unpacked": unpacked.name,
        "replaced": replaced.name,
        "old": present(home),
        "new": sorted(path.name for path in unpacked.iterdir()),
    }
    sync_directory(unpacked)
    write_atomically(home / PLACING_NAME, json.dumps(note).encode())
    finish_placing(home)


def finish_broken_off(home: Path) -> bool:
    """For a start, before anything in the directory is read: finish a restore that was killed; whether there was one.

    Raises:
        DataDirectoryLocked: another process is restoring now.
        BackupError: it cannot be finished now.
    """
    if not (home / PLACING_NAME).exists():
        return False
    lock = hold(home / LOCK_NAME)
    try:
        return finish_placing(home)
    finally:
        lock.release()


def refuse_half_placed(home: Path) -> None:
    """Make sure that no restore was broken off in the middle.

    Raises:
        BackupError: one was.
    """
    if (home / PLACING_NAME).exists():
        raise BackupError(
            f"a restore of {home} was broken off in the middle; `ethos restore` or a new start finishes it"
        )


def finish_placing(home: Path) -> bool:
    """Bring to its end what `place` began; whether there was anything. The caller holds the directory's lock.

    What was unpacked by a process that died before that is removed.

    Raises:
        BackupError: it cannot be finished now; says what is in the way.
    """
    path = home / PLACING_NAME
    try:
        note = json.loads(path.read_bytes())
        unpacked, replaced = home / note["unpacked"], home / note["replaced"]
        old, new = list(note["old"]), list(note["new"])
    except FileNotFoundError:
        for left in home.glob(f"{UNPACKED_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        return False
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{path} cannot be read ({error}); look into {home} before you remove it") from error
    try:
        _move(home, unpacked, replaced, old, new)
    except OSError as error:
        raise BackupError(
            f"the backup could not be put in place: {error.filename}: {error.strerror}. Nothing is lost: what was "
            f"there is in {replaced}, the rest of the backup in {unpacked}. Fix that, and start the gateway or `ethos "
            f"restore` again: it goes on from here."
        ) from error
    path.unlink()
    sync_directory(home)
    return True


def _move(home: Path, unpacked: Path, replaced: Path, old: list[str], new: list[str]) -> None:
    if old:
        make_private_directory(replaced)
    for name in old:
        # Once it is in its new place, the name here belongs to the backup.
        if not os.path.lexists(replaced / name) and os.path.lexists(home / name):
            (home / name).rename(replaced / name)
    _sync(replaced, home)  # what is there must be out of the way for good before anything takes its name
    for name in new:
        if os.path.lexists(unpacked / name):
            (unpacked / name).rename(home / name)
    _sync(unpacked, home)
    shutil.rmtree(unpacked, ignore_errors=True)


def _sync(*directories: Path) -> None:
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            sync_directory(directory)
