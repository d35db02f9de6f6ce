"""Changes that the gateway itself makes to `config.yaml`: checked as a whole before they are written.

The file before is kept as `config.yaml.before`. Whatever somebody else writes in the meantime is not lost: the change
is refused then.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.config.file import CONFIG_NAME, check
from gateway.config.mcp import names_secret
from gateway.config.secrets import is_unset_variable
from gateway.errors import ConfigError, FileError
from gateway.files.atomic import (
    exchange,
    make_once,
    make_private_directory,
    read_once,
    read_settled,
    sync_directory,
    write_atomically,
    write_new,
)
from gateway.files.positions.splicing import with_entry, without_entry
from gateway.files.positions.yaml import parse_marked_yaml, value_at

BEFORE_NAME = f"{CONFIG_NAME}.before"
SECRETS_NAME = "secrets"
_SERVERS = ("mcp", "servers")
# Whoever read what one of us is about to take back would write it again. The lock of the data directory keeps other
# processes of ours out; an editor of somebody else has no lock.
_WRITING = threading.Lock()
_NOT_OF_FILE = re.compile(r"[^A-Za-z0-9_-]")


class ConfigChanged(FileError):
    """Somebody else wrote the file in the meantime; nothing was written."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A change that was written.

    Attributes:
        notes: what works and is not wise, or is still to be done; one line for people each.
    """

    notes: Sequence[str]


def has_server(home: Path, name: str) -> bool:
    """Whether `mcp.servers` in the file names it; blocks.

    Raises:
        FileError: the file cannot be read.
    """
    seen = read_settled(home / CONFIG_NAME)
    values = {} if seen is None else parse_marked_yaml(seen.data, CONFIG_NAME).values
    return isinstance(value_at(values, (*_SERVERS, name)), dict)


def add_server(home: Path, name: str, entry: Mapping[str, Any], *, is_elsewhere: bool = False) -> Edited:
    """Write a server into `mcp.servers`; secrets among its headers and variables go into files of their own.

    Blocks: it reads and checks the whole configuration.

    Args:
        entry: its keys; `headers` and `env` as text.
        is_elsewhere: whoever will use the file may have variables that this process has not.

    Raises:
        ConfigError: the configuration would not be usable; says where and why.
        ConfigChanged: somebody else wrote the file in the meantime.
        FileError: it cannot be written.
    """
    with _secrets_apart(home, name, entry) as (kept, notes):
        edited = _change(home, lambda text: with_entry(text, (*_SERVERS, name), kept), name, is_elsewhere=is_elsewhere)
    return Edited([*notes, *edited.notes])


def remove_server(home: Path, name: str, *, is_elsewhere: bool = False) -> Edited:
    """Take a server out of `mcp.servers`; raises as `add_server`."""
    seen = read_settled(home / CONFIG_NAME)
    entry = value_at(parse_marked_yaml(seen.data if seen else b"", CONFIG_NAME).values, (*_SERVERS, name))
    edited = _change(home, lambda text: without_entry(text, (*_SERVERS, name)), name, is_elsewhere=is_elsewhere)
    parts = [part for part in (entry.get("headers"), entry.get("env")) if isinstance(part, dict)]
    files = [value["file"] for part in parts for value in part.values() if isinstance(value, dict) and "file" in value]
    left = [f"nothing in this server's entry needs {file} any more; delete it, unless others do" for file in files]
    return Edited([*left, *edited.notes])


@contextmanager
def _secrets_apart(home: Path, name: str, entry: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    """The entry with `{file: …}` for each secret in it, and a note of each; the files go if the change fails."""
    kept, notes, made = dict(entry), list[str](), list[Path]()
    try:
        for part in ("headers", "env"):
            kept |= {part: dict(kept[part])} if kept.get(part) else {}
            for key, value in kept.get(part, {}).items():
                if not names_secret(key) or "${" in value:
                    continue
                path = _new_file(home / SECRETS_NAME / f"mcp-{name}-{_NOT_OF_FILE.sub('_', key)}", value)
                made.append(path)
                kept[part][key] = {"file": f"{SECRETS_NAME}/{path.name}"}
                notes.append(f"the secret of {part}.{key} is kept in {SECRETS_NAME}/{path.name}, not in {CONFIG_NAME}")
        yield kept, notes
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _new_file(path: Path, secret: str) -> Path:
    """Keep a secret under the first of `path`, `path-2`, `path-3` … that is free."""
    make_private_directory(path.parent)
    number, free = 1, path
    while not make_once(free, f"{secret}\n".encode()):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _change(home: Path, change: Callable[[str], str], name: str, *, is_elsewhere: bool) -> Edited:
    with _WRITING:
        return _changed_alone(home, change, name, is_elsewhere=is_elsewhere)


def _changed_alone(home: Path, change: Callable[[str], str], name: str, *, is_elsewhere: bool) -> Edited:
    path = home / CONFIG_NAME
    seen = read_settled(path)
    before = b"" if seen is None else seen.data
    try:
        after = change(before.decode("utf-8")).encode()
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8; correct it first") from None
    findings = check(path, home=home, data=after)
    unset = [problem for problem in findings.problems if is_elsewhere and is_unset_variable(problem)]
    problems = [problem for problem in findings.problems if problem not in unset]
    if problems:
        raise ConfigError(problems)
    if seen is None:
        if not make_once(path, after):
            raise _changed(path)
    else:
        _replace(Path(os.path.realpath(path)), before, after)
    about = f".servers.{name}."
    return Edited([note for note in (*unset, *findings.warnings) if about in note or note in unset])


def _replace(path: Path, before: bytes, after: bytes) -> None:
    """Put `after` in place of `before`, which stays beside it; the names are exchanged, so that nothing is lost."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        write_new(temporary, after)
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        if exchange(temporary, path):
            if _data(temporary) != before:  # somebody wrote it at that very moment
                exchange(temporary, path)
                raise _changed(path)
            temporary.replace(path.with_name(BEFORE_NAME))
        else:
            if _data(path) != before:
                raise _changed(path)
            write_atomically(path.with_name(BEFORE_NAME), before)
            temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror}. Change it by hand.") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _data(path: Path) -> bytes | None:
    seen = read_once(path)
    return None if seen is None else seen.data


def _changed(path: Path) -> ConfigChanged:
    return ConfigChanged(f"{path} was changed by somebody else in the meantime, and nothing was written; try it again")
