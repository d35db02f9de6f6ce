"""Where the files of people and groups lie: in the data directory, or in a directory that all workers share."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.domain.root_secret import fingerprint
from gateway.errors import ConfigError, FileError
from gateway.files.atomic import make_once
from gateway.sandbox.workspace import Workspaces
from gateway.store.settings import FORGET_WORKSPACES, known_workspaces, settle_workspaces

if TYPE_CHECKING:
    from gateway.store.engine import Engine

FindWorkspaces = Callable[[Config, Path, "Engine", bytes | None], Awaitable[Workspaces]]
MARKER_NAME = "ethos-workspaces.json"


async def workspaces_of(config: Config, home: Path, engine: Engine, secret: bytes | None) -> Workspaces:
    """Those of this gateway, with the proof that all workers use the same directory.

    Raises:
        ConfigError: it is not usable, or another one than that of the other workers; says what to do.
        StoreUnavailable: the database cannot be used now.
    """
    if config.tools.workspaces is None or secret is None or not config.has_others:
        return Workspaces(home)
    place = Path(config.tools.workspaces)
    await asyncio.to_thread(_try, place, home)
    directory = await _proved(place, fingerprint(secret), engine)
    marker = place / MARKER_NAME

    def check_place() -> None:
        if _read(marker) != directory:
            raise FileError(f"the directory of `tools.workspaces`, {place}, is not there any more; mount it again")

    return Workspaces(place, check_place)


async def look_at_workspaces(config: Config, home: Path, engine: Engine, secret: bytes | None) -> bool:
    """For a check, which begins nothing: whether a worker has begun to use it; raises as `workspaces_of`."""
    place = Path(config.tools.workspaces or home)
    await asyncio.to_thread(_try, place, home)
    marker = await asyncio.to_thread(_read, place / MARKER_NAME)
    if marker is None and await known_workspaces(engine) is None:
        return False
    await workspaces_of(config, home, engine, secret)
    return True


async def workspaces_if_there(config: Config, home: Path, engine: Engine, secret: bytes | None) -> Workspaces:
    """The same for a command, which may run on a machine without the directory: only what needs it fails there."""
    try:
        return await workspaces_of(config, home, engine, secret)
    except ConfigError as error:
        text = str(error)

    def check_place() -> None:
        raise FileError(text)

    return Workspaces(Path(config.tools.workspaces or home), check_place)


async def _proved(place: Path, gateway: str, engine: Engine) -> tuple[str, str]:
    """What the marker says, which is the same for all workers: the gateway, and the id of the directory.

    The file comes first, and the database says which of several wins. So a worker that has another directory finds it
    out, whoever of them began and wherever one was killed.
    """
    marker = place / MARKER_NAME
    known, found = await known_workspaces(engine), await asyncio.to_thread(_read, marker)
    if found is None and known is not None:
        raise _refused(
            f"{place} is not the directory that the other workers use, or its disk is not mounted: {MARKER_NAME} is "
            "missing. Mount theirs. If the files were lost, and it is to begin empty, stop all workers and run "
            f"`{FORGET_WORKSPACES}` in the database"
        )
    if found is None:
        text = json.dumps({"gateway": gateway, "directory": secrets.token_hex(16)})
        try:
            await asyncio.to_thread(make_once, marker, text.encode())
        except FileError as error:
            raise _refused(str(error)) from error
        found = await asyncio.to_thread(_read, marker)
    if found is None or (found[0] != gateway and known != found[1]):
        raise _refused(
            f"{place} belongs to another gateway, as {MARKER_NAME} in it says; give this one a directory of its own. "
            f"If `secret` was exchanged on purpose, remove {marker}"
        )
    if (known or await settle_workspaces(engine, found[1])) != found[1]:
        raise _refused(
            f"{place} is another directory than that of the other workers, as {MARKER_NAME} in it says; all workers "
            "need one that they share, such as NFS or a ReadWriteMany volume"
        )
    return found


def _try(place: Path, home: Path) -> None:
    """Whether files can be written and locked there; raises `ConfigError`."""
    real, real_home = Path(os.path.realpath(place)), Path(os.path.realpath(home))
    if real.is_relative_to(real_home) or real_home.is_relative_to(real):
        raise _refused(f"{place} and the data directory {home} lie in one another; expected two apart")
    if not place.is_dir():
        raise _refused(f"there is no directory {place}; mount the one that all workers share")
    try:
        with NamedTemporaryFile(dir=place, prefix=".try-") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise _refused(
            f"this worker cannot write and lock files in {place} ({error.strerror}); give it to the user "
            f"{os.geteuid()}, on a file system that locks"
        ) from error


def _refused(text: str) -> ConfigError:
    return ConfigError([f"`tools.workspaces`: {text}"])


def _read(marker: Path) -> tuple[str, str] | None:
    """None where there is none; what cannot be read is nobody's."""
    try:
        found = json.loads(marker.read_bytes())
        return str(found["gateway"]), str(found["directory"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""
