"""Telegram, Slack, Discord and mail in one real `ethos serve`: start, memory, messages per second, reconnection.

    python -m benchmarks.channels [--starts 5] [--turns 400] [--mails 60] [--model real]

The platforms are the tests' servers on loopback, driven by the unmodified libraries; mail is a real Dovecot and Exim.
The model is the offline one, or with `--model real` an instant server on loopback. Every turn is durable. Telegram's
own limit of 30 messages a second, which the gateway keeps, is lifted here. It ends after three minutes at the latest.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.instant_model import MODEL, instant_model
from benchmarks.start import resident_mb
from gateway.config.channel_kinds import KindUnusable, load_kind

try:
    for kind in ("telegram", "slack", "discord", "email"):
        load_kind(kind)
    from tests.adapters.email.mail_server import MailServer, missing_packages, running_mail_server
    from tests.scenarios.people import ByMail, OnDiscord, OnSlack, OnTelegram, Way, ask
    from tests.scenarios.platforms import ALL, Platforms, Served, running_platforms
except KindUnusable as error:
    sys.exit(f"{error}. `make test` installs all that is needed here.")
except ModuleNotFoundError as error:
    sys.exit(f"The tests' servers need {error.name}. `make test` installs all that is needed here.")

LIMIT_S = 175.0
CONVERSATIONS = 20

_numbers = itertools.count(1)


@dataclass(slots=True)
class Row:
    """What was measured of one channel; None where it was not."""

    name: str
    alone_ms: float | None = None
    per_s: float | None = None
    reconnections_s: list[float] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[MailServer | None]:
    missing = missing_packages()
    if missing is not None:
        print(f"without mail: {missing}", file=sys.stderr)
        yield None
    else:
        with running_mail_server() as server:
            yield server


@contextmanager
def model_settings(model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the model is called in the table, and what the configuration says of it."""
    if model == "offline":
        yield "the offline model", {}
        return
    with instant_model() as url:
        real = {"provider": "openai", "model": MODEL, "base_url": url}
        yield "the real model client and an instant server on loopback", {"model": "real", "models": {"real": real}}


async def starts(
    platforms: Platforms, channels: dict[str, Any], runs: int, rows: Sequence[Row], model: dict[str, Any]
) -> tuple[float, float]:
    """Median seconds until all channels are up, and median resident megabytes then. Each is then broken once."""
    seconds, megabytes = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as directory:
            served = await started(Path(directory), platforms, channels, model)
            assert served.process is not None
            seconds.append(served.started_s)
            megabytes.append(resident_mb(served.process.pid))
            try:
                await asyncio.gather(*(reconnect(platforms, row) for row in rows if row.name in channels))
            finally:
                await served.close()
    return statistics.median(seconds), statistics.median(megabytes)


async def started(directory: Path, platforms: Platforms, channels: dict[str, Any], model: dict[str, Any]) -> Served:
    patches = {**platforms.environment(), "UNPACED": "1"} if channels else {}
    served = Served(directory / "home", patches)
    served.configure(channels, **model)
    await served.start(expected=channels)
    return served


def people(platforms: Platforms, channel: str) -> list[Way]:
    makers: dict[str, Callable[[int], Way]] = {
        "telegram": lambda number: OnTelegram(platforms, 1_000 + number, "Ada"),
        "slack": lambda number: OnSlack(platforms, f"U{number:06}"),
        "discord": lambda number: OnDiscord(platforms, 10_000 + number, "Ada"),
        "mail": lambda _: ByMail(platforms, "person"),
    }
    return [makers[channel](number) for number in range(CONVERSATIONS)]


async def repeat(way: Way) -> float:
    """One turn; seconds."""
    word = f"word{next(_numbers)}e"
    started_at = time.perf_counter()
    await ask(way, f"repeat after me: {word}", word)
    return time.perf_counter() - started_at


async def rate(ways: Sequence[Way], turns: int) -> float:
    """Answers per second; each person writes again when they are answered."""
    left = iter(range(turns))

    async def one(way: Way) -> None:
        for _ in left:
            await repeat(way)

    started_at = time.perf_counter()
    await asyncio.gather(*map(one, ways))
    return turns / (time.perf_counter() - started_at)


async def mail_rate(platforms: Platforms, ways: Sequence[Way], mails: int) -> float:
    """Answers per second that Exim has taken; all mails are in the mailbox at once."""
    assert platforms.mail is not None
    await asyncio.to_thread(platforms.mail.deliver_queue)
    each = mails // len(ways)
    contents = [
        (way, way.mail(f"repeat after me: word{next(_numbers)}e")) for _ in range(each) for way in ways
        if isinstance(way, ByMail)
    ]  # fmt: skip
    started_at = time.perf_counter()
    await asyncio.to_thread(platforms.mail.fill, platforms.agent, [content.as_bytes() for _, content in contents])
    while await asyncio.to_thread(platforms.mail.queued) < len(contents):
        await asyncio.sleep(0.02)  # nothing tells when a foreign process has taken something
    return len(contents) / (time.perf_counter() - started_at)


async def reconnect(platforms: Platforms, row: Row) -> None:
    """Take the seconds from a broken connection to the answer to what was said right after the break."""
    way = people(platforms, row.name)[0]
    await repeat(way)
    {
        "telegram": platforms.telegram.drop_polls,
        "slack": platforms.slack.hang_up,
        "discord": platforms.discord.gateway.drop,
        "mail": platforms.line.cut,
    }[row.name]()
    row.reconnections_s.append(await repeat(way))


async def channel_row(platforms: Platforms, row: Row, turns: int, mails: int) -> None:
    ways = people(platforms, row.name)
    await asyncio.gather(*map(repeat, ways))  # the first answer introduces the model, and makes the user
    row.alone_ms = statistics.median([await repeat(ways[0]) for _ in range(5 if row.name == "mail" else 30)]) * 1e3
    if row.name == "mail":
        row.per_s = await mail_rate(platforms, ways, mails)
    else:
        row.per_s = await rate(ways, turns)


async def measure(mail: MailServer | None, options: argparse.Namespace, model: dict[str, Any]) -> None:
    rows = [Row(name) for name in ALL]
    async with running_platforms(mail) as platforms:
        channels = platforms.channels()
        for channel in channels.values():
            channel["access"] = "open"
        bare_s, bare_mb = await starts(platforms, {}, options.starts, (), model)
        all_s, all_mb = await starts(platforms, channels, options.starts, rows, model)
        print(f"{'':>36} {'healthy s':>10} {'MB':>7}")
        print(f"{'terminal and web':>36} {bare_s:>10.2f} {bare_mb:>7.1f}")
        print(f"{' '.join(('terminal web', *channels)):>36} {all_s:>10.2f} {all_mb:>7.1f}")
        with tempfile.TemporaryDirectory() as directory:
            served = await started(Path(directory), platforms, channels, model)
            try:
                for row in rows:
                    if row.name in channels:
                        await channel_row(platforms, row, options.turns, options.mails)
                assert served.process is not None
                print(f"{'after all that is below':>36} {'':>10} {resident_mb(served.process.pid):>7.1f}")
            finally:
                show(rows)
                await served.close()


def show(rows: Sequence[Row]) -> None:
    many = f"answers/s, {CONVERSATIONS} people"
    print(f"\n{'channel':>10} {'answer ms, one person':>22} {many:>22} {'answer s after a break: median, worst':>38}")
    for row in rows:
        alone = "-" if row.alone_ms is None else f"{row.alone_ms:.1f}"
        per_s = "-" if row.per_s is None else f"{row.per_s:.0f}"
        broken = row.reconnections_s
        back = f"{statistics.median(broken):.2f}, {max(broken):.2f}" if broken else "-"
        print(f"{row.name:>10} {alone:>22} {per_s:>22} {back:>38}")


async def bounded(mail: MailServer | None, options: argparse.Namespace, model: dict[str, Any]) -> None:
    try:
        async with asyncio.timeout(LIMIT_S):
            await measure(mail, options, model)
    except TimeoutError:
        sys.exit(f"not finished after {LIMIT_S:.0f} s; what is missing above was not measured")
    except AssertionError as error:
        sys.exit(f"{error}\nWhat is missing above was not measured.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--mails", type=int, default=60)
    parser.add_argument("--model", choices=("offline", "real"), default="offline")
    options = parser.parse_args()
    with mail_server() as mail, model_settings(options.model) as (name, model):
        print(f"with {name}:\n")
        asyncio.run(bounded(mail, options, model))


if __name__ == "__main__":
    main()
