"""What of a data directory belongs in a backup, and what does not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.config.file import CONFIG_NAME
from gateway.config.secrets import secret_files
from gateway.errors import BackupError
from gateway.files.home import DATABASE_NAME, LOCK_NAME, LOG_NAME, TOKEN_NAME
from gateway.files.positions.yaml import read_marked_yaml, value_at

STAGING_PREFIX = ".ethos-backup-"
UNPACKED_PREFIX = ".restore-"
REPLACED_PREFIX = "replaced-"
PLACING_NAME = ".placing.json"
NAME = re.compile(r"ethos-\d{8}T\d{6}Z(?:-\d+)?\.tar\.gz")
"""Of a backup that was not given a name; one that lies in the data directory is not in the next.

A second one of the same second has a number: `ethos-20261122T093000Z-2.tar.gz`.
"""

# Files that are rebuilt, or mean nothing to another process; databases are copied separately.
_LEFT_AT_TOP = re.compile(
    rf"{re.escape(LOCK_NAME)}|(?:{re.escape(DATABASE_NAME)}|traces\.sqlite).*|{re.escape(LOG_NAME)}|{re.escape(PLACING_NAME)}|run|exports"
    rf"|{re.escape(STAGING_PREFIX)}.*|{re.escape(UNPACKED_PREFIX)}.*|{re.escape(REPLACED_PREFIX)}.*|{NAME.pattern}"
)
_LEFT_ANYWHERE = re.compile(
    rf"\.memory\.lock|\.edit\.lock|\.identity-map\.lock|\.erasures\.lock|\.(?:MEMORY|USER)\.md\..*|\..*\.tmp|{NAME.pattern}"
)
_IN_DATA_DIRECTORY = frozenset(["markdown", "database", "traces", "webdav"])
_SECRETS_AT_TOP = frozenset(["secrets", TOKEN_NAME, ".env"])


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """A name in the data directory.

    Attributes:
        path: relative to it.
        link: where a symbolic link leads, relative to its own directory; None for a file.
        why_not: why it is left out: `secret`, or a sentence for people; None when it belongs in the backup.
    """

    path: Path
    link: str | None = None
    why_not: str | None = None


def secrets_of(home: Path) -> set[Path]:
    """The files and directories that hold secrets, relative to the data directory.

    Raises:
        BackupError: the configuration cannot be read, so the files of its secrets are unknown.
    """
    path = home / CONFIG_NAME
    found = {Path(name) for name in _SECRETS_AT_TOP}
    try:
        document = read_marked_yaml(path, path.name)
    except FileNotFoundError:
        return found
    if not document.is_readable:
        problems = "\n".join(document.sorted_problems())
        raise BackupError(
            f"{problems}\nSo it cannot be told which files hold secrets, which a backup leaves out. "
            f"Fix {CONFIG_NAME}, or take the secrets in too: --with-secrets."
        )
    real_home = home.resolve()
    for file in secret_files(document.values, path.parent):
        for seen in (Path(os.path.normpath(file)), Path(os.path.realpath(file))):
            for root in (home, real_home):
                if seen.is_relative_to(root):
                    found.add(seen.relative_to(root))
    return found


def memory_elsewhere(home: Path) -> str | None:
    """The kind of the memory, where the data directory does not hold it; None where it does."""
    try:
        values = read_marked_yaml(home / CONFIG_NAME, CONFIG_NAME).values
    except FileNotFoundError:
        return None
    provider = value_at(values, ("memory", "provider"))
    kind = provider.get("kind") if isinstance(provider, dict) else provider
    return kind if isinstance(kind, str) and kind not in _IN_DATA_DIRECTORY else None


def walk(home: Path, secrets: set[Path]) -> Iterator[HomeEntry]:
    """Every name that may belong in a backup, in order; `secrets` are named, and not entered."""
    yield from _walk(home, Path(), secrets)


def _walk(home: Path, below: Path, secrets: set[Path]) -> Iterator[HomeEntry]:
    try:
        entries = sorted(os.scandir(home / below), key=lambda entry: entry.name)
    except FileNotFoundError:  # gone since
        return
    for entry in entries:
        path = below / entry.name
        is_at_top = not below.parts
        if _LEFT_ANYWHERE.fullmatch(entry.name) or (is_at_top and _LEFT_AT_TOP.fullmatch(entry.name)):
            continue
        if path in secrets:
            yield HomeEntry(path, why_not="secret")
        elif not _is_text(entry.name):
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            yield HomeEntry(path, why_not=f"{shown} has a name that is not UTF-8; rename it")
        elif entry.is_symlink():
            yield _link(home, path)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(home, path, secrets)
        elif entry.is_file(follow_symlinks=False):
            yield HomeEntry(path)


def _is_text(name: str) -> bool:
    """Whether a name can stand in the list of a backup: the system lets it be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _link(home: Path, path: Path) -> HomeEntry:
    """A link that stays inside is kept as one; the configuration may live elsewhere, and is then taken as a file."""
    real_home = home.resolve()
    real = Path(os.path.realpath(home / path))
    if real.is_relative_to(real_home):
        here = real_home / path.parent
        return HomeEntry(path, link=os.path.relpath(real, os.path.realpath(here)))
    if path == Path(CONFIG_NAME):
        return HomeEntry(path)
    return HomeEntry(path, why_not=f"{path} is a link that leads out of the data directory (to {real})")
