"""Values that do not stand in the file: `${ENV_VAR}`, `{file: path}` and `{keyring: name}`.

No error of this module shows a value, only names and paths.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr

from gateway.files.positions.yaml import KeyPath, MarkedYaml, put_at, read_marked_yaml, value_at, walk_text
from gateway.runtime.extras import how_to_install

KEYRING_SERVICE = "ethos"
MAX_SECRET_BYTES = 64 * 1024
SECRETS_NAME = "secrets"
BEFORE_NAME = "config.yaml.before"
"""The file as it was before the gateway changed it."""
_OF_THE_GATEWAY = frozenset({"code-pepper", "mcp-tokens"})

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READABLE_BY_OTHERS = 0o077
_WRITABLE_BY_OTHERS = 0o022


_UNSET = "is not set; expected"


class SecretUnavailable(Exception):
    """A reference leads to nothing usable; the text is for people, after the key's name."""


def expand_variables(document: MarkedYaml, environment: Mapping[str, str]) -> dict[KeyPath, str]:
    """Put the environment's values in place of every `${NAME}`; `$${` becomes `${`.

    Returns:
        For each text that had a reference, the references in it; where one could not be followed, the text is as it
        was and the problem is in the document.
    """
    expanded = {}
    for path, text in list(walk_text(document.values)):
        if "${" not in text:
            continue
        names = [name for name in _REFERENCE.findall(text) if name]
        if names:
            expanded[path] = ", ".join(f"${{{name}}}" for name in names)
        try:
            put_at(document.values, path, _REFERENCE.sub(lambda match: _follow(match, environment), text))
        except SecretUnavailable as error:
            document.complain(path, str(error))
    return expanded


def _follow(match: re.Match[str], environment: Mapping[str, str]) -> str:
    if match[0] == "$${":
        return "${"
    name = match[1]
    if name is None or not _VARIABLE.fullmatch(name):
        raise SecretUnavailable(
            "`${` without the name of an environment variable; expected `${NAME}`, or `$${` for the characters `${`"
        )
    value = environment.get(name)
    if value is None:
        raise SecretUnavailable(f"the environment variable {name} {_UNSET} `export {name}=…` before start")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise SecretUnavailable(f"the environment variable {name} is not UTF-8; expected UTF-8 text")
    return value


def fetch_secrets(
    document: MarkedYaml,
    model: type[BaseModel],
    path: KeyPath,
    directory: Path,
    unwritten: Mapping[Path, str] | None = None,
) -> dict[KeyPath, str]:
    """Fetch what the secret fields below `path` refer to.

    Args:
        document: the file; references are replaced by the secrets, those that fail become problems.
        model: says which fields are secret.
        path: of the section that `model` describes.
        directory: what the paths of files are relative to.
        unwritten: what is to stand in files that are not there yet.

    Returns:
        For each secret that stands in the file or is referred to by it, where it comes from, empty for a literal.
    """
    origins = {}
    for place in dict.fromkeys(_secret_paths(model, value_at(document.values, path), path)):
        value = value_at(document.values, place)
        origins[place] = ""
        if isinstance(value, str):
            if not value.strip():
                document.complain(place, "the secret is empty; expected a value, or no such key at all")
            continue
        if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in ("file", "keyring"):
            document.complain(place, "not a secret; expected text, `${ENV_VAR}`, `{file: path}` or `{keyring: name}`")
            continue
        [(kind, name)] = value.items()
        origins[place] = f"{kind} {name}"
        if not isinstance(name, str) or not name:
            document.complain(place, "not a name; expected text")
            continue
        try:
            secret = (
                read_keyring(name) if kind == "keyring" else _in_file(directory / Path(name).expanduser(), unwritten)
            )
        except (SecretUnavailable, RuntimeError) as error:  # RuntimeError: `~name` of a user that is not there
            document.complain(place, str(error))
            continue
        put_at(document.values, place, secret)
    return origins


def _in_file(path: Path, unwritten: Mapping[Path, str] | None) -> str:
    known = (unwritten or {}).get(path)
    return read_secret_file(path) if known is None else known


def is_unset_variable(problem: str) -> bool:
    """Whether a problem is of this shell alone: a running gateway has what its own environment had."""
    return _UNSET in problem


def secret_files(value: Any, directory: Path) -> Iterator[Path]:
    """Every file that a `{file: path}` below `value` names, whether it is there or not."""
    if isinstance(value, dict):
        name = value.get("file")
        if len(value) == 1 and isinstance(name, str) and name:
            with contextlib.suppress(RuntimeError):  # `~name` of a user that is not there
                yield directory / Path(name).expanduser()
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from secret_files(item, directory)


def unused_secrets(home: Path, sections: Collection[str]) -> list[Path]:
    """Files in `secrets/` that the gateway made for a key, and that neither `config.yaml` nor the file before names.

    Args:
        sections: the keys at the top of the configuration, with which the names of such files begin.
    """
    named: set[Path] = set()
    path = home / "config.yaml"
    for each in (path, Path(os.path.realpath(path)).with_name(BEFORE_NAME)):
        with contextlib.suppress(FileNotFoundError):
            document = read_marked_yaml(each, each.name)
            if not document.is_readable:
                return []  # it may name any of them
            named.update(secret_files(document.values, home))
    found = sorted((home / SECRETS_NAME).iterdir()) if (home / SECRETS_NAME).is_dir() else []
    return [
        each
        for each in found
        if each not in named
        and each.name not in _OF_THE_GATEWAY
        and re.split(r"[-.]", each.name.strip("."))[0] in sections
    ]


def _secret_paths(annotation: Any, value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """Walk a type and a value side by side."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    below: list[tuple[Any, Any, KeyPath]] = []
    if annotation in (SecretStr, SecretBytes):
        if value is not None:
            yield path
    elif origin in (Union, UnionType, Annotated):
        below = [(argument, value, path) for argument in arguments]
    elif isinstance(value, list):
        below = [(arguments[0], item, (*path, index)) for index, item in enumerate(value) if arguments]
    elif isinstance(value, dict):
        if len(arguments) == 2:  # the types of a mapping's keys and values
            kinds = dict.fromkeys(value, arguments[1])
        else:
            fields = getattr(annotation, "model_fields", {})
            kinds = {field.alias or name: field.annotation for name, field in fields.items()}
        below = [(kinds[key], value[key], (*path, key)) for key in value if key in kinds]
    for inner in below:
        yield from _secret_paths(*inner)


def _lies_on_read_only_mount(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def read_secret_file(path: Path, *, is_mounted_read_only: Callable[[Path], bool] = _lies_on_read_only_mount) -> str:
    """Read a secret, without the line end behind it.

    Args:
        is_mounted_read_only: whether it lies on such a mount, where it may be readable by others.

    Raises:
        SecretUnavailable: the file is missing, empty, no text, or other users of the machine may read it.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SecretUnavailable(f"{path} is not a file; expected a file with the secret in it")
        # A container or a service manager mounts secrets so, often 0444 or 0440; no user in there could change that.
        is_lent = is_mounted_read_only(path) and not status.st_mode & _WRITABLE_BY_OTHERS
        if status.st_mode & _READABLE_BY_OTHERS and not is_lent:
            mode = stat.S_IMODE(status.st_mode)
            raise SecretUnavailable(f"{path} is open to other users ({mode:04o}); expected 0600: `chmod 600 {path}`")
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretUnavailable(f"{path} cannot be read: {error.strerror}; expected a file with the secret") from None
    if len(data) > MAX_SECRET_BYTES:
        raise SecretUnavailable(f"{path} is larger than {MAX_SECRET_BYTES} bytes; expected the secret and nothing else")
    try:
        secret = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        # From None: the codec's own error carries the bytes.
        raise SecretUnavailable(f"{path} is not UTF-8; expected the secret as text") from None
    if not secret or "\0" in secret:
        raise SecretUnavailable(f"{path} holds {'a NUL character' if secret else 'nothing'}; expected the secret")
    return secret


def read_keyring(name: str) -> str:
    """Ask the key store of the desktop or the server.

    Raises:
        SecretUnavailable: there is no key store, or nothing of that name in it.
    """
    try:
        import keyring  # noqa: PLC0415 (an extra, and slow to load)
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError:
        raise SecretUnavailable(f"keyring is not installed; run {how_to_install('keyring')}") from None
    try:
        secret = keyring.get_password(KEYRING_SERVICE, name)
    except KeyringError as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise SecretUnavailable(f"the key store cannot be asked: {reason}; expected one that is unlocked") from None
    if not secret:
        raise SecretUnavailable(
            f"the key store has nothing named {name!r}; expected it to be put there: "
            f"`keyring set {KEYRING_SERVICE} {name}`"
        )
    return secret
