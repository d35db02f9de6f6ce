"""The page of the personalities, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.dashboard.conftest import Open, look_over

pytestmark = pytest.mark.browser


async def test_a_personality_is_made_edited_and_taken_back(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/personalities")
    await page.get_by_label("Id").fill("pirate")
    await page.get_by_label("Description").fill("Speaks like the sea.")
    await page.get_by_label("Begin with").select_option("assistant")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Edit pirate")
    await look_over(page)
    await page.get_by_label("SOUL.md, the prompt").fill("You are a pirate.\n")
    await page.get_by_role("button", name="Save").click()
    note = page.get_by_role("status").filter(has_text="pirate is saved")
    await expect(note).to_be_visible()
    assert desk.gateway.personalities.get("pirate").prompt == "You are a pirate."
    await look_over(page)
    await note.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("status").filter(has_text="is as it was before")).to_be_visible()
    assert desk.gateway.personalities.get("pirate").prompt == desk.gateway.personalities.get("assistant").prompt


async def test_one_that_was_just_made_can_be_unmade(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/personalities")
    await page.get_by_label("Id").fill("pirate")
    await page.get_by_role("button", name="Make it").click()
    await page.get_by_role("status").get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("status").filter(has_text="is as it was before")).to_be_visible()
    assert "pirate" not in desk.gateway.personalities.ids()


async def test_settings_that_are_not_valid_are_not_saved_and_stay_in_the_editor(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/personalities/engineer")
    await page.get_by_text("All settings, as YAML").click()
    await page.get_by_label("personality.yaml").fill("memory_scope: mine\n")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("memory_scope")
    await expect(page.get_by_label("personality.yaml")).to_have_value("memory_scope: mine\n")
    assert desk.gateway.personalities.get("engineer").source == "built-in"
    await page.get_by_label("personality.yaml").fill("memory_scope: global\n")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="engineer is saved")).to_be_visible()
    assert desk.gateway.personalities.get("engineer").memory_scope == "global"
    await page.get_by_role("status").get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("status").filter(has_text="is as it was before")).to_be_visible()
    assert desk.gateway.personalities.get("engineer").source == "built-in"


async def test_an_editor_that_was_faster_is_shown_before_anything_is_saved(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.gateway.personalities.create("pirate")
    page = await desk.open("/personalities/pirate")
    soul = desk.gateway.home / "personalities" / "pirate" / "SOUL.md"
    soul.write_text("You are a captain.\n")
    await page.get_by_label("SOUL.md, the prompt").fill("You are a cook.\n")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("have changed while you were writing")
    await expect(page.locator("del")).to_contain_text("You are a captain.")
    assert soul.read_text() == "You are a captain.\n"
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="pirate is saved")).to_be_visible()
    assert soul.read_text() == "You are a cook.\n"


async def test_an_id_that_is_taken_is_said_so_and_what_was_typed_stays(open_desk: Open) -> None:
    desk = await open_desk()
    page = await desk.open("/personalities")
    await page.get_by_label("Id").fill("engineer")
    await page.get_by_label("Name").fill("Somebody")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("alert")).to_contain_text("built in")
    await expect(page.get_by_label("Name")).to_have_value("Somebody")


async def test_common_settings_are_fields_and_leave_the_other_lines_of_the_file_as_they_are(open_desk: Open) -> None:
    desk = await open_desk()
    await desk.gateway.personalities.create("pirate")
    file = desk.gateway.home / "personalities" / "pirate" / "personality.yaml"
    file.write_text("# mine\nname: Pirate\ntraits: {openness: 0.5}  # wide\n")
    page = await desk.open("/personalities/pirate")
    await expect(page.get_by_label("Name")).to_have_value("Pirate")
    await page.get_by_label("What it is for").fill("Speaks like the sea: loudly.")
    await page.get_by_label("Writes its memory").select_option("off")
    await page.get_by_label("MEMORY.md").select_option("per-user")
    await page.get_by_label("Thinks before it answers").select_option("low")
    await look_over(page)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="pirate is saved")).to_be_visible()
    saved = desk.gateway.personalities.get("pirate")
    assert (saved.description, saved.memory_writes) == ("Speaks like the sea: loudly.", "off")
    assert (saved.memory_scope, saved.thinking) == ("per-user", "low")
    assert "# mine\nname: Pirate\n" in file.read_text()
    assert "traits: {openness: 0.5}  # wide\n" in file.read_text()

    await desk.open("/personalities/pirate")
    await expect(page.get_by_label("Writes its memory")).to_have_value("off")
    await page.get_by_label("Thinks before it answers").select_option("")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="pirate is saved")).to_be_visible()
    assert "thinking" not in file.read_text()
