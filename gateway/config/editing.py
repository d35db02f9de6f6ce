"""Changes to `config.yaml` that the gateway itself makes: seen as a difference, checked as a whole, written, undone.

Every line that a change does not concern stays as it is. The file before is kept as `config.yaml.before`, and `undo`
exchanges the two. What somebody else writes in the meantime is not lost: the change is refused then. Everything here
blocks: it reads and checks the whole configuration.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config import Config
from gateway.config.changes import compare
from gateway.config.example import ExampleLayout
from gateway.config.file import CONFIG_NAME, check
from gateway.config.secrets import BEFORE_NAME, SECRETS_NAME, is_unset_variable, secret_files, unused_secrets
from gateway.errors import ConfigError, FileError
from gateway.files.atomic import (
    exchange,
    make_once,
    make_private_directory,
    read_once,
    read_settled,
    sync_directory,
    write_new,
)
from gateway.files.positions.splicing import REMOVED, spliced
from gateway.files.positions.yaml import KeyPath, Problem, dotted, parse_marked_yaml
from gateway.runtime.failpoints import reach

__all__ = ["REMOVED", "Changes", "ConfigChanged", "Edited", "Proposal", "Secret", "edit", "propose", "undo"]

Changes = Mapping[KeyPath, Any]
"""By the path of a key: what is to stand there in YAML, a whole section too; a `Secret`, also within one; `REMOVED`."""
_HIDDEN, _HIDDEN_NEW = "(hidden)", "(hidden, new)"
_LEAST_HIDDEN_CHARS = 4
_NOT_OF_FILE = re.compile(r"[^A-Za-z0-9_.-]")
# Whoever read what one of us is about to take back would write it again. The lock of the data directory keeps other
# processes of ours out; an editor of somebody else has no lock.
_WRITING = threading.Lock()


class ConfigChanged(FileError):
    """Somebody else wrote the file in the meantime; nothing was written."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that goes into a file of its own in `secrets/`; `config.yaml` names the file."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FileNow:
    """What `config.yaml` is now.

    Attributes:
        version: a hash of it; the same for a file that is empty as for one that is not there.
        values: as they stand there, `${NAME}` and `{file: …}` as such; empty where it cannot be read.
        problems: why it is no YAML; empty where it is.
    """

    text: str = field(repr=False)
    version: str
    is_there: bool
    values: Mapping[str, Any] = field(repr=False)
    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a change would do, and nothing of it done.

    Attributes:
        version: of the file that it changes.
        difference: a unified one, without secrets; empty where nothing would change.
        problems: what is wrong with the file then, that was not wrong before; it cannot be saved.
        warnings: what would be unwise, or is still to be done; one line for people each.
        at_once: settings that a running gateway takes over, dotted.
        at_restart: those that it takes over when it is started again.
    """

    version: str
    difference: str
    problems: Sequence[Problem]
    warnings: Sequence[str]
    at_once: Sequence[str]
    at_restart: Sequence[str]
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    kept: Mapping[Path, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Edited:
    """A change that was written.

    Attributes:
        version: of the file now.
        notes: what works and is not wise, or is still to be done; one line for people each.
        difference: what was changed.
        at_once, at_restart: as in `Proposal`.
    """

    version: str
    notes: Sequence[str]
    difference: str = ""
    at_once: Sequence[str] = ()
    at_restart: Sequence[str] = ()


def file_now(home: Path) -> FileNow:
    """The file as it is.

    Raises:
        FileError: it cannot be read, or is not UTF-8.
    """
    data = _read(home / CONFIG_NAME)
    document = parse_marked_yaml(data or b"", CONFIG_NAME)
    values = document.values if document.is_readable else {}
    return FileNow(_text(home, data or b""), version_of(data), data is not None, values, tuple(document.problems))


def version_of(data: bytes | None) -> str:
    """The version of a file with these bytes."""
    return hashlib.sha256(data or b"").hexdigest()[:32]


def propose(home: Path, changes: Changes, *, in_force: Config | None = None, is_elsewhere: bool = False) -> Proposal:
    """What the changes would do.

    Args:
        in_force: the configuration of the running gateway; None: that of the file.
        is_elsewhere: whoever will use the file may have variables that this process has not.

    Raises:
        CannotSplice: the file is written in a way in which they cannot be made; the text says what to do by hand.
        FileError: it cannot be read.
    """
    kept, notes = dict[Path, str](), list[str]()
    plain = {path: _secrets_apart(home, path, value, kept, notes) for path, value in changes.items()}
    before = _read(home / CONFIG_NAME) or b""
    after = spliced(_text(home, before), plain, ExampleLayout()).encode()
    return _proposed(home, _Texts(before, after, kept, notes), in_force, is_elsewhere=is_elsewhere)


def edit(
    home: Path,
    changes: Changes,
    *,
    seen: str | None = None,
    in_force: Config | None = None,
    is_elsewhere: bool = False,
) -> Edited:
    """Make the changes, all or none.

    Args:
        seen: the version that the person saw; None: whatever there is now.
        in_force, is_elsewhere: as in `propose`.

    Raises:
        ConfigError: the configuration would not be usable; says where and why.
        ConfigChanged: it is another version, or somebody else wrote the file in the meantime.
        CannotSplice, FileError: as `propose`, or it cannot be written.
    """
    with _WRITING:
        return _written(home, propose(home, changes, in_force=in_force, is_elsewhere=is_elsewhere), seen)


def propose_undo(home: Path, *, in_force: Config | None = None, is_elsewhere: bool = False) -> Proposal:
    """What `undo` would do; raises as it."""
    real = Path(os.path.realpath(home / CONFIG_NAME))
    after, before = _data(real.with_name(BEFORE_NAME)), _read(home / CONFIG_NAME) or b""
    if after is None or after == before:
        raise FileError(f"there is nothing to undo: no {BEFORE_NAME} with another text lies beside {CONFIG_NAME}")
    return _proposed(home, _Texts(before, after), in_force, is_elsewhere=is_elsewhere)


def can_undo(home: Path) -> bool:
    """Whether a file before lies there."""
    return Path(os.path.realpath(home / CONFIG_NAME)).with_name(BEFORE_NAME).is_file()


def undo(home: Path, *, seen: str | None = None, in_force: Config | None = None, is_elsewhere: bool = False) -> Edited:
    """Write the file before back, and keep the one that it replaces, so that this can be undone, too.

    Raises:
        ConfigError, ConfigChanged: as `edit`.
        FileError: there is no file before, or it cannot be written.
    """
    with _WRITING:
        return _written(home, propose_undo(home, in_force=in_force, is_elsewhere=is_elsewhere), seen)


def _secrets_apart(home: Path, path: KeyPath, value: Any, kept: dict[Path, str], notes: list[str]) -> Any:
    """The value with `{file: …}` for each secret in it; `kept` gets what the files are to hold."""
    if isinstance(value, Secret):
        name = "-".join(_NOT_OF_FILE.sub("_", str(part)) for part in path)
        place, number = home / SECRETS_NAME / name, 1
        while place in kept or os.path.lexists(place):
            number += 1
            place = place.with_name(f"{name}-{number}")
        kept[place] = value.text
        notes.append(f"the secret of {dotted(path)} is kept in {SECRETS_NAME}/{place.name}, not in {CONFIG_NAME}")
        return {"file": f"{SECRETS_NAME}/{place.name}"}
    if isinstance(value, Mapping):
        return {key: _secrets_apart(home, (*path, key), item, kept, notes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_secrets_apart(home, (*path, place), item, kept, notes) for place, item in enumerate(value)]
    return value


@dataclass(frozen=True, slots=True)
class _Texts:
    before: bytes
    after: bytes
    kept: Mapping[Path, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def _proposed(home: Path, texts: _Texts, in_force: Config | None, *, is_elsewhere: bool) -> Proposal:
    path = home / CONFIG_NAME
    old = check(path, home=home, data=texts.before)
    new = check(path, home=home, data=texts.after, unwritten=texts.kept)
    unset = [str(problem) for problem in new.found if is_elsewhere and is_unset_variable(problem.text)]
    known = {(problem.path, problem.text) for problem in old.found}
    problems = [problem for problem in new.found if str(problem) not in unset]
    if len(new.found) < len(old.found):  # a file that cannot be used may be corrected one mistake after the other
        problems = [problem for problem in problems if (problem.path, problem.text) not in known]
    said = {(warning.path, warning.text) for warning in old.warned}
    warnings = [str(warning) for warning in new.warned if (warning.path, warning.text) not in said]
    current = in_force or (old.loaded.config if old.loaded else Config())
    differs = compare(current, new.loaded.config) if new.loaded else None
    return Proposal(
        version=version_of(texts.before),
        difference=_difference(texts, old.secrets, new.secrets),
        problems=problems,
        warnings=[*texts.notes, *unset, *_left_files(home, texts), *warnings],
        at_once=differs.at_once if differs else (),
        at_restart=differs.at_restart if differs else (),
        before=texts.before,
        after=texts.after,
        kept=texts.kept,
    )


def _difference(texts: _Texts, old: Collection[str], new: Collection[str]) -> str:
    """What changes, with the old secrets and the new ones hidden."""
    before, after = (data.decode("utf-8", "replace") for data in (texts.before, texts.after))
    for secret in sorted({*old, *new}, key=len, reverse=True):
        if len(secret) >= _LEAST_HIDDEN_CHARS:
            before = before.replace(secret, _HIDDEN)
            after = after.replace(secret, _HIDDEN if secret in old else _HIDDEN_NEW)
    return "\n".join(
        difflib.unified_diff(before.splitlines(), after.splitlines(), CONFIG_NAME, CONFIG_NAME, lineterm="")
    )


def _left_files(home: Path, texts: _Texts) -> Iterator[str]:
    """Of each secret's file that was named and is named no more."""
    old, new = (
        set(secret_files(parse_marked_yaml(data, CONFIG_NAME).values, home)) for data in (texts.before, texts.after)
    )
    for path in sorted(old - new):
        name = _named(path, home)
        yield f"nothing in {CONFIG_NAME} needs {name} any more; delete it, unless you want to undo this, or others do"


def _named(path: Path, home: Path) -> str:
    return str(path.relative_to(home)) if path.is_relative_to(home) else str(path)


# ---- writing -------------------------------------------------------------------------------------------------------


def _written(home: Path, proposal: Proposal, seen: str | None) -> Edited:
    path = home / CONFIG_NAME
    if seen is not None and seen != proposal.version:
        raise _changed(path)
    if proposal.problems:
        raise ConfigError([str(problem) for problem in proposal.problems])
    if proposal.before != proposal.after:
        with _kept(proposal.kept, lambda: _data(path) == proposal.after):
            _put(path, proposal.before, proposal.after)
    return Edited(
        version_of(proposal.after), proposal.warnings, proposal.difference, proposal.at_once, proposal.at_restart
    )


@contextmanager
def _kept(files: Mapping[Path, str], are_needed: Callable[[], bool]) -> Iterator[None]:
    """The secrets in their files, which go again if what follows fails and they are not needed."""
    made: list[Path] = []
    try:
        for place, text in files.items():
            make_private_directory(place.parent)
            _make(place, f"{text}\n".encode())
            made.append(place)
            reach("config.secret_kept")
        yield
    except BaseException:
        for place in made if not are_needed() else ():
            place.unlink(missing_ok=True)
        raise


def _put(path: Path, before: bytes, after: bytes) -> None:
    real = Path(os.path.realpath(path))
    _sweep(real, path.parent)
    if real.exists():
        _replace(real, before, after)
        return
    make_private_directory(real.parent)  # the first start makes it, and may be still to come
    _keep(real.with_name(BEFORE_NAME), b"", 0o600)
    _make(real, after)


def _make(path: Path, data: bytes) -> None:
    if not make_once(path, data):
        raise _changed(path)


def _replace(path: Path, before: bytes, after: bytes) -> None:
    """Put `after` in place of `before`, which is kept; the names are exchanged, so that nothing is lost."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        if _data(path) != before:
            raise _changed(path)
        write_new(temporary, after)
        temporary.chmod(mode)
        _keep(path.with_name(BEFORE_NAME), before, mode)
        reach("config.before_kept")
        if exchange(temporary, path):
            reach("config.exchanged")
            if _data(temporary) != before:  # somebody wrote it at that very moment
                exchange(temporary, path)
                raise _changed(path)
        else:
            if _data(path) != before:
                raise _changed(path)
            temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror}. Change it by hand.") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _keep(path: Path, data: bytes, mode: int) -> None:
    """Write the file before."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        write_new(temporary, data)
        temporary.chmod(mode)
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _sweep(beside: Path, home: Path) -> None:
    """Take away what a process that was killed has left half written; no other one writes here now."""
    secret = [left for left in unused_secrets(home, Config.model_fields) if left.name.endswith(".tmp")]
    for left in (*beside.parent.glob(f".{beside.name}.*.tmp"), *beside.parent.glob(f".{BEFORE_NAME}.*.tmp"), *secret):
        left.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    seen = read_settled(path)
    return None if seen is None else seen.data


def _data(path: Path) -> bytes | None:
    seen = read_once(path)
    return None if seen is None else seen.data


def _text(home: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{home / CONFIG_NAME} is not UTF-8; correct it first") from None


def _changed(path: Path) -> ConfigChanged:
    return ConfigChanged(f"{path} was changed by somebody else in the meantime, and nothing was written; try it again")
