"""Where a scope's documents live below the data directory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import FileError, InvalidId, UnsafePath
from gateway.files.atomic import check_id, follow, is_id
from gateway.protocols import MemoryPlace, MemoryScope, MemoryStoreName

STORES: tuple[MemoryStoreName, ...] = ("user", "memory")
BEFORE = "before-"
"""How the directory of a person's originals from before a link begins; the link's id follows."""
COMPLETE = ".complete"
"""The empty document that says that they are all kept."""
LOCK_NAME = ".memory.lock"
ARCHIVE_NAME = "memory-archive.md"


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """One document.

    Attributes:
        key: its path below the data directory, which names it in the journal.
        path: the file itself, behind any links that people made inside the data directory.
        lock_path: the lock of its owner.
    """

    key: str
    store: MemoryStoreName
    path: Path
    lock_path: Path


def document_key(scope: MemoryScope, store: MemoryStoreName) -> str | None:
    """The document's name in the journal, None where the scope has no such document. The ids are not checked."""
    if store == "user":
        return None if scope.user_id is None else f"users/{scope.user_id}/USER.md"
    match scope.place:
        case "global":
            return "MEMORY.md"
        case "per-personality":
            return f"personalities/{scope.personality_id}/MEMORY.md"
        case "per-user":
            if scope.user_id is None:
                return None
            return f"users/{scope.user_id}/personalities/{scope.personality_id}/MEMORY.md"


def document_keys(scope: MemoryScope) -> dict[MemoryStoreName, str]:
    """The keys of the documents that the scope has, the user's first. The ids are not checked."""
    return {store: key for store in STORES if (key := document_key(scope, store)) is not None}


def key_of(scope: MemoryScope, store: MemoryStoreName) -> str:
    """The key of a document.

    Raises:
        InvalidId: an id is malformed, or the store needs a user and there is none.
    """
    check_ids(scope)
    key = document_key(scope, store)
    if key is None:
        raise InvalidId("user", "")
    return key


def scope_of_key(key: str) -> tuple[MemoryScope, MemoryStoreName]:
    """A scope that has the document of this key, and which of its two it is; on behalf of no person.

    Raises:
        InvalidId: no document can have this key. The ids in it are not checked.
    """
    match key.split("/"):
        case ["users", user, "USER.md"]:
            return _scope(user_id=user), "user"
        case ["users", user, "personalities", personality, "MEMORY.md"]:
            return _scope(user_id=user, personality_id=personality, place="per-user"), "memory"
        case ["personalities", personality, "MEMORY.md"]:
            return _scope(personality_id=personality), "memory"
        case ["MEMORY.md"]:
            return _scope(place="global"), "memory"
    raise InvalidId("document", key)


def is_original(key: str) -> bool:
    """Whether it is a copy from before a link: `users/<id>/before-<link>/USER.md` and the like; it has no history."""
    match key.split("/"):
        case ["users", user, before, name] if name in ("USER.md", COMPLETE):
            ids = [user, before]
        case ["users", user, before, "personalities", personality, "MEMORY.md"]:
            ids = [user, before, personality]
        case _:
            return False
    return before.startswith(BEFORE) and all(map(is_id, ids))


def _scope(
    *, user_id: str | None = None, personality_id: str = "assistant", place: MemoryPlace = "per-personality"
) -> MemoryScope:
    return MemoryScope(
        personality_id=personality_id, user_id=user_id, session_id=None, turn_id=f"edit:{uuid.uuid4().hex}", place=place
    )


def is_document(key: str) -> bool:
    """Whether a document can have this key; the journal notes what was asked of malformed ids, too."""
    try:
        check_ids(scope_of_key(key)[0])
    except InvalidId:
        return False
    return True


def check_ids(scope: MemoryScope) -> None:
    """Refuse a scope that could lead anywhere else.

    Raises:
        InvalidId: names the id.
    """
    check_id("personality", scope.personality_id)
    if scope.user_id is not None:
        check_id("user", scope.user_id)


def locate(root: Path, scope: MemoryScope, store: MemoryStoreName) -> DocumentPlace | None:
    """The place of a document below `root`, links resolved; None where the scope has no such document.

    Raises:
        InvalidId: an id is malformed.
        UnsafePath: a link leads out of the data directory.
        FileError: the directory is not ours to read.
    """
    check_ids(scope)
    key = document_key(scope, store)
    return None if key is None else locate_key(root, key, store)


def locate_key(root: Path, key: str, store: MemoryStoreName) -> DocumentPlace:
    """The place of a document whose key was made of ids that were checked; raises as `locate` does of links."""
    path = root / key
    try:
        real = follow(path, str(root))
        archive = real.with_name(ARCHIVE_NAME)
        if archive.is_symlink():
            follow(archive, str(root))
    except PermissionError as error:
        raise FileError(f"{error.filename} cannot be read: {error.strerror}; make it yours again") from error
    return DocumentPlace(key, store, real, path.parent / LOCK_NAME)


def documents(root: Path) -> Iterator[DocumentPlace]:
    """Every document that is there, or whose owner's lock is; those that a link leads out to are none."""
    candidates: list[tuple[MemoryStoreName, Path]] = [("memory", root / "MEMORY.md")]
    candidates += [("memory", owner / "MEMORY.md") for owner in sorted(root.glob("personalities/*/"))]
    candidates += [("user", owner / "USER.md") for owner in sorted(root.glob("users/*/"))]
    candidates += [("memory", owner / "MEMORY.md") for owner in sorted(root.glob("users/*/personalities/*/"))]
    for store, path in candidates:
        lock_path = path.parent / LOCK_NAME
        if path.is_symlink() or path.exists() or lock_path.exists():
            try:
                real = follow(path, str(root))
            except UnsafePath:
                continue
            yield DocumentPlace(str(path.relative_to(root)), store, real, lock_path)
