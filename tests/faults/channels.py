"""The real adapters, against the fakes of their tests, whose people write in the driver's process.

A kill from the platform's side comes in the middle of a request: before it has done what was asked, or after that and
before its answer. Each person has a direct chat of their own.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import dataclass

from tests.adapters.email.mail_server import missing_packages
from tests.faults.platform import Platform


@dataclass(frozen=True, slots=True)
class Channel:
    """How a channel is tested.

    Attributes:
        side: module and class of the platform.
        library: what the adapter needs.
        points: failpoints that are killed at here, too: where the platform cannot be watched from inside.
        kills: at each of its faults, unless told otherwise.
    """

    side: tuple[str, str]
    part: str
    library: str
    kills: int = 50
    per_stream: int = 10
    max_people: int = 12
    points: tuple[str, ...] = ()

    def make(self, _index: int = 0) -> Platform:
        """A new one, where nobody has written yet."""
        module, name = self.side
        platform: Platform = getattr(importlib.import_module(f"tests.faults.{module}"), name)()
        return platform


CHANNELS = {
    "telegram": Channel(("telegram", "Telegram"), "adapters.telegram", "telegram"),
    "slack": Channel(("slack", "Slack"), "adapters.slack", "slack_bolt"),
    "discord": Channel(("discord", "Discord"), "adapters.discord", "discord"),
    "mail": Channel(
        ("mail", "Mail"),
        "adapters.email",
        "aioimaplib",
        kills=20,
        points=("inbox.committed", "outbox.claimed", "outbox.delivered"),
    ),
}
# A handler whose gateway was killed in the middle of it is no news.
for _noisy in ("aiohttp.server", "aiohttp.access", "asyncio"):
    logging.getLogger(_noisy).setLevel(logging.CRITICAL)


def unavailable(name: str) -> str | None:
    """Why a channel cannot be run here, with what mends it."""
    library = CHANNELS[name].library
    if name == "mail" and (missing := missing_packages()) is not None:
        return missing
    return None if importlib.util.find_spec(library) else f"{library} is not installed: make channels"
