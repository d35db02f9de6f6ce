"""Who is who: from an account on a platform to the user behind it.

`users/identity-map.json` is the truth, and people edit it; `identity_file` has its forms, `identity_disk` what happens
when it is broken. A known account costs one `stat`. A new one is written down, under a lock that all processes share,
before anybody hears of its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.errors import FileError, IdentityMapBroken
from gateway.files.atomic import Signature, make_private_directory, read_once
from gateway.files.locks import FileLock
from gateway.files.positions.json import Mistake
from gateway.people.identity.disk import IdentityDisk, Reading
from gateway.people.identity.file import (
    Account,
    IdentityDocument,
    Move,
    check_key,
    new_account,
    new_user_id,
    parse,
)
from gateway.people.identity.identities import MapImport, User

KEEP_TIMEOUT_S = 1.0
"""How long somebody who is known may have to wait for a safety copy."""

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")


class IdentityMap:
    """The map as a file; see `gateway.people.identity.identities.Identities`."""

    is_checked_by_commits = False  # a file is in no transaction

    def __init__(self, path: Path, *, lock_timeout_s: float = 10.0) -> None:
        """Name the file, `<data directory>/users/identity-map.json`; neither it nor its directory need exist."""
        self._disk = IdentityDisk(path)
        self._name = os.fspath(path)
        self._lock_path = path.with_name(".identity-map.lock")
        self._lock_timeout_s = lock_timeout_s
        self._last: Reading | None = None
        self._known: tuple[IdentityDocument, Mapping[str, User]] | None = None
        self._reading = asyncio.Lock()
        self._strangers: dict[str, str] = {}
        self._reported: set[str] = set()
        self._unkept: str | None = None
        self._keeping_failed: str | None = None

    async def resolve(self, key: str, label: str) -> str:
        user_id = (await self.known((key,))).get(key)
        return await self._meet(check_key(key), label) if user_id is None else user_id

    async def known(self, keys: Collection[str]) -> dict[str, str]:
        last = self._last
        if last is None or not last.is_settled or last.signature != self._sign():
            await self._read()
        return self.last_known(keys)

    def last_known(self, keys: Collection[str]) -> dict[str, str]:
        users = {} if self._last is None else self._last.document.users
        return {key: users[key] for key in keys if key in users}

    def last_accounts_beside(self, key: str) -> list[str]:
        users = {} if self._last is None else self._last.document.users
        user_id = users.get(key)
        return [] if user_id is None else [other for other, user in users.items() if user == user_id and other != key]

    async def ensure_joined(self, keys: Sequence[tuple[str, str]], *, via: str) -> str:
        names = [check_key(key) for key, _ in keys]
        reading = await self._read()
        known = [reading.document.users[name] for name in names if name in reading.document.users]
        if len(known) < len(set(names)) and len(set(known)) <= 1:
            async with self._locked(self._lock_timeout_s):
                reading = await self._add(_joining(keys, via))
        return next(reading.document.users[name] for name in names if name in reading.document.users)

    async def move(self, moves: Mapping[str, Move]) -> None:
        async with self._locked(self._lock_timeout_s):
            await self._write(lambda document: document.with_moves(moves))

    async def add(self, key: str, label: str, *, user_id: str, via: str) -> bool:
        account = new_account(check_key(key), label, user_id, via)
        async with self._locked(self._lock_timeout_s):
            reading = await self._add(lambda document: [] if key in document.users else [account])
        return reading.document.users[key] == user_id

    async def rename(self, keys: Collection[str], label: str) -> None:
        async with self._locked(self._lock_timeout_s):
            await self._write(lambda document: document.with_label(keys, label))

    async def erase(self, user_ids: Collection[str]) -> None:
        """Take users out of the map and its good copy. The other copies next to it are deleted."""
        if not self._lock_path.parent.is_dir():
            return
        async with self._locked(self._lock_timeout_s):
            await self._write(lambda document: document.without_users(user_ids))
            await _to_the_end(self._disk.remove_copies)

    async def document(self) -> IdentityDocument:
        return (await self._read()).document

    async def take_in(self, accounts: Collection[Account], *, is_replacing: bool, is_dry_run: bool) -> MapImport:
        def changes(document: IdentityDocument) -> MapImport:
            return MapImport.of(accounts, document.users, is_replacing=is_replacing)

        if is_dry_run:
            return changes(await self.document())
        done: list[MapImport] = []

        def change(document: IdentityDocument) -> IdentityDocument | None:
            done.append(changes(document))  # the last one counts: an editor may slip in
            return done[-1].applied_to(document)

        async with self._locked(self._lock_timeout_s):
            await self._write(change)
        return done[-1]

    async def users(self) -> list[User]:
        return list((await self._people()).values())

    async def accounts_of(self, user_id: str) -> list[Account]:
        user = (await self._people()).get(user_id)
        return [] if user is None else list(user.accounts)

    async def problems(self) -> list[str]:
        try:
            trouble = (await self._read()).trouble
        except (IdentityMapBroken, FileError) as error:
            return [str(error)]
        found = [f"{trouble}. The last good copy serves."] if trouble else []
        if self._keeping_failed:
            found.append(self._keeping_failed)
        return found + await asyncio.to_thread(self._explain_set_aside)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _sign(self) -> Signature | None:
        try:
            return Signature.of(os.stat(self._name))  # noqa: PTH116 (half the cost of Path.stat, once per message)
        except FileNotFoundError:
            return None

    async def _read(self) -> Reading:
        """The map as it is now."""
        async with self._reading:
            last = self._last
            if last is not None and last.is_settled and last.signature == self._sign():
                return last
            reading = await asyncio.to_thread(self._disk.read, last)
            if reading.live is not None and not reading.is_kept and reading.live.sha256 != self._unkept:
                reading = await self._keep(reading)
            self._last = reading
            self._report(reading)
            return reading

    async def _people(self) -> Mapping[str, User]:
        """Everybody by id, in the order of the map; worked out once for each text of it."""
        document = (await self._read()).document
        if self._known is None or self._known[0] is not document:
            accounts: dict[str, list[Account]] = {}
            for account in document.accounts():
                accounts.setdefault(account.user_id, []).append(account)
            users = {user_id: User(id=user_id, accounts=tuple(own)) for user_id, own in accounts.items()}
            self._known = document, users
        return self._known[1]

    async def _keep(self, unkept: Reading) -> Reading:
        """Keep a copy. If that fails, known users are served all the same; it is tried again at the next change."""
        try:
            async with self._locked(min(KEEP_TIMEOUT_S, self._lock_timeout_s)):
                kept = await _to_the_end(lambda: self._disk.keep(unkept))
        except FileError as error:
            self._unkept = unkept.live.sha256 if unkept.live else None
            self._keeping_failed = f"{self._name}: no copy of it could be kept: {error}"
            _log.warning("identity_map_not_kept", file=self._name, error=str(error))
            return unkept
        self._keeping_failed = None
        return kept

    def _report(self, reading: Reading) -> None:
        """Log once for each broken content."""
        content = reading.live.sha256 if reading.live else ""
        if reading.trouble is not None and content not in self._reported:
            self._reported.add(content)
            _log.error("identity_map_broken", problem=reading.trouble, serving=self._disk.copy_path.name)

    def _explain_set_aside(self) -> list[str]:
        found = []
        for path in self._disk.set_aside():
            try:
                broken = read_once(path)
                parse(broken.data if broken else b"{}")
            except FileError as error:
                found.append(str(error))
            except Mistake as mistake:
                found.append(
                    f"{path}:{mistake.line}:{mistake.column}: {mistake.expected}. This map could not be read. "
                    f"Make its edits again in {self._disk.path.name} where they are missing, then delete it."
                )
        return found

    # ---- writing ----------------------------------------------------------------------------------------------------

    async def _meet(self, key: str, label: str) -> str:
        """Write down a new account; the task that gets the lock does it for all that wait in this process."""
        self._strangers[key] = label
        async with self._locked(self._lock_timeout_s):
            reading = self._last
            if reading is None or reading.signature != self._sign() or key not in reading.document.users:
                strangers, self._strangers = {**self._strangers, key: label}, {}
                reading = await self._add(_first_contacts(strangers))
        return reading.document.users[key]

    async def _add(self, additions: Callable[[IdentityDocument], Sequence[Account]]) -> Reading:
        """Add accounts to the map as it is now, hand edits included; none means no write."""

        def change(document: IdentityDocument) -> IdentityDocument | None:
            accounts = additions(document)
            return document.with_accounts(accounts) if accounts else None

        return await self._write(change)

    async def _write(self, change: Callable[[IdentityDocument], IdentityDocument | None]) -> Reading:
        """See `IdentityDisk.change`."""
        last = self._last
        reading = await _to_the_end(lambda: self._disk.change(change, last))
        self._last = reading
        self._report(reading)
        if last is not None and last.trouble is not None and reading.trouble is None:
            _log.warning("identity_map_restored", file=self._name, was=last.trouble)
        return reading

    @contextlib.asynccontextmanager
    async def _locked(self, timeout_s: float) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                if not self._lock_path.parent.is_dir():
                    await asyncio.to_thread(make_private_directory, self._lock_path.parent)
                await stack.enter_async_context(FileLock(self._lock_path, timeout_s))
            except OSError as error:
                raise FileError(f"{self._lock_path} could not be locked: {error.strerror}") from error
            yield


# ---- what is added --------------------------------------------------------------------------------------------------


def _first_contacts(strangers: Mapping[str, str]) -> Callable[[IdentityDocument], list[Account]]:
    """A new user for each key that is not in the map; the same id however often it is asked."""
    ids: dict[str, str] = {}

    def additions(document: IdentityDocument) -> list[Account]:
        taken = {*document.users.values(), *ids.values()}
        unknown = [key for key in strangers if key not in document.users]
        for key in unknown:
            if key not in ids:
                ids[key] = new_user_id(taken)
                taken.add(ids[key])
        return [new_account(key, strangers[key], ids[key], "first-contact") for key in unknown]

    return additions


def _joining(keys: Sequence[tuple[str, str]], via: str) -> Callable[[IdentityDocument], list[Account]]:
    """The accounts that are missing, with the one user of the others, or one new user."""
    new_id: list[str] = []

    def additions(document: IdentityDocument) -> list[Account]:
        known = {document.users[key] for key, _ in keys if key in document.users}
        if len(known) > 1:
            return []
        if not known and not new_id:
            new_id.append(new_user_id(set(document.users.values())))
        user_id = next(iter(known or new_id))
        return [new_account(key, label, user_id, via) for key, label in dict(keys).items() if key not in document.users]

    return additions


async def _to_the_end(call: Callable[[], _Result]) -> _Result:
    """Run `call` in a thread and stay with it, also when cancelled: a lock must not be let go under a write."""
    future = asyncio.get_running_loop().run_in_executor(None, call)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()
