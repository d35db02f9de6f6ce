"""The page of servers of tools, in a real browser: one is added, its tools are accepted as they were seen, it goes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.async_api import Page, expect

from gateway.mcp.tokens import Account
from tests.browser.dashboard.conftest import Open, look_over
from tests.mcp_servers import misbehaving

pytestmark = pytest.mark.browser
SCRIPT = misbehaving.__file__
FOLDER = str(Path(SCRIPT).parent)


def configured(mode: str = "", **more: Any) -> dict[str, Any]:
    return {"servers": {"notes": {"command": [sys.executable, SCRIPT, mode], "sandbox": {"read": [FOLDER]}, **more}}}


def row(page: Page, name: str) -> Any:
    return page.locator("tbody tr").filter(has=page.get_by_role("rowheader", name=name, exact=False))


async def test_a_program_is_added_accepted_and_removed(open_desk: Open) -> None:
    desk = await open_desk()
    config = desk.gateway.home / "config.yaml"
    before = config.read_text()
    page = await desk.open("/servers")
    await expect(page.get_by_role("heading", name="There are no servers of tools")).to_be_visible()
    await look_over(page)
    await page.get_by_role("link", name="Add a server").click()
    form = page.get_by_role("form", name="A program on this machine")
    await form.get_by_label("Name").fill("notes")
    await form.get_by_label("Command").fill(f"{shlex.quote(sys.executable)} {shlex.quote(SCRIPT)} 'unclosed")
    await form.get_by_label("Variables").fill("API_TOKEN=canary\nMODE=fast")
    await form.get_by_label("Further ones that it may read").fill(FOLDER)
    await form.get_by_role("button", name="Add the program").click()
    await expect(form.get_by_role("alert")).to_contain_text("close each quote that you open")
    await expect(form.get_by_label("Variables")).to_have_value("API_TOKEN=canary\nMODE=fast")
    await look_over(page)
    await form.get_by_label("Command").fill(f"{shlex.quote(sys.executable)} {shlex.quote(SCRIPT)}")
    await form.get_by_role("button", name="Add the program").click()
    await expect(page.get_by_role("status").filter(has_text="notes is added. the secret of")).to_be_visible()
    assert "canary" not in config.read_text()
    echo = row(page, "notes__echo")
    await expect(echo).to_contain_text("acts on the world")
    await expect(echo).to_contain_text("Withheld: new")
    await expect(echo).to_contain_text("Says it again.")
    await look_over(page)
    await echo.get_by_role("button", name="Accept notes__echo").click()
    await expect(echo).to_contain_text("Accepted")
    await expect(page.get_by_role("status").filter(has_text="The agent has 1 tool more.")).to_be_visible()
    await page.get_by_role("button", name="Accept all 16 that are withheld").click()
    await expect(page.get_by_role("status").filter(has_text="The agent has 16 tools more.")).to_be_visible()
    assert len(desk.gateway.mcp.tools) == 17
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("heading", name="Remove notes?")).to_be_visible()
    assert "notes" in config.read_text()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("heading", name="There are no servers of tools")).to_be_visible()
    assert config.read_text() == before
    assert desk.gateway.mcp.names == []


async def test_a_change_is_shown_and_only_what_was_seen_is_accepted(open_desk: Open) -> None:
    desk = await open_desk(mcp=configured())
    servers = desk.gateway.mcp
    await servers.test("notes")
    page = await desk.open("/servers/of/notes")
    echo = row(page, "notes__echo")
    await expect(echo).to_contain_text("Withheld: new")
    connection = await servers._servers[Account("notes")].connected()
    await connection.call("change", {}, timeout_s=10)
    while "Says it twice." not in {one.definition.description for one in servers.view("notes").tools}:
        await connection.call("echo", {"text": "tea"}, timeout_s=10)
    await echo.get_by_role("button", name="Accept notes__echo").click()
    await expect(page.get_by_role("alert")).to_contain_text("the tool notes__echo changed since you looked")
    assert list(servers.tools) == []
    await expect(echo).to_contain_text("Says it twice.")
    await echo.get_by_role("button", name="Accept notes__echo").click()
    await expect(echo).to_contain_text("Accepted")
    definition = servers.view("notes").tools[0].definition
    assert [tool.name for tool in servers.tools] == ["notes__echo"], definition


async def test_what_changed_since_it_was_accepted_stands_on_the_page(open_desk: Open) -> None:
    desk = await open_desk(mcp=configured())
    servers = desk.gateway.mcp
    await servers.test("notes")
    await servers.accept("notes")
    connection = await servers._servers[Account("notes")].connected()
    await connection.call("change", {}, timeout_s=10)
    while any(tool.name == "notes__echo" for tool in servers.tools):
        await connection.call("echo", {"text": "tea"}, timeout_s=10)
    page = await desk.open("/servers")
    await expect(page.get_by_role("row").filter(has_text="notes")).to_contain_text("2 withheld")
    await page.get_by_role("link", name="notes").click()
    echo = row(page, "notes__echo")
    await expect(echo).to_contain_text("Withheld: changed")
    await expect(echo.get_by_label("Difference").locator("del")).to_have_text("-Says it again.")
    await expect(echo.get_by_label("Difference").locator("ins")).to_have_text("+Says it twice.")
    await look_over(page)
    await page.get_by_role("button", name="Accept all 2 that are withheld").click()
    await expect(echo).to_contain_text("Accepted")


async def test_a_server_that_is_down_shows_its_last_words(open_desk: Open) -> None:
    desk = await open_desk(mcp=configured("exits", env={"TOKEN": "canary"}))
    page = await desk.open("/servers/of/notes")
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_role("alert")).to_contain_text("the server notes is not reachable now")
    await expect(page.get_by_label("What it said last")).to_have_text("No such account: ***")
    await expect(page.get_by_role("region", name="State")).to_contain_text("Not reachable")
    await look_over(page)
    await page.goto(f"{desk.url}/dashboard/servers")
    await expect(page.get_by_role("row").filter(has_text="notes")).to_contain_text("exit code 3")
    await look_over(page)


async def test_an_address_that_is_wrong_is_refused_beside_the_form(open_desk: Open) -> None:
    desk = await open_desk()
    before = (desk.gateway.home / "config.yaml").read_text()
    page = await desk.open("/servers/add")
    form = page.get_by_role("form", name="A server at an address")
    await form.get_by_label("Name").fill("home")
    await form.get_by_label("Address").fill("ftp://127.0.0.1/")
    await form.get_by_label("Headers").fill("Authorization: Bearer ${NOT_HERE_AT_ALL}")
    await form.get_by_role("button", name="Add the address").click()
    await expect(form.get_by_role("alert")).to_contain_text("mcp.servers.home.url")
    await expect(form.get_by_role("alert")).to_contain_text("NOT_HERE_AT_ALL is not set")
    await expect(form.get_by_label("Address")).to_have_value("ftp://127.0.0.1/")
    assert (desk.gateway.home / "config.yaml").read_text() == before


async def test_all_keys_can_be_set_and_what_is_wrong_is_named(open_desk: Open) -> None:
    desk = await open_desk()
    config = desk.gateway.home / "config.yaml"
    before = config.read_text()
    page = await desk.open("/servers/add")
    form = page.get_by_role("form", name="A program on this machine")
    await expect(form.get_by_label("Seconds for one call")).to_be_hidden()
    await form.get_by_label("Name").fill("notes")
    await form.get_by_label("Command").fill(f"{shlex.quote(sys.executable)} {shlex.quote(SCRIPT)}")
    await form.get_by_label("Further ones that it may read").fill(FOLDER)
    await form.get_by_text("Advanced").click()
    await form.get_by_label("Tools that you want").fill("ec*\nadd")
    await form.get_by_label("What its tools may do").fill("ec*=sing")
    await form.get_by_label("Who may say yes to a call").select_option("asker")
    await form.get_by_label("Started").select_option("eager")
    await form.get_by_label("Protocol").select_option("legacy")
    await form.get_by_label("What it returns does not count").check()
    await form.get_by_label("Show the model what it says of itself").check()
    await form.get_by_label("Seconds for one call").fill("12")
    await form.get_by_role("button", name="Add the program").click()
    await expect(form.get_by_role("alert")).to_contain_text("What its tools may do: ec*=sing: expected one of read,")
    await look_over(page)
    await form.get_by_label("What its tools may do").fill("ec*=read")
    await form.get_by_label("Seconds for one call").evaluate("field => { field.type = 'text'; field.value = '900'; }")
    await form.get_by_role("button", name="Add the program").click()
    await expect(form.get_by_role("alert")).to_contain_text("Seconds for one call: Input should be less than or equal")
    assert config.read_text() == before
    await form.get_by_label("Seconds for one call").fill("12")
    await form.get_by_role("button", name="Add the program").click()
    await expect(page.get_by_role("status").filter(has_text="notes is added.")).to_be_visible()
    assert yaml.safe_load(config.read_text())["mcp"]["servers"]["notes"] == {
        "command": [sys.executable, SCRIPT],
        "sandbox": {"read": [FOLDER]},
        "effects": {"ec*": "read"},
        "trusted": True,
        "instructions": True,
        "tools": ["ec*", "add"],
        "start": "eager",
        "protocol": "legacy",
        "approver": "asker",
        "timeout_s": 12.0,
    }
