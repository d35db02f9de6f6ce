"""Checks of what the gateway keeps: the database, the queues, the memory journal and the identity map."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from gateway.config.memory_kinds import DEFAULT_KIND
from gateway.domain.personalities import Personalities, Personality
from gateway.errors import EthosError
from gateway.files.home import DATABASE_NAME
from gateway.files.last_backup import last_backup
from gateway.ops.doctor.finding import Finding, Ground, Repair, named
from gateway.people.identity import IdentityMap
from gateway.people.identity.disk import IdentityDisk
from gateway.sdk.models.deliveries import Delivery, Queue
from gateway.store.payloads import to_ms
from gateway.store.sqlite.schema import migrations, schema_version
from gateway.store.stores import Stores

OLD = timedelta(hours=1)
OLD_BACKUP = timedelta(days=8)
AHEAD = timedelta(minutes=2)
_LOOKED_AT = 1_000
_QUEUES: tuple[Queue, ...] = ("inbox", "outbox")
_EXCERPT_CHARS = 200
# As SQLite says it of the index of messages, https://www.sqlite.org/fts5.html#the_integrity_check_command
_INDEX_FAULT = "FTS5 table main.search"


async def database(ground: Ground) -> AsyncIterator[Finding]:
    """The file can be read, is sound, and has a schema that we know; one on a server has checks of its own."""
    path = ground.home / DATABASE_NAME
    if not path.exists() or ground.is_shared:
        return
    version, newest = schema_version(path), migrations()[-1].version
    if version is not None and 0 < version < newest:
        yield Finding(
            "schema",
            "warning" if ground.process is None else "problem",
            f"The database has schema version {version}; this program works with {newest}.",
            "Start the gateway (again): it keeps a copy and brings the database up to date.",
        )
        return
    try:
        async with ground.opened_store() as store:
            faults = [] if store is None else await store.problems()
    except EthosError as error:
        yield Finding("database", "problem", str(error), "Keep a copy of all files of the database before you try.")
        return
    faults = [fault for fault in faults if _INDEX_FAULT not in fault]  # of the index, which `search_index` looks at
    if faults:
        listed = "\n".join(faults[:10])
        yield Finding(
            "database",
            "problem",
            f"{path} is damaged:\n{listed}",
            "Stop the gateway, keep a copy, and put a backup in its place; without one, "
            f"`sqlite3 {path.name} .recover` saves what can be saved.",
        )


async def search_index(ground: Ground) -> AsyncIterator[Finding]:
    """Every message that the index should have is in it; it can be made again from the messages."""
    async with _usable_store(ground) as store:
        if store is None:
            return
        missing = await store.index.missing()
        is_broken = any(_INDEX_FAULT in fault for fault in await store.problems())
        if not missing and not is_broken:
            return
        yield Finding(
            "search-index",
            "warning",
            "The search in conversations finds not all that it should: its index is broken."
            if is_broken
            else f"The search in conversations does not find {missing:,} message{'' if missing == 1 else 's'}.",
            "The messages themselves are whole; the index is made again from them.",
            repair=ground.by_hands(
                "Build the index again",
                "Makes the index from the messages, in small steps. Meanwhile the search finds less.",
                lambda hands: hands.build_index(),
            ),
            page="sessions",
        )


async def queues(ground: Ground) -> AsyncIterator[Finding]:
    """Dead letters, and messages that wait for long."""
    before = datetime.now(UTC) - OLD
    async with _usable_store(ground) as store:
        if store is None:
            return
        backlog = await store.facts.backlog()
        for part in backlog:
            if part.state == "dead":
                for newest in await store.deliveries.rows(part.queue, chosen="dead", channel=part.channel, limit=1):
                    yield _about_dead(ground, newest, part.messages)
        is_late = (part for part in backlog if part.state != "dead" and part.oldest_s > OLD.total_seconds())
        for queue, channel in dict.fromkeys((part.queue, part.channel) for part in is_late):
            place = (to_ms(before), "")
            waiting = await store.deliveries.rows(queue, channel=channel, limit=_LOOKED_AT, before=place)
            if waiting:
                yield _about_waiting(waiting)


def _about_dead(ground: Ground, newest: Delivery, count: int) -> Finding:
    queue, channel = newest.queue, newest.channel
    what = "could not be answered" if queue == "inbox" else "could not be delivered"
    whose = f"{_messages(count)} of the channel {channel}"
    again = "answers" if queue == "inbox" else "sends"
    return Finding(
        f"dead-{queue}-{channel}",
        "warning",
        f"{whose} {what}; the newest: {_reason(newest)}",
        f"Fix the cause, then `ethos deliveries list {queue}`, and `ethos deliveries retry {queue}` or "
        f"`ethos deliveries drop {queue}` for each.",
        repair=ground.by_hands(
            "Try again",
            f"The gateway {again} {'it' if count == 1 else 'all of them'} from the start, once the cause is gone.",
            lambda hands: hands.retry_dead(queue, channel),
            asks=True,
        ),
        page=f"deliveries?queue={queue}&state=dead&channel={quote(channel)}",
    )


def _about_waiting(rows: Sequence[Delivery]) -> Finding:
    oldest = rows[-1]
    queue = oldest.queue
    whose = f"{_counted(rows, 'message')} of the channel {oldest.channel}"
    what = "for an answer" if queue == "inbox" else "to be delivered"
    verb = "has" if len(rows) == 1 else "have"
    is_parked = any(row.state == "parked" for row in rows)
    return Finding(
        f"waiting-{queue}-{oldest.channel}",
        "warning",
        f"{whose} {verb} waited for more than an hour {what}, the oldest since "
        f"{oldest.begun_at:%Y-%m-%d %H:%M} UTC: {_reason(oldest)}",
        "The model cannot be reached: look at its key, its address and its quota. They are answered when it is back."
        if is_parked
        else "They are taken up when the gateway runs and the channel is connected: `ethos status`.",
        page=f"deliveries?queue={queue}&channel={quote(oldest.channel)}",
    )


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _counted(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _reason(row: Delivery) -> str:
    return " ".join((row.error or "no reason is known").split())[:_EXCERPT_CHARS]


async def clock(ground: Ground) -> AsyncIterator[Finding]:
    """What was written cannot be from the future; if it is, the clock is wrong now, or was then."""
    async with _usable_store(ground) as store:
        newest = [] if store is None else [await store.deliveries.rows(each, chosen="all", limit=1) for each in _QUEUES]
    ahead = max((row.begun_at - datetime.now(UTC) for rows in newest for row in rows), default=timedelta(0))
    if ahead > AHEAD:
        yield Finding(
            "clock",
            "warning",
            f"The newest message is from {ahead.total_seconds() / 60:.0f} minutes in the future: this machine's "
            "clock is behind, or was ahead.",
            "Set it by the network (`timedatectl set-ntp true`). Nothing is lost and nothing waits longer for "
            "it; only the times that you read are wrong.",
        )


def backups(ground: Ground) -> Iterator[Finding]:
    """The last one is not too long ago; without any there is nothing to say: people have ways of their own."""
    last = last_backup(ground.home)
    if last is None:
        return
    age = datetime.now(UTC) - last.at
    if age > OLD_BACKUP:
        yield Finding(
            "backup",
            "warning",
            f"The last backup, {last.file}, is {age.days} days old.",
            "Make another one, best by a timer.",
            repair=ground.by_hands(
                "Make a backup",
                f"Saves everything but secrets in one file in {Path(last.file).parent}; the gateway goes on meanwhile.",
                lambda hands: hands.back_up(),
            ),
        )


async def memory_journal(ground: Ground) -> AsyncIterator[Finding]:
    """What was to be remembered and is not in the memory; a running gateway says so itself."""
    if ground.process is not None or ground.is_shared:
        return
    async with _usable_store(ground) as store:
        turns = [] if store is None else await store.journal.unsettled()
    if turns:
        yield Finding(
            "memory-journal",
            "warning",
            f"The memory updates of {_counted(turns, 'turn')} are in the journal and not in the memory yet.",
            "The next start of the gateway brings them in: `ethos serve`.",
            repair=ground.by_hands(
                "Bring them in",
                "Brings them into the memory now. Each is written once, whoever does it.",
                lambda hands: hands.bring_in_memory(),
            ),
        )


async def shared_memory(ground: Ground) -> AsyncIterator[Finding]:
    """Several people talk with a personality that keeps one `MEMORY.md` for all of them."""
    async with _usable_store(ground) as store:
        people = {} if store is None else await store.sessions.people()
    is_elsewhere = ground.config is not None and ground.config.memory.provider.kind != DEFAULT_KIND
    sharing: dict[str, set[str]] = {}
    for personality in Personalities(ground.home).list():
        if isinstance(personality, Personality) and personality.memory_scope != "per-user":
            path = "MEMORY.md" if personality.memory_scope == "global" else f"personalities/{personality.id}/MEMORY.md"
            sharing.setdefault(path, set()).update(people.get(personality.id, ()))
    for path, users in sharing.items():
        if len(users) > 1 and (is_elsewhere or (ground.home / path).exists()):
            yield Finding(
                named("shared-memory", path),
                "warning",
                f"{len(users)} people share {path}: what one tells the agent, the others may hear from it.",
                "That is meant for a household or a team. For others set `memory_scope: per-user` in "
                "personality.yaml, so that each has a MEMORY.md of their own; `memory_writes: review` lets you decide "
                "on every note.",
            )


async def identity_map(ground: Ground) -> AsyncIterator[Finding]:
    """It can be read, and nothing was set aside."""
    path = ground.home / "users" / "identity-map.json"
    aside = await asyncio.to_thread(IdentityDisk(path).set_aside)
    for problem in await IdentityMap(path).problems():
        is_set_aside = problem.startswith(f"{path}.broken-")
        yield Finding(
            named("identity-map", problem),
            "warning" if is_set_aside else "problem",
            problem,
            f"Compare it with {path.name}, then delete it."
            if is_set_aside
            else f"Correct {path}; it counts from the next message on.",
            repair=next((_without(copy) for copy in aside if problem.startswith(f"{copy}:")), None),
        )


def _without(copy: Path) -> Repair:
    async def run() -> str:
        await asyncio.to_thread(copy.unlink, missing_ok=True)
        return f"{copy.name} is deleted."

    does = f"Deletes {copy.name}, which could not be read when it was the map. The map that serves stays."
    return Repair(label="Delete the copy", does=does, run=run, asks=True)


@asynccontextmanager
async def _usable_store(ground: Ground) -> AsyncIterator[Stores | None]:
    """The database; None where it cannot be opened as it is, which `database` has said."""
    path = ground.home / DATABASE_NAME
    if ground.is_shared or (path.exists() and schema_version(path) == migrations()[-1].version):
        async with ground.opened_store() as store:
            yield store
    else:
        yield None
