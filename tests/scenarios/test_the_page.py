"""`docs/one-person-many-channels.md`, to the letter: what it says to type is typed, what it quotes is read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.adapters.email.mail_server import MailServer
from tests.scenarios.people import ByMail, InTerminal, OnDiscord, OnPage, OnSlack, OnTelegram, Way
from tests.scenarios.platforms import ALL, Served, running_platforms

PAGE = Path(__file__).parents[2] / "docs" / "one-person-many-channels.md"
SECTION = "## The whole way, word for word"
_ROW = re.compile(
    r"^\| (terminal|web page|Telegram|Slack|Discord|mail) \| (?:`([^`]+)`)? ?\| `([^`]+)` \|$", re.MULTILINE
)
_CODE = re.compile(r"/link ([A-Z0-9]{4}-[A-Z0-9]{4})")


@dataclass(frozen=True)
class Step:
    """A line of the page's table."""

    where: str
    typed: str
    read: str


def steps() -> list[Step]:
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    found = [Step(*row) for row in _ROW.findall(section)]
    assert len(found) == section.count("\n| ") - 1, "a line of the table cannot be read"  # but for its head
    return found


class Walk:
    """One person before the gateway, who follows the page."""

    def __init__(self, ways: dict[str, Way]) -> None:
        self._ways = ways
        self._code = ""
        self._read_so_far = dict.fromkeys(ways, 0)

    async def take(self, step: Step) -> None:
        """Type it, and wait for a message that was not there before, or was read over until now."""
        way = self._ways[step.where]
        if step.typed:
            self._read_so_far[step.where] = len(await way.heard())
            typed = step.typed.replace("CODE", self._code).replace("DISCORD", self._ways["Discord"].account)
            await way.say(typed)
        seen = self._read_so_far[step.where]
        heard = await way.until(lambda heard: any(step.read in one for one in heard[seen:]))
        codes = _CODE.findall("\n".join(heard[seen:]))
        self._code = codes[-1] if codes else self._code


@pytest.fixture
async def walk(mail_server: MailServer, tmp_path: Path) -> AsyncIterator[Walk]:
    async with running_platforms(mail_server) as platforms:
        served = Served(tmp_path / "home", platforms.environment())
        channels = platforms.channels()
        for name in ALL:
            channels[name]["access"] = "pairing"
        served.configure(channels)
        page = OnPage(served)
        try:
            await served.start(expected=ALL)
            yield Walk(
                {
                    "terminal": InTerminal(served),
                    "web page": page,
                    "Telegram": OnTelegram(platforms, 42, "Ada"),
                    "Slack": OnSlack(platforms, "U0ADA"),
                    "Discord": OnDiscord(platforms, 4001, "Ada"),
                    "mail": ByMail(platforms, "Ada"),
                }
            )
            assert await served.stop() == 0
        finally:
            await served.close()
            await page.close()


@pytest.mark.slow
async def test_what_the_page_says_is_what_happens(walk: Walk) -> None:
    """Row 22, by the letter of the page."""
    found = steps()
    assert {step.where for step in found} == {"terminal", "web page", "Telegram", "Slack", "Discord", "mail"}
    assert {step.where for step in found if "link CODE" in step.typed} == {"Telegram", "Slack", "Discord", "mail"}
    for number, step in enumerate(found, 1):
        try:
            await walk.take(step)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"line {number} of the page's table does not hold: {step}") from error
