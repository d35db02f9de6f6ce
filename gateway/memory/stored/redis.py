"""Documents in Redis or Valkey: a hash for the text, a stream for its history, and a script that changes both at once.

All keys begin with `{prefix}:`, in braces so that a cluster keeps them on one server:

- `doc:<key>` hash: `content`, `sha256`, `position`, `modified_at`, `version`;
- `log:<key>` stream: the history, one JSON text an entry; an entry's number is its id everywhere;
- `done:<key>` hash: `<turn id> <index>` to the outcome, so that nothing is applied twice;
- `archive:<key>` text: what became too long;
- `documents` set: the keys; `changes` sorted set: `<number> <key>` of each entry; `ids`: the last number.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha1
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError, RedisError, WatchError

from gateway.errors import MemoryUnavailable
from gateway.memory.journal import JournalEntry, Key
from gateway.memory.stored.change import Commit, StoredDocument, packed, unpacked
from gateway.memory.stored.memory import MAX_STORED_BYTES, Work, refuse_too_long
from gateway.memory.stored.whole import WholeDocument
from gateway.protocols import MemoryOutcome
from gateway.runtime.failpoints import reach
from gateway.runtime.logs import hiding

_FIELDS = ("content", "sha256", "position", "modified_at", "version")
# KEYS: doc, log, done, changes, ids, archive, documents.
# ARGV: the version and the SHA-1 of the content that were read; content,
# sha256, position, modified_at ('' for none), cut; the document; then for each entry its key, outcome and text.
# A script that fails has kept what it wrote: so types are looked at first, and the text is written last.
_COMMIT = """
local doc, log, done, changes, ids, archive = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local found = redis.call('HMGET', doc, 'version', 'content')
if (found[1] or '0') ~= ARGV[1] or redis.sha1hex(found[2] or '') ~= ARGV[2] then return 0 end
for at, wanted in ipairs({'hash', 'stream', 'hash', 'zset', 'string', 'string', 'set'}) do
    local type = redis.call('TYPE', KEYS[at]).ok
    if type ~= 'none' and type ~= wanted then return redis.error_reply('WRONGTYPE ' .. KEYS[at]) end
end
local change, entry = redis.call('ZREVRANGE', changes, 0, 0)[1], redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
for _, newest in ipairs({change or '0', entry and entry[1] or '0'}) do
    local id = newest:match('^%d+')
    if tonumber(id) > tonumber(redis.call('GET', ids) or 0) then redis.call('SET', ids, id) end
end
for at = 9, #ARGV, 3 do
    local id = redis.call('INCR', ids)
    redis.call('XADD', log, id .. '-0', 'entry', ARGV[at + 2])
    redis.call('ZADD', changes, id, id .. ' ' .. ARGV[8])
    redis.call('HSET', done, ARGV[at], ARGV[at + 1])
end
redis.call('SADD', KEYS[7], ARGV[8])
redis.call('HINCRBY', doc, 'version', 1)
redis.call('HSET', doc, 'sha256', ARGV[4], 'position', ARGV[5])
if ARGV[6] ~= '' then redis.call('HSET', doc, 'content', ARGV[3], 'modified_at', ARGV[6]) end
if ARGV[7] ~= '' then redis.call('APPEND', archive, ARGV[7]) end
return 1
"""
_PROBE = "redis.call('SET', KEYS[1], '1', 'PX', 1000) return redis.sha1hex('')"
_PAGE = 200
_OLDEST = (6, 2)
_IN_PIPELINE = re.compile(r"Command # \d+ \(.* of pipeline caused error: ", re.DOTALL)
_OUR_KEY = re.compile(r"\{\S+\}:\S+")
# What the text of an error means; the first that is found counts.
_REASONS = (
    (r"AuthenticationError|NOAUTH|WRONGPASS", "it refuses the user name or the password; correct them in `url`"),
    (r"NoPermission|NOPERM", "this user may not do all that is needed; `ACL SETUSER` gives it `+@all` on our keys"),
    (r"ReadOnly|READONLY", "it is a read-only copy; give the address of the primary"),
    (r"OutOfMemory|OOM ", "it has no memory left; raise `maxmemory` there, or remove other data"),
    (r"MISCONF", "it cannot write to its disk; make room there, and look into its log"),
    (r"InvalidResponse|Protocol Error", "what answers there is no Redis; look at `url`"),
    (r"CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted; name its authority's in `ca_file`"),
    (r"\[SSL|SSLError", "it speaks no TLS there; look at the port, and at `rediss://` or `redis://` in `url`"),
    (r"`?HELLO|unknown command", "it is too old; use Redis 6.2 or newer, or Valkey"),
    (r"Timeout|CancelledError", "it does not answer in time; look at `url`, and whether the server runs"),
)
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


class RedisDocuments:
    """The `DocumentStore` in Redis."""

    def __init__(self, client: Redis, *, prefix: str, shown_url: str, max_bytes: int = MAX_STORED_BYTES) -> None:
        """Nothing is asked yet.

        Args:
            client: of the server.
            prefix: how our keys begin.
            shown_url: names the server, without its password.
            max_bytes: a longer document is left as it is, and not read.
        """
        self._redis = client
        self._prefix = prefix
        self._shown_url = shown_url
        self._max_bytes = max_bytes
        self._hide = hiding([client.get_connection_kwargs().get("password") or ""])  # type: ignore[no-untyped-call]
        self._commit = client.register_script(_COMMIT)

    async def open(self) -> None:
        """Nothing to prepare: connections are made with the first question."""

    async def close(self) -> None:
        await self._redis.aclose()

    async def check(self) -> Sequence[str]:
        probe = self._name("check")
        try:
            async with self._as_unavailable():
                await self._call(self._redis.eval(_PROBE, 1, probe))
                info = await self._call(self._redis.info())
        except MemoryUnavailable as error:
            return [str(error)]
        return [f"{self._shown_url} {problem}" for problem in _problems(info)]

    def location(self, key: str) -> str:
        return f"{self._shown_url} {self._name('doc', key)}"

    async def load(self, keys: Sequence[str]) -> Sequence[StoredDocument]:
        async with self._as_unavailable(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hmget(self._name("doc", key), _FIELDS)
            return [self._document(key, row) for key, row in zip(keys, await pipe.execute(), strict=True)]

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
                reach("memory.redis.read")
                settled = {
                    each: cast("MemoryOutcome", outcome.decode())
                    for each, outcome in zip(wanted, outcomes, strict=True)
                    if outcome is not None
                }
                commit = work(self._document(key, row), settled)
                if not commit.entries:
                    return commit
                if await self._committed(key, row, commit):
                    reach("memory.redis.committed")
                    return commit
                await asyncio.sleep(random.uniform(0, wait_s))  # noqa: S311 (others are changing it; no secret)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _committed(self, key: str, row: Sequence[bytes | None], commit: Commit) -> bool:
        """Whether it was written: the document is still what was read."""
        content, *_, version = row
        after = commit.document
        entries = [
            part for entry in commit.entries for part in (_field(entry.request.key), entry.outcome or "", packed(entry))
        ]
        names = [self._name(kind, key) for kind in ("doc", "log", "done")]
        return bool(
            await self._commit(
                keys=[
                    *names,
                    *(self._name("changes"), self._name("ids"), self._name("archive", key), self._name("documents")),
                ],
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

    # ---- whole documents --------------------------------------------------------------------------------------------

    async def keys(self) -> Sequence[str]:
        async with self._as_unavailable():
            found = await self._call(self._redis.smembers(self._name("documents")))
            return sorted(key.decode() for key in found if key.isascii())  # ours are; another put the others there

    async def whole(self, key: str) -> WholeDocument:
        async with self._as_unavailable(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(self._name("doc", key), _FIELDS)
            pipe.xrange(self._name("log", key))
            pipe.get(self._name("archive", key))
            row, rows, archive = await pipe.execute()
        document = self._document(key, row, most=sys.maxsize)
        return WholeDocument(document=document, entries=[_entry(each) for each in rows], archive=archive or b"")

    async def numbers(self, count: int) -> int:
        async with self._as_unavailable():
            return int(await self._call(self._redis.incrby(self._name("ids"), count))) - count + 1

    async def put_whole(self, key: str, whole: WholeDocument | None, *, instead_of: StoredDocument) -> bool:
        doc, log, archive, done = (self._name(kind, key) for kind in ("doc", "log", "archive", "done"))
        async with self._as_unavailable(), self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(doc)
            row = await self._call(pipe.hmget(doc, _FIELDS))
            if self._document(key, row, most=sys.maxsize) != instead_of:
                return False
            old = [_entry(each) for each in await self._call(pipe.xrange(log))]
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.delete(doc, log, archive, done)
            if old:
                pipe.zrem(self._name("changes"), *(f"{entry.id} {key}" for entry in old))
            if whole is None:
                pipe.srem(self._name("documents"), key)
            else:
                self._fill(pipe, key, whole, int(row[-1] or 0))
            reach("memory.redis.replacing")
            try:
                await pipe.execute()
            except WatchError:
                return False
            reach("memory.redis.replaced")
            return True

    def _fill(self, pipe: Any, key: str, whole: WholeDocument, version: int) -> None:
        doc, document = self._name("doc", key), whole.document
        pipe.sadd(self._name("documents"), key)
        pipe.hset(doc, mapping={"sha256": document.sha256, "position": document.position, "version": version + 1})
        if document.modified_at is not None:
            pipe.hset(doc, mapping={"content": document.data, "modified_at": document.modified_at.isoformat()})
        if whole.archive:
            pipe.set(self._name("archive", key), whole.archive)
        for entry in whole.entries:
            pipe.xadd(self._name("log", key), {"entry": packed(entry)}, id=f"{entry.id}-0")
            pipe.zadd(self._name("changes"), {f"{entry.id} {key}": entry.id})
            pipe.hset(self._name("done", key), _field(entry.request.key), entry.outcome or "")

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
                end = _below(page[-1].id)
            return found[:limit]

    async def entry(self, entry_id: int) -> JournalEntry | None:
        async with self._as_unavailable():
            found = await self._named(self._redis.zrangebyscore(self._name("changes"), entry_id, entry_id))
            return found[0] if found else None

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
                end = _below(page[-1].id)
            return found[::-1]

    async def _newest(self, limit: int, before: int | None) -> list[JournalEntry]:
        end = "+inf" if before is None else f"({before}"
        return await self._named(self._redis.zrevrangebyscore(self._name("changes"), end, "-inf", 0, limit))

    async def _named(self, members: Awaitable[Any] | Any) -> list[JournalEntry]:
        """The entries that members of `changes` name."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for member in await self._call(members):
                number, _, key = member.decode().partition(" ")
                pipe.xrange(self._name("log", key), f"{number}-0", f"{number}-0")
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
            is_replica = isinstance(error, ReadOnlyError) or "READONLY" in str(error)
            if is_replica:  # there may be another primary by now, under the same address
                with contextlib.suppress(RedisError, OSError):
                    await self._redis.connection_pool.disconnect(inuse_connections=False)
            reason = self._hide(_reason(error))
            raise MemoryUnavailable(f"the memory at {self._shown_url} cannot be used now: {reason}") from error

    def _document(self, key: str, row: Sequence[bytes | None], *, most: int | None = None) -> StoredDocument:
        try:
            document = _document(row)
        except ValueError as error:
            text = f"{self.location(key)} holds no document of ours; remove it, or set another `prefix`"
            raise MemoryUnavailable(text) from error
        refuse_too_long(self.location(key), len(document.data), self._max_bytes if most is None else most)
        return document


def _reason(error: Exception) -> str:
    """Why the server cannot be used, and what to do; an error of a pipeline quotes what was to be written."""
    text = f"{type(error).__name__} {error}"
    if "WRONGTYPE" in text:
        found = _OUR_KEY.search(text)
        return (
            f"the key {found[0] if found else 'of a document'} is of another type; remove it, or set another `prefix`"
        )
    text = _IN_PIPELINE.sub("", text)
    for pattern, reason in _REASONS:
        if re.search(pattern, text):
            return reason
    return f"{(text.partition(' ')[2] or text).rstrip('.')}; look at `url`, and whether the server runs"


def _problems(info: Mapping[str, Any]) -> Iterator[str]:
    """What a server says of itself that is not good enough for a memory."""
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST:
        yield f"is Redis {version}, which is too old; use {'.'.join(map(str, _OLDEST))} or newer"
    if info.get("role") == "slave":
        yield "is a read-only copy; give the address of the primary"
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and info.get("maxmemory", 0):
        yield f"may drop memory to make room (maxmemory-policy {policy}); set `maxmemory-policy noeviction`"
    if not info.get("aof_enabled"):
        yield "keeps no log of changes, so a power cut loses the last ones; set `appendonly yes`"
    if "err" in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")):
        yield "could not write to its disk; make room there, and look into its log"


def _document(row: Sequence[bytes | None]) -> StoredDocument:
    content, sha256, position, modified_at, version = row
    int(version or 0)  # the script could not count on from anything else, and would stop half-way
    empty = StoredDocument()
    return StoredDocument(
        data=content or b"",
        sha256=empty.sha256 if sha256 is None else sha256.decode(),
        position=int(position or 0),
        modified_at=None if modified_at is None else datetime.fromisoformat(modified_at.decode()),
    )


def _below(entry_id: int) -> str:
    """The end of a range before an entry; the exclusive ranges of Redis 6.2 are not needed."""
    return f"{entry_id - 1}-{(1 << 64) - 1}"


def _field(key: Key) -> str:
    return f"{key[0]} {key[1]}"


def _entry(row: tuple[bytes, dict[bytes, bytes]]) -> JournalEntry:
    return unpacked(int(row[0].partition(b"-")[0]), row[1][b"entry"].decode("utf-8", "surrogatepass"))
