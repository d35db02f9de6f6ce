"""Checks of what the gateway keeps: the database, the queues, the memory journal and the identity map."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from gateway.cli.data import opened_store
from gateway.cli.finding import Finding, Ground
from gateway.config.memory_kinds import DEFAULT_KIND
from gateway.domain.personalities import Personalities, Personality
from gateway.errors import EthosError
from gateway.files.home import DATABASE_NAME
from gateway.files.last_backup import last_backup
from gateway.people.identity import IdentityMap
from gateway.sdk.models.deliveries import Delivery, Queue
from gateway.store.sqlite.schema import migrations, schema_version
from gateway.store.stores import Stores

OLD = timedelta(hours=1)
OLD_BACKUP = timedelta(days=8)
AHEAD = timedelta(minutes=2)
_LOOKED_AT = 10_000
_QUEUES: tuple[Queue, ...] = ("inbox", "outbox")
_EXCERPT_CHARS = 200


async def database(ground: Ground) -> AsyncIterator[Finding]:
    """The file can be read, is sound, and has a schema that we know; one on a server has checks of its own."""
    path = ground.home / DATABASE_NAME
    if not path.exists() or ground.is_shared:
        return
    version, newest = schema_version(path), migrations()[-1].version
    if version is not None and 0 < version < newest:
        yield Finding(
            "warning" if ground.process is None else "problem",
            f"The database has schema version {version}; this program works with {newest}.",
            "Start the gateway (again): it keeps a copy and brings the database up to date.",
        )
        return
    try:
        async with opened_store(ground.home) as store:
            faults = [] if store is None else await store.problems()
    except EthosError as error:
        yield Finding("problem", str(error), "Keep a copy of all files of the database before you try.")
        return
    if faults:
        listed = "\n".join(faults[:10])
        yield Finding(
            "problem",
            f"{path} is damaged:\n{listed}",
            "Stop the gateway, keep a copy, and put a backup in its place; without one, "
            f"`sqlite3 {path.name} .recover` saves what can be saved.",
        )


async def queues(ground: Ground) -> AsyncIterator[Finding]:
    """Dead letters, and messages that wait for long."""
    before = datetime.now(UTC) - OLD
    async with _usable_store(ground) as store:
        if store is None:
            return
        for queue in _QUEUES:
            dead = await store.deliveries.rows(queue, chosen="dead", limit=_LOOKED_AT)
            for rows in _by_channel(dead):
                yield _about_dead(queue, rows)
            unfinished = await store.deliveries.rows(queue, chosen="open", limit=_LOOKED_AT)
            for rows in _by_channel([row for row in unfinished if row.begun_at < before]):
                yield _about_waiting(queue, rows)


def _by_channel(rows: Sequence[Delivery]) -> list[list[Delivery]]:
    found: dict[str, list[Delivery]] = {}
    for row in rows:
        found.setdefault(row.channel, []).append(row)
    return list(found.values())


def _about_dead(queue: Queue, rows: Sequence[Delivery]) -> Finding:
    what = "could not be answered" if queue == "inbox" else "could not be delivered"
    whose = f"{_counted(rows, 'message')} of the channel {rows[0].channel}"
    return Finding(
        "warning",
        f"{whose} {what}; the newest: {_reason(rows[0])}",
        f"Fix the cause, then `ethos deliveries list {queue}`, and `ethos deliveries retry {queue}` or "
        f"`ethos deliveries drop {queue}` for each.",
    )


def _about_waiting(queue: Queue, rows: Sequence[Delivery]) -> Finding:
    oldest = rows[-1]
    whose = f"{_counted(rows, 'message')} of the channel {oldest.channel}"
    what = "for an answer" if queue == "inbox" else "to be delivered"
    verb = "has" if len(rows) == 1 else "have"
    is_parked = any(row.state == "parked" for row in rows)
    return Finding(
        "warning",
        f"{whose} {verb} waited for more than an hour {what}, the oldest since "
        f"{oldest.begun_at:%Y-%m-%d %H:%M} UTC: {_reason(oldest)}",
        "The model cannot be reached: look at its key, its address and its quota. They are answered when it is back."
        if is_parked
        else "They are taken up when the gateway runs and the channel is connected: `ethos status`.",
    )


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
            "warning", f"The last backup, {last.file}, is {age.days} days old.", "Make another one, best by a timer."
        )


async def memory_journal(ground: Ground) -> AsyncIterator[Finding]:
    """What was to be remembered and is not in the memory; a running gateway says so itself."""
    if ground.process is not None or ground.is_shared:
        return
    async with _usable_store(ground) as store:
        turns = [] if store is None else await store.journal.unsettled()
    if turns:
        yield Finding(
            "warning",
            f"The memory updates of {_counted(turns, 'turn')} are in the journal and not in the memory yet.",
            "The next start of the gateway brings them in: `ethos serve`.",
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
                "warning",
                f"{len(users)} people share {path}: what one tells the agent, the others may hear from it.",
                "That is meant for a household or a team. For others set `memory_scope: per-user` in "
                "personality.yaml, so that each has a MEMORY.md of their own; `memory_writes: review` lets you decide "
                "on every note.",
            )


async def identity_map(ground: Ground) -> AsyncIterator[Finding]:
    """It can be read, and nothing was set aside."""
    path = ground.home / "users" / "identity-map.json"
    for problem in await IdentityMap(ground.home / "users" / "identity-map.json").problems():
        is_set_aside = problem.startswith(f"{path}.broken-")
        yield Finding(
            "warning" if is_set_aside else "problem",
            problem,
            f"Compare it with {path.name}, then delete it."
            if is_set_aside
            else f"Correct {path}; it counts from the next message on.",
        )


@asynccontextmanager
async def _usable_store(ground: Ground) -> AsyncIterator[Stores | None]:
    """The database; None where it cannot be opened as it is, which `database` has said."""
    path = ground.home / DATABASE_NAME
    if ground.is_shared or (path.exists() and schema_version(path) == migrations()[-1].version):
        async with opened_store(ground.home) as store:
            yield store
    else:
        yield None
