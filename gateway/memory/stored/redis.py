"""Documents in Redis or Valkey: a hash for the text, a stream for its history, and a script that changes both at once.

All keys begin with `{prefix}:`, in braces so that a cluster keeps them on one server:

- `doc:<key>` hash: `content`, `sha256`, `position`, `modified_at`, `version`;
- `log:<key>` stream: the history, one JSON text an entry; an entry's number is its id everywhere;
- `done:<key>` hash: `<turn id> <index>` to the outcome, so that nothing is applied twice;
- `archive:<key>` text: what became too long; `changes` stream: the document of each entry; `ids`: the last number.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha1
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import MemoryUnavailable
from gateway.memory.journal import EntryOutcome, JournalEntry, Key
from gateway.memory.stored.change import Commit, StoredDocument, packed, unpacked
from gateway.memory.stored.memory import Work

_FIELDS = ("content", "sha256", "position", "modified_at", "version")
# KEYS: doc, log, done, changes, ids, archive. ARGV: the version and the SHA-1 of the content that were read; content,
# sha256, position, modified_at ('' for none), cut; the document; then for each entry its key, outcome and text.
_COMMIT = """
local doc, log, done, changes, ids, archive = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local found = redis.call('HMGET', doc, 'version', 'content')
if (found[1] or '0') ~= ARGV[1] or redis.sha1hex(found[2] or '') ~= ARGV[2] then return 0 end
redis.call('HINCRBY', doc, 'version', 1)
redis.call('HSET', doc, 'sha256', ARGV[4], 'position', ARGV[5])
if ARGV[6] ~= '' then redis.call('HSET', doc, 'content', ARGV[3], 'modified_at', ARGV[6]) end
if ARGV[7] ~= '' then redis.call('APPEND', archive, ARGV[7]) end
for at = 9, #ARGV, 3 do
    local id = redis.call('INCR', ids) .. '-0'
    redis.call('XADD', log, id, 'entry', ARGV[at + 2])
    redis.call('XADD', changes, id, 'document', ARGV[8])
    redis.call('HSET', done, ARGV[at], ARGV[at + 1])
end
return 1
"""
_PAGE = 200
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


class RedisDocuments:
    """The `DocumentStore` in Redis."""

    def __init__(self, client: Redis, *, prefix: str, shown_url: str) -> None:
        """Nothing is asked yet; `shown_url` names the server without its password."""
        self._redis = client
        self._prefix = prefix
        self._shown_url = shown_url
        self._commit = client.register_script(_COMMIT)

    def location(self, key: str) -> str:
        return f"{self._shown_url} {self._name('doc', key)}"

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        async with self._as_unavailable(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hmget(self._name("doc", key), _FIELDS)
            return [_document(row) for row in await pipe.execute()]

    async def change(self, key: str, keys: Collection[Key], work: Work) -> Commit:
        doc, done = self._name("doc", key), self._name("done", key)
        wanted = [*keys]
        wait_s = _FIRST_WAIT_S
        async with self._as_unavailable():
            while True:
                async with self._redis.pipeline(transaction=True) as pipe:
                    pipe.hmget(doc, _FIELDS)
                    pipe.hmget(done, [_field(each) for each in wanted])
                    row, outcomes = await pipe.execute()
                settled = {
                    each: cast("EntryOutcome", outcome.decode())
                    for each, outcome in zip(wanted, outcomes, strict=True)
                    if outcome is not None
                }
                commit = work(_document(row), settled)
                if not commit.entries or await self._committed(key, row, commit):
                    return commit
                await asyncio.sleep(random.uniform(0, wait_s))  # noqa: S311 (others are changing it; no secret)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _committed(self, key: str, row: Sequence[bytes | None], commit: Commit) -> bool:
        """Whether it was written: the document is still what was read."""
        content, *_, version = row
        after = commit.document
        entries = [
            part
            for entry in commit.entries
            for part in (_field(entry.request.key), entry.outcome or "", packed(entry))
        ]
        names = [self._name(kind, key) for kind in ("doc", "log", "done")]
        return bool(
            await self._commit(
                keys=[*names, self._name("changes"), self._name("ids"), self._name("archive", key)],
                args=[
                    version or b"0",
                    sha1(content or b"", usedforsecurity=False).hexdigest(),
                    after.data,
                    after.sha256,
                    after.position,
                    "" if after.modified_at is None else after.modified_at.isoformat(),
                    commit.cut,
                    key,
                    *entries,
                ],
            )
        )

    # ---- history ----------------------------------------------------------------------------------------------------

    async def entries(self, document: str | None, limit: int, before: int | None = None) -> Sequence[JournalEntry]:
        async with self._as_unavailable():
            if document is None:
                return await self._newest(limit, before)
            end = "+"
            found: list[JournalEntry] = []
            while len(found) < limit:
                page = await self._log(document, end=end, count=max(limit, _PAGE))
                if not page:
                    break
                found += [one for one in page if one.position is not None and (before is None or one.position < before)]
                end = f"({page[-1].id}-0"
            return found[:limit]

    async def entry(self, entry_id: int) -> JournalEntry | None:
        async with self._as_unavailable():
            found = await self._call(self._redis.xrange(self._name("changes"), f"{entry_id}-0", f"{entry_id}-0"))
            if not found:
                return None
            rows = await self._call(
                self._redis.xrange(self._name("log", _document_of(found[0])), f"{entry_id}-0", f"{entry_id}-0")
            )
            return _entry(rows[0]) if rows else None

    async def chain(self, document: str, position: int) -> Sequence[JournalEntry]:
        async with self._as_unavailable():
            found: list[JournalEntry] = []
            end = "+"
            while page := await self._log(document, end=end, count=_PAGE):
                for one in page:
                    if one.outcome == "applied" and one.position is not None and one.position <= position:
                        found.append(one)
                        if one.checkpoint is not None:
                            return found[::-1]
                end = f"({page[-1].id}-0"
            return found[::-1]

    async def _newest(self, limit: int, before: int | None) -> list[JournalEntry]:
        end = "+" if before is None else f"({before}-0"
        rows = await self._call(self._redis.xrevrange(self._name("changes"), end, "-", limit))
        async with self._redis.pipeline(transaction=False) as pipe:
            for row in rows:
                pipe.xrange(self._name("log", _document_of(row)), row[0], row[0])
            return [_entry(found[0]) for found in await pipe.execute() if found]

    async def _log(self, document: str, *, end: str, count: int) -> list[JournalEntry]:
        rows = await self._call(self._redis.xrevrange(self._name("log", document), end, "-", count))
        return [_entry(row) for row in rows]

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _name(self, kind: str, key: str | None = None) -> str:
        return f"{{{self._prefix}}}:{kind}" if key is None else f"{{{self._prefix}}}:{kind}:{key}"

    @staticmethod
    async def _call(answer: Awaitable[Any] | Any) -> Any:
        """The library's types serve its blocking client, too."""
        return await answer

    @asynccontextmanager
    async def _as_unavailable(self) -> AsyncGenerator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise MemoryUnavailable(f"the memory at {self._shown_url} cannot be used now: {error}") from error


def _document(row: Sequence[bytes | None]) -> StoredDocument:
    content, sha256, position, modified_at, _ = row
    empty = StoredDocument()
    return StoredDocument(
        data=content or b"",
        sha256=empty.sha256 if sha256 is None else sha256.decode(),
        position=int(position or 0),
        modified_at=None if modified_at is None else datetime.fromisoformat(modified_at.decode()),
    )


def _field(key: Key) -> str:
    return f"{key[0]} {key[1]}"


def _document_of(row: tuple[bytes, dict[bytes, bytes]]) -> str:
    return row[1][b"document"].decode()


def _entry(row: tuple[bytes, dict[bytes, bytes]]) -> JournalEntry:
    return unpacked(int(row[0].partition(b"-")[0]), row[1][b"entry"].decode("utf-8", "surrogatepass"))
