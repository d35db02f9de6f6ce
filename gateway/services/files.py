"""Memory and personalities as files: listed, read, and merged with what was edited elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities
from gateway.domain.personalities.editing import PersonalityChanged, put_file
from gateway.domain.personalities.files import PersonalityNotValid
from gateway.domain.personalities.places import NAMES, own_files
from gateway.errors import InvalidId, MemoryConflict
from gateway.files.atomic import is_id
from gateway.memory import rules
from gateway.memory.merging import has_marks, merge_edit
from gateway.memory.offered import offered
from gateway.memory.paths import check_ids, is_document
from gateway.protocols import EditableMemory, MemoryDocument, MemoryProvider
from gateway.sdk.models import files as wire
from gateway.services.caller import Caller, Malformed, NotAllowed, NotFound, Permission, Refused
from gateway.services.naming import Naming, scope_of
from gateway.services.uploads import TooLarge

LOOK_S = 1.0
_AT_ONCE = 8
_TRIES = 20
_SHAPES = (
    "MEMORY.md, users/<id>/USER.md, users/<id>/personalities/<id>/MEMORY.md, and MEMORY.md, SOUL.md, HEARTBEAT.md "
    "and personality.yaml below personalities/<id>/"
)
Versions = Callable[[], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class _Now:
    """A file as it is; `data` is None where there is none, and its text is empty then."""

    text: str
    version: str
    data: bytes | None

    @classmethod
    def of_bytes(cls, data: bytes | None) -> _Now:
        return cls(rules.show(data or b""), rules.version(data or b""), data)

    @classmethod
    def of(cls, document: MemoryDocument) -> _Now:
        is_there = document.modified_at is not None or bool(document.content)
        return cls(
            document.content, document.version, document.content.encode("utf-8", "replace") if is_there else None
        )

    def shown(self, path: str) -> wire.TextFile:
        return wire.TextFile(path=path, version=self.version, content=self.text)


class FileService:
    """For callers who see everybody's data, and may read, or write, both memory and personalities.

    Others meet `NotAllowed`.
    Every method raises `NotOffered` where the chosen memory has no documents, and `FileError` or `MemoryUnavailable`
    where it cannot be used now.
    """

    def __init__(
        self,
        *,
        memory: MemoryProvider,
        versions: Versions,
        personalities: Personalities,
        naming: Naming,
        config: LiveConfig,
    ) -> None:
        """`versions` are those of all documents of the memory, by path."""
        self._memory = memory
        self._versions = versions
        self._personalities = personalities
        self._naming = naming
        self._config = config
        self._told = asyncio.Event()

    def tell(self) -> None:
        """Something may have changed: who waits looks at once."""
        self._told.set()
        self._told = asyncio.Event()

    async def list(
        self, caller: Caller, *, limit: int, after: str | None = None
    ) -> tuple[Sequence[wire.TextFileInfo], str | None]:
        """The files that are there, by path, and the one behind which the next page begins."""
        self._check(caller, "memory:read", "personalities:read")
        found = [one for one in sorted((await self._all()).items()) if after is None or one[0] > after]
        page = [wire.TextFileInfo(path=path, version=version) for path, version in found[:limit]]
        return page, page[-1].path if len(found) > limit else None

    async def revision(self, caller: Caller, *, seen: str | None = None, wait_s: float = 0) -> str:
        """What all files are now, in one word; waits until it is another one than `seen`, though not for longer."""
        self._check(caller, "memory:read", "personalities:read")
        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        while True:
            told = self._told
            lines = "".join(f"{version} {path}\n" for path, version in sorted((await self._all()).items()))
            found = hashlib.sha256(lines.encode()).hexdigest()
            left_s = until - clock()
            if found != seen or left_s <= 0:
                return found
            with suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), min(LOOK_S, left_s))

    async def get(self, caller: Caller, path: str) -> wire.TextFile:
        """One, with its text.

        Raises:
            NotFound: there is none.
            Malformed: there can be none.
        """
        self._check(caller, "memory:read", "personalities:read")
        now = await self._read(caller, path)
        if now.data is None:
            raise NotFound(f"there is no file {path}")
        return now.shown(path)

    async def put(self, caller: Caller, path: str, content: str, *, base: str | None) -> wire.TextFile:
        """Merge an edited text with what the file is now, and write that; harmless when it is done already.

        Args:
            base: the text before the edit; None where there was no such file.

        Raises:
            MemoryConflict: both sides changed the same lines, or a file is there that was not; carries both texts.
            Malformed: there can be no such file, or the text is not valid.
            TooLarge: it is larger than a document may be.
            NotFound, NotNamed, PersonalityError: there is no such person or personality.
            Refused: others write it all the time.
        """
        self._check(caller, "memory:write", "personalities:write")
        self._check_text(path, content)
        for _ in range(_TRIES):
            now = await self._read(caller, path)
            text = await asyncio.to_thread(_merged, base, content, now)
            if now.data is not None and text == now.text:
                return now.shown(path)
            with suppress(MemoryConflict, PersonalityChanged):  # somebody else was faster
                return (await self._write(caller, path, text, now)).shown(path)
        raise Refused(f"{path} changes faster than it can be written; push it again")

    # ---- pieces -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _check(caller: Caller, *permissions: Permission) -> None:
        caller.refuse_others(None)
        missing = [permission for permission in permissions if not caller.may(permission)]
        if missing:
            raise NotAllowed(f"files are memory and personalities; this key needs {' and '.join(missing)}, too")

    def _check_text(self, path: str, content: str) -> None:
        if "\0" in content or any("\ud800" <= character <= "\udfff" for character in content):
            raise Malformed(f"{path}: a character that no text has; expected UTF-8 text without NUL")
        if has_marks(content):
            raise Malformed(f"{path}: the marks of a conflict are still in it; decide between both texts first")
        size, most = len(content.encode()), self._config.current.memory.max_file_bytes
        if size > most:
            raise TooLarge(f"{path} has {size:,} bytes and may have {most:,} (`memory.max_file_bytes`); shorten it")

    async def _all(self) -> Mapping[str, str]:
        """The versions of all files, by path."""
        offered(self._memory, EditableMemory)  # type: ignore[type-abstract]
        found = dict(await self._versions())
        await self._personalities.refresh()
        return {**found, **await asyncio.to_thread(self._of_personalities)}

    def _of_personalities(self) -> Mapping[str, str]:
        place = self._personalities.place
        return {
            f"personalities/{one}/{name}": rules.version(data)
            for one in place.names()
            if is_id(one)
            for name, data in own_files(place, one).files.items()
        }

    async def _read(self, caller: Caller, path: str) -> _Now:
        personality = _of_personality(path)
        if personality is not None:
            await self._personalities.refresh()
            return _Now.of_bytes(await asyncio.to_thread(self._personalities.place.read, *personality))
        if not is_document(path):
            raise Malformed(f"{path} is none of the gateway's files; there are {_SHAPES}")
        scope, store = scope_of(caller, path)
        return _Now.of(await offered(self._memory, EditableMemory).read(scope, store))  # type: ignore[type-abstract]

    async def _write(self, caller: Caller, path: str, text: str, now: _Now) -> _Now:
        personality = _of_personality(path)
        if personality is not None:
            try:
                place = self._personalities.place
                return _Now.of_bytes(await put_file(place, *personality, text, instead_of=now.data))
            except PersonalityNotValid as error:
                raise Malformed(f"{path}: {error}") from error
        scope, store = scope_of(caller, path)
        check_ids(scope)
        if now.data is None:
            await self._check_owner(caller, path)
        memory = offered(self._memory, EditableMemory)  # type: ignore[type-abstract]
        return _Now.of(await memory.write(scope, store, text, now.version))

    async def _check_owner(self, caller: Caller, path: str) -> None:
        """A document that is new is of a person and a personality whom there are."""
        names = dict(zip(path.split("/")[::2], path.split("/")[1::2], strict=False))
        if "users" in names:
            await self._naming.user(caller, names["users"])
        if "personalities" in names:
            await self._personalities.refresh()
            self._personalities.get(names["personalities"])


async def versions_of(memory: EditableMemory, keys: Sequence[str], caller: Caller) -> Mapping[str, str]:
    """The versions of documents of a memory that tells no versions, which so are all read."""
    found: dict[str, str] = {}
    for start in range(0, len(keys), _AT_ONCE):
        part = keys[start : start + _AT_ONCE]
        read = await asyncio.gather(*(memory.read(*scope_of(caller, key)) for key in part))
        for key, document in zip(part, read, strict=True):
            if document.modified_at is not None or document.content:
                found[key] = document.version
    return found


def _merged(base: str | None, mine: str, now: _Now) -> str:
    if now.text == mine:
        return mine
    if now.data is None:
        is_decided = not base  # else it is gone, and that is for a person to decide
    elif base is None:
        is_decided = False
    else:
        merged = merge_edit(rules.to_newlines(base), rules.to_newlines(mine), now.text)
        is_decided, mine = not merged.conflicts, mine if merged.conflicts else merged.text
    if not is_decided:
        raise MemoryConflict(proposed=mine, current=now.text, current_version=now.version)
    return mine


def _of_personality(path: str) -> tuple[str, str] | None:
    """The id and the name of a file of a personality; None for other files.

    Raises:
        InvalidId: the id is none.
    """
    match path.split("/"):
        case ["personalities", personality, name] if name in NAMES:
            if not is_id(personality):
                raise InvalidId("personality", personality)
            return personality, name
    return None
