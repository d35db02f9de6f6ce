"""The pages Models and Backups, in a real browser."""

from __future__ import annotations

import gzip

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.dashboard.conftest import Open, look_over
from tests.model_formats import Failure
from tests.model_server import ModelServer

pytestmark = pytest.mark.browser
KEY = "canary-of-the-key"


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("listitem", name=name, exact=True)


async def test_a_model_is_added_tested_changed_made_the_default_and_removed(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/models")
    await expect(card(page, "offline")).to_contain_text("Default")
    await look_over(page)
    async with ModelServer() as server:
        await page.get_by_role("link", name="Add a model").click()
        await expect(page.get_by_label("Address", exact=True)).to_be_hidden()
        await page.get_by_label("A server at an address").check()
        await page.get_by_label("Address", exact=True).fill(server.url)
        await page.get_by_label("API key").fill(KEY)
        await page.get_by_role("button", name="List the models").click()
        await expect(page.get_by_role("combobox", name="Model").locator("option")).to_have_text(["echo-1", "echo-2"])
        await look_over(page)
        server.script([Failure(status=401)])
        await page.get_by_role("button", name="Try it and save", exact=True).last.click()
        await expect(page.get_by_role("alert")).to_contain_text("The API key was refused (HTTP 401)")
        await expect(page.get_by_label("API key")).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_label("Address", exact=True)).to_have_value(server.openai_url)
        await look_over(page)
        await page.get_by_role("textbox", name="Model").press("Enter")
        told = page.get_by_role("status").filter(
            has_text="main is added. It answered “You said: Say hello in one word.”"
        )
        await expect(told).to_be_visible()
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        main = card(page, "main")
        await expect(main).to_contain_text(f"echo-1, at {server.openai_url}, with a key")
        await expect(main).to_contain_text("Answers")
        await main.get_by_role("button", name="Make it the default").click()
        await expect(main).to_contain_text("Default")
        assert desk.gateway.config.model == "main"
        server.script([Failure(status=401)])
        await main.get_by_role("button", name="Test").click()
        await expect(page.get_by_role("alert")).to_contain_text(
            "main did not answer: main (echo-1): the API key was ref"
        )
        await expect(main).to_contain_text("Does not answer")
        await look_over(page)
        await main.get_by_role("link", name="Change").click()
        await expect(page.get_by_label("API key")).to_have_attribute("placeholder", "Kept; type to replace it")
        await page.get_by_role("textbox", name="Model").fill("echo-2")
        await page.get_by_role("button", name="Try it and save", exact=True).last.click()
        await expect(page.get_by_role("status").filter(has_text="main is changed. It answered")).to_be_visible()
        assert (desk.gateway.config.models["main"].model, server.requests[-1].body["model"]) == ("echo-2", "echo-2")
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    await main.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("alert")).to_contain_text("main is in use (the default)")
    await card(page, "offline").get_by_role("button", name="Make it the default").click()
    await expect(card(page, "offline")).to_contain_text("Default")
    await main.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Remove").click()
    await expect(main).to_have_count(0)
    assert KEY not in await page.content()


async def test_a_backup_is_made_while_one_watches_and_downloaded(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/backups")
    await expect(page.get_by_text("There is no backup yet.")).to_be_visible()
    await look_over(page)
    await page.get_by_role("button", name="Make a backup now").click()
    row = page.get_by_role("row").filter(has_text="ethos-")
    await expect(row).to_have_count(1)
    await look_over(page)
    async with page.expect_download() as download:
        await row.get_by_role("link", name="Download").click()
    path = await (await download.value).path()
    [kept] = (desk.gateway.home / "backups").iterdir()
    assert path.read_bytes() == kept.read_bytes()
    assert gzip.decompress(path.read_bytes())
