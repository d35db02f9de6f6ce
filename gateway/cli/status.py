"""`ethos status`: whether a gateway runs, and how it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import typer

from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import local, print_json, print_table, say
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway

State = Literal["ok", "degraded", "failing", "not_responding", "not_running", "starting"]

# 0, 1, 3 and 4 as the Linux Standard Base has them for `status`; a start is not yet a state.
EXIT_CODES: Mapping[State, int] = {
    "ok": 0,
    "degraded": 1,
    "failing": 1,
    "not_responding": 1,
    "not_running": 3,
    "starting": 4,
}
# A channel that is behind by more than a slow answer takes is worth a line.
LATE_S = 60.0
_SENTENCES: Mapping[State, str] = {
    "ok": "running, all well",
    "degraded": "running, and a part of it does not work",
    "failing": "running, and something is wrong",
    "not_responding": "running, and does not answer",
    "not_running": "not running; `ethos serve` starts it",
    "starting": "starting; not every channel was tried yet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What can be known from outside.

    Attributes:
        version: of the running gateway; None where it did not say.
        channels: as `gateway.sdk.models.system.ChannelHealth` has them, as the gateway said.
        models: as `gateway.sdk.models.system.ModelHealth` has them; those that were asked.
        queues: unfinished rows and dead letters of `inbox` and `outbox`, by channel and state, each with the age of the
            oldest in seconds; None where the database is not readable.
        disk_free_bytes: as the gateway said.
        memory: as `gateway.sdk.models.system.MemoryHealth` has it.
        memory_late: updates that are not in the files yet, by turns.
        problems: one line for people each.
    """

    state: State
    home: Path
    pid: int | None = None
    url: str | None = None
    started_at: datetime | None = None
    version: str | None = None
    channels: list[Mapping[str, Any]] = field(default_factory=list)
    models: list[Mapping[str, Any]] = field(default_factory=list)
    disk_free_bytes: int | None = None
    turns_running: int | None = None
    conversations_waiting: int | None = None
    conversations_parked: int | None = None
    memory: Mapping[str, Any] | None = None
    memory_late: int | None = None
    queues: Mapping[str, list[Mapping[str, Any]]] | None = None
    problems: list[str] = field(default_factory=list)


@asynchronous
async def status(as_json: AsJson = False) -> None:
    """Say whether the gateway runs, and how it is: exit code 0 well, 1 not well, 3 not running, 4 starting."""
    found = await _look()
    if as_json:
        print_json({**asdict(found), "is_running": found.state != "not_running"})
    else:
        _print(found)
    raise typer.Exit(EXIT_CODES[found.state])


async def _look() -> Status:
    """Ask the gateway that runs, and the database."""
    from gateway.cli.process import HealthUnknown, ask_health

    home = data_directory()
    queues, memory_late, problems = await _stored(home)
    process = running_gateway(home)
    known = Status(state="not_running", home=home, queues=queues, memory_late=memory_late, problems=problems)
    if process is None:
        return known
    known = replace(known, pid=process.pid, url=process.url, started_at=process.started_at)
    try:
        health = ask_health(home)
    except HealthUnknown as unknown:
        if process.started_at is None:
            return replace(known, state="starting")
        return replace(known, state="not_responding", problems=[str(unknown), *problems])
    verdict = health.get("status")
    return replace(
        known,
        state=verdict if verdict in ("ok", "degraded", "starting") else "failing",
        version=health.get("version"),
        channels=list(health.get("channels", [])),
        models=list(health.get("models", [])),
        disk_free_bytes=health.get("disk_free_bytes"),
        turns_running=health.get("turns_running"),
        conversations_waiting=health.get("conversations_waiting"),
        conversations_parked=health.get("conversations_parked"),
        memory=health.get("memory"),
        memory_late=health.get("memory_late"),
        problems=[*health.get("problems", []), *problems],
    )


async def _stored(home: Path) -> tuple[dict[str, list[Mapping[str, Any]]] | None, int | None, list[str]]:
    """The queues, the turns whose memory updates are not in the files, and why these cannot be read."""
    from gateway.cli.data import opened_store
    from gateway.errors import EthosError

    queues: dict[str, list[Mapping[str, Any]]] = {"inbox": [], "outbox": []}
    try:
        async with opened_store(home) as store:
            if store is None:
                return queues, 0, []
            backlog = await store.facts.backlog()
            for row in sorted(backlog, key=lambda row: (row.channel, row.state)):
                counted = {"channel": row.channel, "state": row.state, "count": row.messages, "oldest_s": row.oldest_s}
                queues[row.queue].append(counted)
            return queues, await store.facts.unsettled_turns(), []
    except EthosError as error:
        return None, None, [str(error)]


def _print(found: Status) -> None:
    is_all_well = found.state != "ok" or not found.problems
    say(f"Gateway  {_SENTENCES[found.state] if is_all_well else 'running, and has the problems below'}")
    for title, value in (
        ("Data", found.home),
        ("Process", found.pid),
        ("Version", found.version),
        ("Since", local(found.started_at) if found.started_at else None),
        ("Web page", found.url),
        ("Memory", _of_memory(found)),
    ):
        if value is not None:
            say(f"{title:8} {value}")
    if found.channels:
        say("")
        rows = [
            (channel.get("name"), channel.get("kind"), channel.get("state"), _time(channel.get("last_exchange_at")))
            for channel in found.channels
        ]
        print_table(("channel", "kind", "state", "last message"), rows)
    queues = found.queues or {}
    waiting = [
        (queue, row["channel"], row["state"], row["count"], _age(row["oldest_s"]))
        for queue, counts in queues.items()
        for row in counts
    ]
    if waiting:
        say("")
        print_table(("queue", "channel", "state", "messages", "oldest"), waiting)
    _print_what_waits(found)
    if found.problems:
        say("\nProblems")
        for problem in found.problems:
            say(f"  {problem}")


def _print_what_waits(found: Status) -> None:
    for channel in found.channels:
        if (lag_s := max(channel.get("inbox_lag_s") or 0, channel.get("outbox_lag_s") or 0)) >= LATE_S:
            say(f"\nThe channel {channel.get('name')} is behind by {_age(lag_s)}.")
    if found.conversations_parked:
        say(f"\nConversations that wait for a model: {found.conversations_parked}")
    if found.memory_late and found.memory is None:
        say(f"\nTurns whose memory updates are not in the files yet: {found.memory_late}")


def _of_memory(found: Status) -> str | None:
    """One line, if the gateway said how it is."""
    memory = found.memory
    if memory is None:
        return None
    since = local(_time(memory.get("since")))
    is_well, is_up = not memory.get("error"), memory.get("state") == "up"
    state = f"away since {since}; messages are answered without it"
    if is_up:
        state = "in use" if is_well else "in use, with the problem below"
    late = memory.get("late_turns")
    waiting = f"; the updates of {late} turn{'' if late == 1 else 's'} wait" if late else ""
    return f"{memory.get('kind')}, {state}{waiting}"


def _age(seconds: float) -> str:
    """In the largest unit of which there are two at least."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
