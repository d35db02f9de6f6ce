"""Checks of the data directory: who may read it, whether it can be trusted, and what was left in it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gateway.config.file import CONFIG_NAME
from gateway.errors import FileError, UnsafePath
from gateway.files.atomic import sync_directory
from gateway.files.home import DATABASE_NAME, RUNNING_NAME, TOKEN_NAME, close_to_others
from gateway.files.locks import refuse_network_file_system
from gateway.files.running_gateway import left_word, take
from gateway.files.unix_socket import SOCKET_NAME
from gateway.ops.doctor.finding import Finding, Ground, Repair, named

LITTLE_SPACE_BYTES = 512 * 1024 * 1024
NO_SPACE_BYTES = 64 * 1024 * 1024
FEW_FILES = 1_000
MIN_TOKEN_CHARS = 20  # as gateway/web/auth.py has it
_LISTED = 5

_DIRECTORIES = ("users", "personalities", "channels", "run", "secrets")
_FILES = (
    DATABASE_NAME,
    f"{DATABASE_NAME}-wal",
    f"{DATABASE_NAME}-shm",
    TOKEN_NAME,
    "users/identity-map.json",
)
_MEMORY_FILES = ("USER.md", "MEMORY.md")


def data_directory_exists(ground: Ground) -> Iterator[Finding]:
    """The data directory."""
    if ground.home.is_dir():
        yield Finding("home", "note", f"Data directory: {ground.home}")
    else:
        yield Finding(
            "home", "note", f"There is no data directory {ground.home} yet; `ethos init` or `ethos serve` makes it."
        )


def modes(ground: Ground) -> Iterator[Finding]:
    """Everything belongs to us, and no other user may read it."""
    looked_at = _looked_at(ground.home)
    foreign = [path for path, status in looked_at if status.st_uid != os.geteuid()]
    if foreign:
        yield Finding(
            "foreign-owner",
            "problem",
            f"These belong to another user than you ({os.geteuid()}): {_named(foreign)}",
            f"Run ethos as the user who owns them, or: chown -R {os.geteuid()} {ground.home}",
        )
    open_to_others = [(path, status) for path, status in looked_at if status.st_mode & 0o077]
    home_is_closed = not any(path == ground.home for path, _ in open_to_others)
    for is_directory, wanted in ((True, "700"), (False, "600")):
        paths = [path for path, status in open_to_others if stat.S_ISDIR(status.st_mode) == is_directory]
        if paths:
            yield Finding(
                "open-directories" if is_directory else "open-files",
                "warning" if home_is_closed else "problem",
                f"Other users may look into: {_named(paths)}",
                f"chmod {wanted} " + " ".join(map(str, paths)),
                repair=closing(ground.home),
            )


def out_of_reach(ground: Ground) -> Iterator[Finding]:
    """What the gateway must be able to read and write, it can; memory files are plain files."""
    shut = [path for path in _used(ground.home) if not os.access(path, _wanted(path))]
    if shut:
        yield Finding(
            "out-of-reach",
            "problem",
            f"You may not read and write: {_named(shut)}",
            "chmod u+rwX " + " ".join(map(str, shut)),
            repair=_by_files(
                "Give me access",
                "Gives you, the owner, the right to read and write them; nobody else gets any.",
                partial(_opened, ground.home),
            ),
        )
    home = os.path.realpath(ground.home)
    for path in _memory_files(ground.home):
        if not path.is_file() or not Path(os.path.realpath(path)).is_relative_to(home):
            yield Finding(
                named("memory-file", str(path.relative_to(ground.home))),
                "problem",
                f"{path} is not a file of this directory, so nothing is remembered from it.",
                "Move it away, or put a plain file in its place.",
            )


def _by_files(label: str, does: str, work: Callable[[], str], *, asks: bool = False) -> Repair:
    async def run() -> str:
        return await asyncio.to_thread(work)

    return Repair(label=label, does=does, run=run, asks=asks)


def closing(home: Path) -> Repair:
    """What closes everything in the data directory to other users."""
    does = "Takes the rights of all other users away from the files and directories of the gateway."
    return _by_files("Close to others", does, partial(_closed, home))


def _closed(home: Path) -> str:
    close_to_others(home)
    return "Other users may not look into them any more."


def _opened(home: Path) -> str:
    """From the top down: what is below a directory that is shut is seen only once that is open."""
    opened: set[Path] = set()
    while shut := [path for path in _used(home) if path not in opened and not os.access(path, _wanted(path))]:
        for path in shut:
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o700 if path.is_dir() else 0o600))
        opened.update(shut)
    return f"You may read and write {len(opened)} more of them."


def _wanted(path: Path) -> int:
    return os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)


def _used(home: Path) -> list[Path]:
    names = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
    named = [path for name in names if (path := home / name).exists()]
    return [*named, *_directories(home), *_memory_files(home)]


def _directories(home: Path) -> list[Path]:
    """Those that hold memory; what is below one that is shut cannot be seen."""
    tops = [path for name in ("users", "personalities") if (path := home / name).is_dir()]
    below = [Path(place, name) for top in tops for place, names, _ in os.walk(top) for name in sorted(names)]
    return [*tops, *below]


def _memory_files(home: Path) -> list[Path]:
    places = [home, *_directories(home)]
    return [path for place in places for name in _MEMORY_FILES if os.path.lexists(path := place / name)]


def _looked_at(home: Path) -> list[tuple[Path, os.stat_result]]:
    secrets = home / "secrets"
    below = sorted(secrets.iterdir()) if os.access(secrets, os.R_OK | os.X_OK) and secrets.is_dir() else []
    paths = [home, *(home / name for name in _DIRECTORIES + _FILES), *below]
    return [(path, path.stat()) for path in paths if os.access(path.parent, os.X_OK) and path.exists()]


def file_system(ground: Ground) -> Iterator[Finding]:
    """Locks and SQLite need a local disk."""
    try:
        if ground.home.is_dir():
            refuse_network_file_system(ground.home)
    except UnsafePath as error:
        yield Finding(
            "network-file-system", "problem", str(error), "Move the data directory, and set ETHOS_HOME to it."
        )


def disk_space(ground: Ground) -> Iterator[Finding]:
    """A full disk stops the gateway from taking messages."""
    if not ground.home.is_dir():
        return
    free_bytes = shutil.disk_usage(ground.home).free
    if free_bytes < LITTLE_SPACE_BYTES:
        yield Finding(
            "disk-space",
            "problem" if free_bytes < NO_SPACE_BYTES else "warning",
            f"Only {free_bytes / 1024 / 1024:.0f} MiB are free where {ground.home} is.",
            "Make room. Nothing is lost when it is full, but then no message is taken.",
            repair=ground.by_hands(
                "Delete what is old",
                "Deletes what is older than `retention` allows now, as the gateway does each day. It cannot be undone.",
                lambda hands: hands.forget_old(),
                asks=True,
            ),
        )
    system = os.statvfs(ground.home)
    if system.f_files and system.f_favail < FEW_FILES:
        yield Finding(
            "disk-files",
            "warning",
            f"Only {system.f_favail} more files can be made where {ground.home} is.",
            "Remove many small files there.",
        )


def web_token(ground: Ground) -> Iterator[Finding]:
    """A reader of the token is the operator; that only its owner may is checked with the other files."""
    if ground.config is not None and ground.config.secret is not None:
        return  # the token is derived from that, and the file opens nothing
    path = ground.home / TOKEN_NAME
    if not os.access(ground.home, os.X_OK) or not os.path.lexists(path):
        return
    advice = f"Remove {path} and start the gateway again; it makes a new one."
    new_one = _by_files(
        "Remove the token",
        f"Deletes {TOKEN_NAME}. The next start makes a new one, which `ethos token` shows. Programs that have the "
        "old one must be given the new one.",
        partial(_removed, path),
        asks=True,
    )
    if path.is_symlink() or not path.is_file():
        yield Finding(
            "web-token", "problem", f"{path} is not a plain file, so the web page cannot start.", advice, repair=new_one
        )
        return
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        yield Finding("web-token", "problem", f"{path} cannot be read: {error.strerror}.", advice, repair=new_one)
        return
    if path.stat().st_mode & 0o077:
        what = f"{path} holds the key to everything, and other users may read it, or could."
        yield Finding("web-token", "problem", what, advice, repair=new_one)
    if token and (len(token) < MIN_TOKEN_CHARS or not token.isascii()):
        yield Finding(
            "web-token",
            "problem",
            f"{path} holds no usable token, so the web page cannot start.",
            advice,
            repair=new_one,
        )


def _removed(path: Path) -> str:
    if path.is_dir() and not path.is_symlink():
        raise FileError(f"{path} is a directory; look what is in it, and move it away")
    path.unlink(missing_ok=True)
    sync_directory(path.parent)
    return f"{path.name} is removed. Restart the gateway now: it makes a new one."


def left_by_a_dead_gateway(ground: Ground) -> Iterator[Finding]:
    """`run/gateway.json` is removed by a gateway that ends in order."""
    path = ground.home / RUNNING_NAME
    if ground.process is not None or not os.access(ground.home, os.X_OK) or not path.exists():
        return
    left = left_word(ground.home)
    who = f"The gateway with the process id {left.pid}" if left else "A gateway"
    yield Finding(
        "dead-gateway",
        "warning",
        f"{who} did not end in order: it was killed, or the machine stopped.",
        f"Look into its log for the reason. Nothing is lost; the next start goes on, and replaces {path}.",
        repair=Repair(
            label="Clear it away",
            does="Deletes what that gateway left to be found by: the file with its process id, and its socket.",
            run=partial(_clear, ground.home),
        ),
    )


async def _clear(home: Path) -> str:
    held = await take(home)  # none starts meanwhile
    try:
        for name in (SOCKET_NAME, RUNNING_NAME):
            await asyncio.to_thread((home / name).unlink, missing_ok=True)
    finally:
        held.release()
    return "It is cleared away."


def port(ground: Ground) -> Iterator[Finding]:
    """The web server's port must be free for the next start."""
    if ground.process is not None or ground.config is None or not ground.config.web.port:
        return
    host, number = ground.config.web.host, ground.config.web.port
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        socket.create_server(found[4][:2], family=found[0]).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"Another program has port {number} on {host}, so the gateway cannot start."
            advice = f"Stop that program, or set `web.port` in {CONFIG_NAME} to another port, or to 0 for any free one."
        elif error.errno == errno.EACCES:
            what, advice = f"You may not open port {number}.", f"Set `web.port` in {CONFIG_NAME} to 1024 or more."
        else:
            what = f"{host} is not an address of this machine ({error.strerror or error})."
            advice = f"Set `web.host` in {CONFIG_NAME} to 127.0.0.1."
        yield Finding("port", "problem", what, advice)


def _named(paths: list[Path]) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return ", ".join(map(str, paths[:_LISTED])) + more
