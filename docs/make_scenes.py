# ruff: noqa: INP001 (a program beside the pages, not a package)
"""Makes `pairing.png`, `linking.png` and `adding.png` of `docs/images/` again: `.venv/bin/python -m docs.make_scenes`.

A real `ethos serve` is connected to the test suite's Telegram and Slack. What people write and what the agent answers
there is shown as two phones side by side: nothing in the pictures is typed by hand but what the people say. A second
bot's login is tried in the dashboard.
"""

from __future__ import annotations

import asyncio
import html
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from tests.adapters.telegram.fake_telegram import FakeTelegram
from tests.scenarios.people import OnSlack, OnTelegram, Way
from tests.scenarios.platforms import Platforms, Served, running_platforms
from tests.scenarios.process import Ethos

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
CODE = re.compile(r"[A-Z0-9]{4}-[A-Z0-9]{4}")
MAX_PICTURE_BYTES = 200_000
OTHER_TOKEN = "999999:AAH-of_a_second_bot_0123456789"  # noqa: S105 (of a stand-in)

STYLE = """
body { margin: 0; padding: 16px; display: flex; gap: 16px; background: #e4e7ec; width: max-content;
       font: 15px/1.45 system-ui, "Noto Sans", "Liberation Sans", sans-serif; color: #1f2523; }
section { width: 372px; border-radius: 14px; background: #faf9f6; border: 1px solid #c3c9d3; overflow: hidden; }
h2 { margin: 0; padding: 10px 16px; font-size: 15px; background: #0f766e; color: #fff; }
.said { padding: 12px; display: flex; flex-direction: column; gap: 8px; }
p { margin: 0; padding: 7px 12px; border-radius: 12px; max-width: 300px; white-space: pre-wrap;
    overflow-wrap: anywhere; }
p.person { align-self: end; background: #dff1ed; }
p.agent { align-self: start; background: #fff; border: 1px solid #e2dfd6; }
code { font: 14px ui-monospace, "DejaVu Sans Mono", monospace; background: #f1efe9;
    padding: 0 4px; border-radius: 4px; }
.buttons { display: flex; flex-wrap: wrap; gap: 6px; margin-top: -4px; }
.buttons span { border: 1px solid #0f766e; color: #0f766e; border-radius: 8px; padding: 3px 10px; font-size: 14px; }
"""


@dataclass
class Phone:
    """One conversation as its person sees it.

    Attributes:
        lines: who said it (`person` or `agent`), what, and the buttons below it; in order.
    """

    title: str
    way: Way
    lines: list[tuple[str, str, Sequence[str]]] = field(default_factory=list)
    heard: int = 0

    async def say(self, text: str) -> None:
        """Write to the agent."""
        self.lines.append(("person", text, ()))
        await self.way.say(text)

    async def hear(self, expected: str) -> str:
        """Wait until the agent has written something with this in it; gives that."""
        found = await self.way.until(lambda all_: any(expected in one for one in all_[self.heard :]))
        new, self.heard = found[self.heard :], len(found)
        self.lines += [("agent", *_shown(self.way, one)) for one in new]
        return next(one for one in new if expected in one)

    def html(self) -> str:
        """The phone."""
        said = "".join(map(_line, self.lines))
        return f"<section><h2>{html.escape(self.title)}</h2><div class=said>{said}</div></section>"


def _shown(way: Way, text: str) -> tuple[str, Sequence[str]]:
    """The text with its code in backquotes, and the labels of the buttons below it."""
    if not isinstance(way, OnTelegram):
        return text, ()
    chat = int(way.account.partition(":")[2])
    message = next(one for one in way._telegram.bot_messages(chat) if one.text == text)  # noqa: SLF001 (the suite's own)
    units = text.encode("utf-16-le")  # Telegram counts in these
    for entity in sorted(message.entities, key=lambda one: -one["offset"]):
        if entity["type"] == "code":
            start, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
            mark = "`".encode("utf-16-le")
            units = units[:start] + mark + units[start:end] + mark + units[end:]
    return units.decode("utf-16-le"), [button["text"] for row in message.keyboard for button in row]


def _line(line: tuple[str, str, Sequence[str]]) -> str:
    who, text, buttons = line
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    words = re.sub(r"\*+([^*\n]+)\*+", r"<b>\1</b>", words)
    below = "".join(f"<span>{html.escape(one)}</span>" for one in buttons)
    return f"<p class={who}>{words}</p>" + (f"<div class=buttons>{below}</div>" if below else "")


async def pairing(platforms: Platforms, served: Served) -> list[Phone]:
    """A stranger asks to be let in, and the owner says yes."""
    owner = Phone("Ada, the owner, on Telegram", OnTelegram(platforms, 42, "Ada"))
    bob = Phone("Bob, on Telegram", OnTelegram(platforms, 44, "Bob"))
    made = await asyncio.to_thread(Ethos(served.home).run, "people", "owner-code")
    await owner.say(f"/owner {_code(made.stdout)}")
    await owner.hear("owner")
    await bob.say("remember that my name is Bob")
    code = _code(await bob.hear("code"))
    await owner.hear("wants to talk")
    await owner.say(f"/pair {code}")
    await owner.hear("Bob")
    await bob.hear("let in")
    await bob.hear("")
    return [bob, owner]


async def linking(platforms: Platforms, _served: Served) -> list[Phone]:
    """Two accounts of one person become one."""
    here = Phone("Ada, on Telegram", OnTelegram(platforms, 42, "Ada"))
    there = Phone("Ada, on Slack", OnSlack(platforms, "U0ADA"))
    here.heard = len(await here.way.heard())
    await here.say("/link")
    code = _code(await here.hear("/link"))
    await there.say(f"/ethos link {code}")
    await here.hear("Link ")
    await here.say("/link yes")
    await here.hear("one person now")
    await there.hear("one person now")
    return [here, there]


async def adding(browser: Browser, served: Served) -> None:
    """The page on which a channel is added, after its login was tried."""
    bot = FakeTelegram()
    bot.token = OTHER_TOKEN
    await bot.start()
    page = await browser.new_page(viewport={"width": 1120, "height": 760})
    try:
        await page.goto(f"{served.url}?token={(served.home / 'web-token').read_text().strip()}")
        await page.goto(f"{served.url.rstrip('/')}/dashboard/channels/add/telegram")
        await page.get_by_label("Token", exact=True).fill(OTHER_TOKEN)
        await page.get_by_text("All other settings").click()
        await page.get_by_label("API URL").fill(bot.url)
        await page.get_by_role("button", name="Try the login").click()
        await page.get_by_text("The login works").wait_for()
        await page.get_by_text("All other settings").click()
        await page.locator(".steps img").scroll_into_view_if_needed()
        await page.evaluate("scrollTo(0, 0)")
        _keep(await page.screenshot(), "adding")
    finally:
        await page.close()
        await bot.stop()


def _code(text: str) -> str:
    found = CODE.search(text)
    if found is None:
        raise RuntimeError(f"no code in {text!r}")
    return found[0]


async def _shoot(browser: Browser, phones: Sequence[Phone], name: str) -> None:
    page = await browser.new_page(viewport={"width": 796, "height": 200})
    await page.set_content(
        f"<!doctype html><style>{STYLE}</style><body>{''.join(phone.html() for phone in phones)}</body>"
    )
    picture = await page.screenshot(full_page=True)
    await page.close()
    _keep(picture, name)


def _keep(picture: bytes, name: str) -> None:
    path = IMAGES / f"{name}.png"
    path.write_bytes(picture)
    if path.stat().st_size > MAX_PICTURE_BYTES:
        raise RuntimeError(f"{path.name} has {path.stat().st_size} bytes; {MAX_PICTURE_BYTES} is the most")
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes\n")


async def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as directory:
        async with running_platforms(None) as platforms, async_playwright() as playwright:
            served = Served(Path(directory) / "home", platforms.environment())
            channels = platforms.channels()
            served.configure({name: channels[name] for name in ("telegram", "slack")})
            await served.start(expected=("telegram", "slack"))
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            try:
                await adding(browser, served)
                await _shoot(browser, await pairing(platforms, served), "pairing")
                await _shoot(browser, await linking(platforms, served), "linking")
            finally:
                await browser.close()
                await served.close()


if __name__ == "__main__":
    asyncio.run(main())
