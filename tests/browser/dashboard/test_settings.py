"""The page of the settings, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open

pytestmark = pytest.mark.browser

SECRET = "a-canary-that-no-page-shows"
MODELS = {"big": {"provider": "openai", "model": "gpt", "api_key": "${CANARY_KEY}"}}


async def test_every_setting_is_shown_with_its_source_and_no_secret(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KEY", SECRET)
    desk = await open_desk(models=MODELS, memory={"max_chars": 4321})
    page = await desk.open("/settings")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="memory.max_chars"))
    await expect(row).to_contain_text("4321")
    await expect(row).to_contain_text("config.yaml:")
    key = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="models.big.api_key"))
    await expect(key).to_contain_text("(hidden)")
    await expect(key).to_contain_text("from ${CANARY_KEY}")
    default = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="limits.steps_per_turn"))
    await expect(default).to_contain_text("default")
    await page.get_by_role("link", name="Set in the file").click()
    await expect(row).to_contain_text("4321")
    await expect(default).to_have_count(0)
    assert SECRET not in await page.content()


async def test_a_changed_file_is_told_of_and_taken_over(open_desk: Open) -> None:
    desk = await open_desk()
    path = desk.gateway.home / "config.yaml"
    path.write_text(path.read_text() + "limits: {steps_per_turn: 5, running_turns: 3}\n")
    page = await desk.open("/settings")
    changed = page.get_by_role("region", name="The file has changed")
    await expect(changed).to_contain_text("A reload takes over: limits.steps_per_turn.")
    await expect(changed).to_contain_text("A restart is needed for: limits.running_turns.")
    await page.get_by_role("button", name="Reload the file").click()
    await expect(page.get_by_role("status").filter(has_text="In force now: limits.steps_per_turn.")).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="limits.steps_per_turn"))
    await expect(row).to_contain_text("5")
    assert desk.gateway.config.limits.steps_per_turn == 5


async def test_a_broken_file_is_said_to_be_so_and_nothing_is_taken_over(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KEY", SECRET)
    desk = await open_desk(models=MODELS)
    path = desk.gateway.home / "config.yaml"
    path.write_text(path.read_text() + "memory: {max_chars: many}\n")
    page = await desk.open("/settings")
    await expect(page.get_by_role("region", name="The file cannot be used")).to_contain_text("memory.max_chars")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="memory.max_chars"))
    await expect(row).to_contain_text("20000")
    assert SECRET not in await page.content()
    await page.get_by_role("button", name="Reload the file").click()
    await expect(page.get_by_role("alert").filter(has_text="Nothing was taken over")).to_be_visible()
