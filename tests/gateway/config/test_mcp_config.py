"""Servers of tools in the configuration: what is wrong is said with its line, and what is unwise is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import file
from gateway.config.file import Findings, check, load_config
from gateway.runtime.logs import secrets_in


def found(tmp_path: Path, server: str, name: str = "s", **environment: str) -> Findings:
    path = tmp_path / "config.yaml"
    path.touch(0o600)
    path.write_text(f"mcp:\n  servers:\n    {name}: {server}\n")
    return check(path, environment=environment)


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("{}", "s.url: missing; expected `url: …`, or `command: [program, argument, …]`"),
        ("{command: [x], url: 'http://h/mcp'}", "s.url: a server has a `command` or a `url`; expected one of the two"),
        ("{command: npx}", "s.command: 'npx' is not a list; expected a list"),
        ("{url: h/mcp}", "s.url: not a web address; expected one such as http://127.0.0.1:11434/v1"),
        ("{url: 'http://h/mcp', env: {A: b}}", "s.env: has no effect here; expected it only beside `command`"),
        ("{command: [x], headers: {A: b}}", "s.headers: has no effect here; expected it only beside `url`"),
        (
            "{url: 'http://h/mcp', sandbox: {network: none}}",
            "s.sandbox: has no effect here; expected it only beside `command`",
        ),
        ("{command: [x], oauth: gateway}", "s.oauth: has no effect here; expected it only beside `url`"),
        (
            "{url: 'http://h/mcp', oauth: nobody}",
            "s.oauth.mode: 'nobody' is not a choice; expected 'gateway', 'per_person' or 'client_credentials'",
        ),
        (
            "{url: 'http://h/mcp', headers: {authorization: b}, oauth: gateway}",
            "s.oauth: the server has `headers` with Authorization, too; expected one of the two",
        ),
        (
            "{url: 'http://h/mcp', oauth: client_credentials}",
            "s.oauth: client_credentials needs `client_id`, `client_secret` and `issuer`",
        ),
        (
            "{url: 'http://h/mcp', oauth: {mode: gateway, client_secret: '${KEY}'}}",
            "s.oauth: `client_secret` has no effect without `client_id`; add it",
        ),
        (
            "{url: 'http://h/mcp', oauth: {mode: gateway, issuer: 'https://a'}}",
            "s.oauth: `issuer` has an effect only with `mode: client_credentials`; take it out",
        ),
        (
            "{command: [x], effects: {'get_*': look}}",
            "s.effects: expected `hints`, or patterns of names with read, own, fetch or act: {'get_*': read}",
        ),
        (
            "{command: [x], sandbox: {network: no}}",
            "s.sandbox.network: 'no' is not a choice; expected 'open' or 'none'",
        ),
        (
            "{command: [x], env: {A: '${NOT_THERE}'}}",
            "s.env.A: the environment variable NOT_THERE is not set; expected",
        ),
    ],
)
def test_what_is_wrong_with_a_server_is_said_at_its_line(tmp_path: Path, server: str, problem: str) -> None:
    [line] = found(tmp_path, server, KEY="k").problems
    assert line.startswith("config.yaml:3:")
    assert f": mcp.servers.{problem}" in line


@pytest.mark.parametrize("name", ["Home", "my-server", "a__b", "_a", "a" * 33])
def test_a_name_that_tools_could_not_begin_with_is_refused(tmp_path: Path, name: str) -> None:
    [line] = found(tmp_path, "{command: [x]}", name=name).problems
    assert "not a server's name; expected 1 to 32 of a-z 0-9, with single _ between them" in line


@pytest.mark.parametrize(
    ("command", "is_warned"),
    [
        ("[npx, -y, some-server]", True),
        ("[/usr/bin/uvx, some-server]", True),
        ("[docker, run, -i, some/server]", True),
        ('[npx, -y, "@scope/some-server@1.2.3"]', False),
        ("[uvx, some-server==1.2]", False),
        ("[uvx, some-server@1.2]", False),
        ("[docker, run, -i, 'some/server:1.2']", False),
        ("[python3, server.py]", False),
    ],
)
def test_a_command_that_installs_any_version_is_warned_of(tmp_path: Path, command: str, is_warned: bool) -> None:
    warnings = found(tmp_path, f"{{command: {command}}}").warnings
    assert [line.split(": ", 2)[2].split(",")[0] for line in warnings] == ["names no version"] * is_warned


def test_secrets_come_from_elsewhere_and_are_known_as_secrets(tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("from-a-file\n")
    server = "{command: [x], env: {TOKEN: {file: token}, API_KEY: '${KEY}', TZ: UTC}}"
    assert found(tmp_path, server, KEY="from-outside") == Findings((), ())
    config = load_config(tmp_path / "config.yaml", environment={"KEY": "from-outside"}).config
    assert {"from-a-file", "from-outside"} <= set(secrets_in(config))


def test_a_secret_in_the_file_is_warned_of_and_a_plain_variable_is_not(tmp_path: Path) -> None:
    [line] = found(tmp_path, "{command: [x], env: {MY_TOKEN: abc, TZ: UTC}}").warnings
    assert "mcp.servers.s.env.MY_TOKEN: a secret is in the file" in line


def test_without_the_library_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "find_spec", lambda _name: None)
    [line] = found(tmp_path, "{command: [x]}").problems
    assert "mcp.servers: the library mcp is not installed; run `" in line
    assert "-m pip install" in line
