"""The first visit as a new user types and clicks it, from the printed link to an answer on a channel and a backup."""

from __future__ import annotations

import re
from dataclasses import dataclass

from playwright.async_api import Page, expect

from tests.adapters.telegram.fake_telegram import TOKEN, FakeTelegram
from tests.model_server import ModelServer

MODEL_KEY = "canary-of-the-models-key"


@dataclass(frozen=True, kw_only=True)
class FirstVisit:
    """One way through the set-up.

    Attributes:
        page: of a browser in which nobody is logged in yet.
        typing_ms: for each key that is pressed.
    """

    page: Page
    model: ModelServer
    telegram: FakeTelegram
    typing_ms: int = 0

    async def type(self, label: str, text: str) -> None:
        """Click into a field and type."""
        field = self.page.get_by_label(label, exact=True)
        await field.click()
        await field.press("Control+A")
        await field.press_sequentially(text, delay=self.typing_ms)

    async def log_in(self, link: str) -> None:
        """Open the link that was printed."""
        await self.page.goto(link)
        await expect(self.page.get_by_role("heading", name="Who you are")).to_be_visible()

    async def say_who(self) -> None:
        """Name and time zone."""
        await self.type("Your name", "Ada")
        await self.type("Your time zone", "Europe/Berlin")
        await self.page.get_by_role("button", name="Save and go on").click()
        await expect(self.page.get_by_role("heading", name="A model", exact=True)).to_be_visible()

    async def choose_model(self) -> str:
        """Its server, its key, one of those that the server lists; what the page says of its answer."""
        page = self.page
        await page.get_by_label("A server at an address").check()
        await self.type("Address", self.model.url)
        await self.type("API key", MODEL_KEY)
        await page.get_by_role("button", name="List the models").click()
        await page.get_by_role("combobox", name="Model").select_option("echo-2")
        await page.get_by_role("button", name="Try it and use it", exact=True).click()
        told = page.get_by_role("status").filter(has_text="It answered")
        await expect(told).to_be_visible()
        said = await told.inner_text()
        await page.get_by_role("link", name="Go on: A channel").click()
        return said

    async def connect_channel(self) -> str:
        """The platform, the token of its console, and where the platform is played; what the page says of it."""
        page = self.page
        await page.get_by_role("link", name="Telegram", exact=True).click()
        await self.type("Token", TOKEN)
        await page.get_by_text("All other settings").click()
        await self.page.locator("[name='key.api_url']").fill(self.telegram.url)
        await page.get_by_role("button", name="Try it and connect it").click()
        await expect(page.get_by_role("heading", name="The first message")).to_be_visible()
        return await page.get_by_role("status").filter(has_text="This is").inner_text()

    async def write_first(self) -> None:
        """Become the owner, and get an answer, while the page shows both."""
        page = self.page
        await expect(page.get_by_text("is not connected")).to_have_count(0)
        code = await page.get_by_text(re.compile(r"^/owner \S+$")).inner_text()
        await self.telegram.say(code)
        watch = page.get_by_role("region", name="What arrives")
        await expect(watch.get_by_role("heading", name="is the owner")).to_be_visible()
        await self.telegram.say("hello from my phone")
        await expect(watch.get_by_role("list", name="Messages")).to_contain_text("You said: hello from my phone")
        await page.get_by_role("link", name="Go on: A backup").click()

    async def back_up(self) -> None:
        """One file, which the page shows when it is there."""
        await self.page.get_by_role("button", name="Make a backup now").click()
        await expect(self.page.get_by_text("written and read back")).to_be_visible()
        await self.page.get_by_role("link", name="Go on").click()
        await expect(self.page.get_by_role("heading", name="You are set up")).to_be_visible()
