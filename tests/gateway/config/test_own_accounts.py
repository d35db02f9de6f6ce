"""Row 9: two holders of one login are refused, by the check and at the start, and the login is not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.file import check, load_config
from gateway.errors import ConfigError

TELEGRAM = {"kind": "telegram", "token": "4711:SECRET-a"}
SLACK = {"kind": "slack", "bot_token": "xoxb-SECRET-a", "app_token": "xapp-SECRET-a"}
DISCORD = {"kind": "discord", "token": "NDcxMQ.SECRET.a"}
MAIL = {
    "kind": "email", "address": "agent@example.org", "imap_host": "imap.example.org",
    "smtp_host": "smtp.example.org", "password": "SECRET-a", "trusted_authserv_id": "mx.example.org",
}  # fmt: skip
HOOK = {"kind": "webhook", "secret": "whsec_" + "SECRETa1" * 4, "reply_url": "https://example.org/replies"}
SAME = {
    "a webhook's secret": (HOOK, {"reply_url": "https://example.org/other"}),
    "a webhook's former secret": (
        HOOK,
        {"secret": "whsec_" + "SECRETb1" * 4, "previous_secret": HOOK["secret"], "reply_url": "https://example.org/b"},
    ),
    "a bot of Telegram": (TELEGRAM, {}),
    "its new token": (TELEGRAM, {"token": "4711:SECRET-b"}),
    "by another server": (TELEGRAM, {"api_url": "https://bots.example.org"}),
    "by the package's whole name": (TELEGRAM, {"kind": "adapters.telegram"}),
    "an installation in Slack": (SLACK, {"app_token": "xapp-SECRET-b"}),
    "an app in Socket Mode": (SLACK, {"bot_token": "xoxb-SECRET-b"}),
    "over HTTP": ({**SLACK, "app_token": None, "signing_secret": "SECRET-s"}, {}),
    "a bot of Discord": (DISCORD, {"message_content": False}),
    "its new token there": (DISCORD, {"token": "NDcxMQ.SECRET.b"}),
    "a mailbox": (MAIL, {"display_name": "Other", "password": "SECRET-b"}),
    "a mailbox, otherwise spelt": (MAIL, {"imap_host": "IMAP.example.org", "mailbox": "inbox", "imap_port": 1993}),
}
APART = {
    "webhooks": (HOOK, {"secret": "whsec_" + "SECRETb1" * 4}),
    "bots of Telegram": (TELEGRAM, {"token": "4712:SECRET-a"}),
    "apps of Slack": (SLACK, {"bot_token": "xoxb-SECRET-b", "app_token": "xapp-SECRET-b"}),
    "workspaces of one app over HTTP": (
        {**SLACK, "app_token": None, "signing_secret": "SECRET-s"},
        {"bot_token": "xoxb-SECRET-b"},
    ),
    "bots of Discord": (DISCORD, {"token": "NDcxMg.SECRET.a"}),
    "folders of a mailbox": (MAIL, {"mailbox": "Support"}),
    "mailboxes": (MAIL, {"username": "other"}),
    "one that is off": (TELEGRAM, {"enabled": False}),
}


def written(path: Path, one: dict[str, Any], changes: dict[str, Any]) -> Path:
    channels = {"first": one, "between": {"kind": "tests.fake_channel"}, "second": {**one, **changes}}
    present = {name: {k: v for k, v in section.items() if v is not None} for name, section in channels.items()}
    path = path / "config.yaml"
    path.write_text(yaml.safe_dump({"channels": present}, sort_keys=False))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("what", SAME)
def test_two_channels_with_one_login_are_refused_by_both_names(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, *SAME[what])
    (problem,) = check(path, environment={}).problems
    assert "second" in problem
    assert "the same login or secret as the channel first; expected one of its own" in problem
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment={})
    monkeypatch.setenv("ETHOS_HOME", str(tmp_path))
    runner = CliRunner()
    for command in (["config", "check"], ["serve", "--no-chat"]):
        result = runner.invoke(app, command)
        assert result.exit_code != 0
        said = " ".join((result.output + str(result.exception)).split())
        assert "SECRET" not in said
        assert "the same login or secret as the channel first" in said or command[0] == "serve"
    assert "SECRET" not in str(caught.value)
    assert "the same login" in str(caught.value)


@pytest.mark.parametrize("what", APART)
def test_logins_that_can_be_used_side_by_side_are_not_refused(what: str, tmp_path: Path) -> None:
    assert check(written(tmp_path, *APART[what]), environment={}).problems == ()
