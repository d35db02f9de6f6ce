"""The page of the settings, in a real browser: found, changed, seen as a difference, saved, undone."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from ethos import AsyncEthos
from tests.browser.dashboard.conftest import Open, look_over

pytestmark = pytest.mark.browser

SECRET = "a-canary-that-no-page-shows"
MODELS = {"big": {"provider": "openai", "model": "gpt", "api_key": "${CANARY_KEY}"}}


async def review(page: Page, form: str) -> None:
    await page.get_by_role("form", name=form, exact=True).get_by_role("button", name="Review the change").click()


async def test_what_is_set_is_shown_first_and_no_secret(open_desk: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", SECRET)
    desk = await open_desk(models=MODELS, memory={"max_chars": 4321})
    page = await desk.open("/settings")
    await expect(page.get_by_label("memory.max_chars", exact=True)).to_have_value("4321")
    key = page.get_by_role("form", name="models.big").get_by_label("api_key", exact=True)
    await expect(key).to_have_value("")
    await expect(page.get_by_role("form", name="models.big")).to_contain_text("config.yaml, from ${CANARY_KEY}")
    other = page.get_by_label("limits.steps_per_turn", exact=True)
    await expect(other).to_have_count(0)
    assert SECRET not in await page.content()
    await page.get_by_role("link", name="All", exact=True).click()
    await expect(other).to_have_value("12")
    await page.get_by_role("searchbox", name="Search the settings").fill("fades third")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.get_by_label("memory.traces.stability_days", exact=True)).to_have_value("30")
    await expect(other).to_have_count(0)


async def test_a_setting_is_changed_seen_saved_and_undone(open_desk: Open) -> None:
    desk = await open_desk()
    path = desk.gateway.home / "config.yaml"
    before = path.read_text()
    page = await desk.open("/settings?group=Limits")
    await look_over(page)
    steps = page.get_by_label("limits.steps_per_turn", exact=True)
    await steps.fill("5")
    await page.get_by_label("limits.running_turns", exact=True).fill("3")
    await review(page, "Limits")
    changes = page.get_by_role("region", name="What changes")
    await expect(changes).to_contain_text("steps_per_turn: 5")
    await expect(changes).to_contain_text("In force at once: limits.steps_per_turn.")
    await expect(changes).to_contain_text("Needs a restart limits.running_turns.")
    assert path.read_text() == before
    await look_over(page)
    await page.get_by_role("button", name="Save", exact=True).click()
    said = page.get_by_role("status").filter(has_text="Saved. In force now: limits.steps_per_turn.")
    await expect(said).to_be_visible()
    assert desk.gateway.config.limits.steps_per_turn == 5
    assert "steps_per_turn: 5" in path.read_text()
    await expect(page.get_by_role("region", name="The file has changed")).to_contain_text("limits.running_turns")
    await page.get_by_role("button", name="Undo", exact=True).click()
    await expect(
        page.get_by_role("status").filter(has_text="Saved. In force now: limits.steps_per_turn.")
    ).to_be_visible()
    assert path.read_text() == before
    assert desk.gateway.config.limits.steps_per_turn == 12


async def test_what_is_wrong_stands_beside_its_field_and_nothing_typed_is_lost(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/settings?group=Delivery")
    await page.get_by_label("delivery.first_retry_s", exact=True).fill("1000")
    await page.get_by_label("delivery.max_attempts", exact=True).fill("3")
    await review(page, "Delivery")
    wrong = page.get_by_label("delivery.longest_retry_s", exact=True)
    await expect(wrong).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_role("form", name="Delivery")).to_contain_text("expected at least 1000")
    await expect(page.get_by_label("delivery.first_retry_s", exact=True)).to_have_value("1000")
    await look_over(page)
    await wrong.fill("2000")
    await review(page, "Delivery")
    await expect(page.get_by_role("region", name="What changes")).to_contain_text("max_attempts: 3")


async def test_a_model_is_added_with_its_key_and_removed_without_touching_a_file(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/settings?group=Models")
    await page.get_by_placeholder("Name").fill("gpt-5.4")
    await page.get_by_role("button", name="Add", exact=True).click()
    await look_over(page)
    await page.get_by_label("provider", exact=True).select_option("openai")
    await page.get_by_label("api_key", exact=True).fill(SECRET)
    form = "models.gpt-5.4"
    await review(page, form)
    await expect(page.get_by_role("form", name=form)).to_contain_text("expected the provider's name of the model")
    assert SECRET not in await page.content()
    await page.get_by_label("model", exact=True).fill("gpt-5.4")
    await page.get_by_label("api_key", exact=True).fill(SECRET)
    await review(page, form)
    await expect(page.get_by_role("region", name="What changes")).to_contain_text("secrets/models-gpt-5.4-api_key")
    assert SECRET not in await page.content()
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="In force now: models.gpt-5.4.")).to_be_visible()
    kept = desk.gateway.home / "secrets" / "models-gpt-5.4-api_key"
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == (f"{SECRET}\n", 0o600)
    key = desk.gateway.config.models["gpt-5.4"].api_key
    assert key is not None
    assert key.get_secret_value() == SECRET
    assert SECRET not in await page.content()
    await page.get_by_role("button", name="Remove models").click()
    await expect(page.get_by_role("region", name="What changes")).to_contain_text("nothing in config.yaml needs")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="In force now: models.gpt-5.4.")).to_be_visible()
    assert "gpt-5.4" not in desk.gateway.config.models


async def test_a_budget_and_the_traces_are_switched_on(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/settings?q=budgets.user.turns")
    await page.get_by_label("budgets.user.turns", exact=True).fill("200")
    await review(page, "Budgets")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="Saved. In force now: budgets.user.")).to_be_visible()
    budget = desk.gateway.config.budgets.user
    assert budget is not None
    assert budget.turns == 200
    await desk.open("/settings?q=memory.traces.enabled")
    await page.get_by_label("memory.traces.enabled", exact=True).check()
    await review(page, "Memory")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="After a restart: memory.traces.")).to_be_visible()


async def test_two_editors_conflict_and_neither_loses_anything(open_desk: Open) -> None:
    desk = await open_desk()
    path = desk.gateway.home / "config.yaml"
    page = await desk.open("/settings?group=Limits")
    await page.get_by_label("limits.steps_per_turn", exact=True).fill("5")
    await review(page, "Limits")
    path.write_text(path.read_text() + "limits: {steps_per_turn: 9, tool_calls_per_turn: 7}\n")
    await page.get_by_role("button", name="Save", exact=True).click()
    told = page.get_by_role("alert", name="Changed meanwhile")
    await expect(told).to_contain_text("limits.steps_per_turn: 12 → 9")
    await expect(told).to_contain_text("limits.tool_calls_per_turn: 32 → 7")
    await expect(page.get_by_label("limits.steps_per_turn", exact=True)).to_have_value("5")
    await expect(page.get_by_label("limits.tool_calls_per_turn", exact=True)).to_have_value("7")
    await look_over(page)
    await review(page, "Limits")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
    assert "limits: {steps_per_turn: 5, tool_calls_per_turn: 7}\n" in path.read_text()


async def test_it_works_without_a_script(open_desk: Open) -> None:
    desk = await open_desk()
    context = await desk.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]
    page = await context.new_page()
    await page.goto(desk.gateway.web.login_url)
    await page.goto(f"{desk.url}/dashboard/settings?q=tools.questions")
    await page.get_by_label("tools.questions", exact=True).check()
    await review(page, "Tools")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="After a restart: tools.questions.")).to_be_visible()
    await context.close()


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
    await expect(page.get_by_label("limits.steps_per_turn", exact=True)).to_have_value("5")
    assert desk.gateway.config.limits.steps_per_turn == 5


async def test_a_broken_file_is_shown_with_its_errors_and_corrected_here(
    open_desk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KEY", SECRET)
    desk = await open_desk(models=MODELS)
    path = desk.gateway.home / "config.yaml"
    path.write_text(path.read_text() + f"memory: {{max_chars: many}}\n# password: {SECRET}\n")
    page = await desk.open("/settings")
    broken = page.get_by_role("region", name="The file cannot be used")
    await expect(broken).to_contain_text("'many' is not a whole number")
    await expect(broken).to_contain_text("memory: {max_chars: many}")
    assert SECRET not in await page.content()
    await look_over(page)
    await page.get_by_role("button", name="Reload the file").click()
    await expect(page.get_by_role("alert").filter(has_text="Nothing was taken over")).to_be_visible()
    await page.get_by_label("memory.max_chars", exact=True).fill("5000")
    await review(page, "Memory")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="In force now: memory.max_chars.")).to_be_visible()


async def test_a_gateway_that_cannot_begin_again_says_so(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/settings")
    await page.get_by_role("button", name="Restart now").click()
    await page.get_by_role("button", name="Restart now").click()
    await expect(page.get_by_role("alert").filter(has_text="was not started by `ethos serve`")).to_be_visible()


async def test_after_a_restart_the_page_comes_back(browser: Browser, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(f"web: {{port: {port}}}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.cli", "serve", "--no-chat", env={**os.environ, "ETHOS_HOME": str(home)}
    )
    try:
        async with AsyncEthos(home=home, max_retries=10) as client, asyncio.timeout(120):
            before = await client.system.health()
            page = await browser.new_page()
            await page.goto(f"http://127.0.0.1:{port}/?token={(home / 'web-token').read_text().strip()}")
            await page.goto(f"http://127.0.0.1:{port}/dashboard/settings")
            await page.get_by_role("button", name="Restart now").click()
            await page.get_by_role("button", name="Restart now").click()
            await expect(page.get_by_role("heading", name="The gateway restarts")).to_be_visible()
            await page.wait_for_url("**/dashboard/settings", timeout=60_000)
            await expect(page.get_by_role("searchbox", name="Search the settings")).to_be_visible()
            after = await client.system.health()
            await page.close()
        assert after.started_at > before.started_at
        assert after.pid == process.pid
    finally:
        process.terminate()
        await process.wait()
