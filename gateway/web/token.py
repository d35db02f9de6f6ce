"""The operator's token: derived from the secret of the gateway, or a file that its owner alone may read."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import stat
from pathlib import Path

import structlog

from gateway.domain.root_secret import derived
from gateway.errors import ConfigError, FileError
from gateway.files.home import TOKEN_NAME

MIN_TOKEN_CHARS = 20

_log = structlog.get_logger(__name__)


def token_of(secret: bytes) -> str:
    """The operator's token where it is derived: 43 characters of base64url, as in a file. Another secret renews it."""
    return base64.urlsafe_b64encode(derived(secret, "token")).rstrip(b"=").decode()


def load_token(data_dir: Path, secret: bytes | None = None) -> str:
    """Derive or read the operator's token, or make it at the first start; the file is readable by its owner only.

    Args:
        secret: of the gateway; None: the token is the file.

    Raises:
        ConfigError: the file cannot be used; says what to do.
        FileError: it cannot be made; a full disk is no mistake of the configuration, and is tried again.
    """
    if secret is not None:
        return token_of(secret)
    path = data_dir / TOKEN_NAME
    try:
        token = _read_token(path)
        if not token:
            _make_token(path)
            token = _read_token(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [f"{path}: the web token cannot be used ({error}); remove the file and start again"]
        ) from error
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"the web token must have {MIN_TOKEN_CHARS} or more printable ASCII characters, without spaces"
        raise ConfigError([f"{path}: {problem}; remove the file and start again, and a good one is made"])
    return token


def _read_token(path: Path) -> str:
    """The token; an empty text where there is no file or nothing in it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            os.fchmod(descriptor, 0o600)
            _log.warning(
                "web token was readable by others; its mode is repaired, remove the file to get a new token",
                path=str(path),
                mode=f"{mode:04o}",
            )
        return file.read(4096).strip()


def _make_token(path: Path) -> None:
    try:
        _write_token(path, secrets.token_urlsafe(32))
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror}. Nothing was changed.") from error


def _write_token(path: Path, token: str) -> None:
    """Put the file there whole; a second process that starts at the same time gets the same token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(descriptor)
        if path.exists():  # empty: what a crash or a full disk left behind
            draft.replace(path)
        else:
            with contextlib.suppress(FileExistsError):  # the other process was first: its token counts
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
