"""The page's manifest asks for exactly what is used, and its configurations can be used."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from slack_sdk.web.async_client import AsyncWebClient

import adapters.slack.client
from adapters.slack import Config, convert
from tests.adapters.slack.fake_slack import EVENT_SCOPES, METHOD_SCOPES, OTHER_SCOPES

PAGE = (Path(__file__).parents[3] / "docs" / "channels" / "slack.md").read_text(encoding="utf-8")
BLOCKS: list[dict[str, Any]] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
MANIFEST = next(block for block in BLOCKS if "oauth_config" in block)
BY_HTTP = next(block for block in BLOCKS if "settings" in block and block is not MANIFEST)


def called_methods() -> set[str]:
    """The Web API's methods that `client.py` calls."""
    tree = ast.parse(Path(adapters.slack.client.__file__).read_text(encoding="utf-8"))
    names = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")}
    return {name.replace("_", ".") for name in names if "_" in name and hasattr(AsyncWebClient, name)}


def test_the_fake_knows_every_method_that_is_called_and_no_other() -> None:
    assert called_methods() == set(METHOD_SCOPES)


def test_the_manifest_asks_for_exactly_the_scopes_that_are_used() -> None:
    scopes = MANIFEST["oauth_config"]["scopes"]
    used = {scope for method in called_methods() for scope in METHOD_SCOPES[method]}
    used |= {EVENT_SCOPES[event] for event in MANIFEST["settings"]["event_subscriptions"]["bot_events"]} | OTHER_SCOPES
    assert set(scopes) == {"bot"}
    assert sorted(used) == scopes["bot"]
    assert set(used) == adapters.slack.client.SCOPES


def test_the_manifest_asks_for_exactly_the_events_that_are_understood() -> None:
    events = MANIFEST["settings"]["event_subscriptions"]["bot_events"]
    assert events == sorted(EVENT_SCOPES)
    assert {event.partition(".")[0] for event in events} == convert._MESSAGE_EVENTS


def test_every_scope_is_explained() -> None:
    table = PAGE.partition("| scope | for |")[2].partition("\n\n")[0].replace("`…:history`", "history")
    for scope in MANIFEST["oauth_config"]["scopes"]["bot"]:
        assert scope in table or scope.endswith(":history")


def test_the_manifest_has_the_command_and_lets_people_write_to_the_app() -> None:
    assert [command["command"] for command in MANIFEST["features"]["slash_commands"]] == ["/ethos"]
    assert MANIFEST["features"]["app_home"]["messages_tab_enabled"]
    assert not MANIFEST["features"]["app_home"]["messages_tab_read_only_enabled"]
    assert MANIFEST["settings"]["socket_mode_enabled"]
    assert MANIFEST["settings"]["interactivity"]["is_enabled"]


def test_the_manifest_for_http_differs_only_in_the_addresses() -> None:
    for command in BY_HTTP["features"]["slash_commands"]:
        assert command.pop("url").startswith("https://")
    for section in ("event_subscriptions", "interactivity"):
        assert BY_HTTP["settings"][section].pop("request_url").startswith("https://")
    assert not BY_HTTP["settings"].pop("socket_mode_enabled")
    assert BY_HTTP["features"] == MANIFEST["features"], "what takes the place of a part is the whole part"
    assert BY_HTTP["settings"] == {
        key: value for key, value in MANIFEST["settings"].items() if key != "socket_mode_enabled"
    }


@pytest.mark.parametrize("block", [block for block in BLOCKS if "channels" in block])
def test_the_configurations_of_the_page_can_be_used(block: dict[str, Any]) -> None:
    settings = dict(block["channels"]["slack"])
    assert settings.pop("kind") == "slack"
    assert settings.pop("allow")
    secrets = {"${SLACK_BOT_TOKEN}": "xoxb-1", "${SLACK_APP_TOKEN}": "xapp-1", "${SLACK_SIGNING_SECRET}": "s"}
    Config(**{key: secrets.get(value, value) for key, value in settings.items()})


def test_every_key_is_in_the_page_with_its_default() -> None:
    table = PAGE.partition("\n## Configuration\n")[2].partition("\n## ")[0]
    for name, field in Config.model_fields.items():
        row = next(line for line in table.splitlines() if line.startswith(f"| `{name}` |"))
        default = field.default
        if default is not None and not field.is_required():
            shown = (
                str(default).lower()
                if isinstance(default, bool)
                else f"{default:g}"
                if isinstance(default, float)
                else default
            )
            assert f"| `{shown}` |" in row
