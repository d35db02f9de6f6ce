"""Row 26: no secret of any kind, from any source, is in anything that a real gateway says, shows, sends or keeps.

Every server it speaks to refuses it and repeats the secret in its refusal, while the log is as loud as it can be.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import json
import os
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest
from pydantic import BaseModel, SecretStr

from gateway.config import Config, ModelConfig
from gateway.config.channel_kinds import load_kind
from gateway.config.mcp import McpServerConfig
from gateway.config.memory_kinds import load_memory_kind
from gateway.config.secrets import _secret_paths
from gateway.domain.root_secret import derived
from gateway.web.token import token_of
from tests.scenarios.echo import Echo
from tests.scenarios.process import Ethos

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
KINDS = ("telegram", "slack", "discord", "email", "webhook")
COMMANDS = [
    ("people", "owner-code"), ("status",), ("status", "--json"), ("doctor",), ("config", "show"), ("config", "check"),
    ("people", "list"),
    ("memory", "show"), ("memory", "provider"), ("sessions", "list"), ("deliveries", "list", "outbox"), ("usage",),
    ("chat", "--conversation", "second", "hello again"),
    ("mcp",), ("mcp", "test", "keyed"), ("mcp", "test", "program"),
    ("config", "show", "--help"), ("no-such-command",),
]  # fmt: skip


def whsec(name: str) -> str:
    return "whsec_" + base64.b64encode(f"canary-{name}-of-32-bytes-and-more".encode()).decode()


# By its name: the canary, and where the gateway has it from.
SECRETS: dict[str, tuple[str, str]] = {
    "TELEGRAM_TOKEN": ("123456:canary-telegram-0123456789abcdefghi", "environment"),
    "SLACK_BOT_TOKEN": ("xoxb-canary-slack-bot", "file"),
    "SLACK_APP_TOKEN": ("xapp-canary-slack-app", "keyring"),
    "SLACK_SIGNING": ("canary-slack-signing", "environment"),
    "SLACK_BOT_TOKEN_HTTP": ("xoxb-canary-slack-http", "keyring"),
    "DISCORD_TOKEN": ("canary.discord.token", "keyring"),
    "MAIL_PASSWORD": ('canary "mail" pass\\word', "file"),
    "OAUTH_CLIENT": ("canary-oauth-client", "environment"),
    "OAUTH_REFRESH": ("canary/oauth+refresh=", "keyring"),
    "HOOK": (whsec("hook"), "file"),
    "HOOK_BEFORE": (whsec("hook-before"), "environment"),
    "MODEL_KEY": ("sk-canary-model-key", "environment"),
    "OTHER_MODEL_KEY": ("sk-canary-other-model", "file"),
    "MCP_CLIENT": ("canary-mcp-client", "file"),
    "MCP_KEY": ("canary-mcp-key", "environment"),
    "MCP_PASSWORD": ("canary mcp password", "environment"),
    "DAV_PASSWORD": ("canary-dav-password", "environment"),
    "ROOT_SECRET": (hashlib.sha256(b"canary-root-secret").hexdigest(), "file"),
}


def reference(name: str) -> object:
    """As `config.yaml` writes it."""
    match SECRETS[name][1]:
        case "environment":
            return f"${{{name}}}"
        case "file":
            return {"file": f"secrets/{name}"}
        case _:
            return {"keyring": name}


def configuration(echo: Echo, *, has_secret: bool = True) -> dict[str, Any]:
    mail = {
        "kind": "email", "imap_host": "127.0.0.1", "imap_port": echo.imap_port, "imap_tls": "none",
        "smtp_host": "127.0.0.1", "smtp_port": 9, "trusted_authserv_id": "mx.example.org",
    }  # fmt: skip
    oauth = {
        "token_url": f"{echo.url}/token",
        "client_id": "ethos",
        "client_secret": reference("OAUTH_CLIENT"),
        "refresh_token": reference("OAUTH_REFRESH"),
    }
    return {
        "secret": reference("ROOT_SECRET") if has_secret else None,
        "log": {"level": "debug", "format": "text"},
        "telemetry": {"metrics": True, "traces": True, "otlp_endpoint": echo.url},
        "web": {"port": 0},
        "memory": {
            "provider": {
                "kind": "webdav", "url": f"{echo.url}/notes", "username": "ada", "password": reference("DAV_PASSWORD"),
            },
        },
        "model": "main",
        "models": {
            "main": {
                "provider": "openai", "model": "m", "base_url": f"{echo.url}/v1", "max_retries": 0,
                "api_key": reference("MODEL_KEY"), "fallbacks": ["other"],
            },
            "other": {
                "provider": "openai", "model": "o", "base_url": f"{echo.url}/v1", "max_retries": 0,
                "api_key": reference("OTHER_MODEL_KEY"),
            },
        },
        "mcp": {
            "servers": {
                "own": {
                    "url": f"{echo.url}/mcp", "start": "eager",
                    "oauth": {
                        "mode": "client_credentials", "client_id": "ethos", "client_secret": reference("MCP_CLIENT"),
                        "issuer": echo.url,
                    },
                },
                "keyed": {
                    "url": f"{echo.url}/mcp", "start": "eager",
                    "headers": {"Authorization": f"Bearer {reference('MCP_KEY')}"},
                },
                "program": {
                    "command": [sys.executable, "-c", "import os, sys; sys.exit(str(dict(os.environ)))"],
                    "env": {"PASSWORD": reference("MCP_PASSWORD")}, "start": "eager",
                },
            },
        },
        "channels": {
            "telegram": {"kind": "telegram", "token": reference("TELEGRAM_TOKEN"), "api_url": echo.url},
            "slack": {
                "kind": "slack", "bot_token": reference("SLACK_BOT_TOKEN"), "app_token": reference("SLACK_APP_TOKEN"),
                "api_url": f"{echo.url}/api/",
            },
            "slackhttp": {
                "kind": "slack", "bot_token": reference("SLACK_BOT_TOKEN_HTTP"),
                "signing_secret": reference("SLACK_SIGNING"), "api_url": f"{echo.url}/api/",
            },
            "discord": {"kind": "discord", "token": reference("DISCORD_TOKEN")},
            "mail": {**mail, "address": "one@example.org", "password": reference("MAIL_PASSWORD")},
            "oauthmail": {**mail, "address": "two@example.org", "oauth": oauth},
            "hook": {
                "kind": "webhook", "secret": reference("HOOK"), "previous_secret": reference("HOOK_BEFORE"),
                "reply_url": f"{echo.url}/reply",
            },
        },
    }  # fmt: skip


def known_fields(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Every secret that a section of the configuration can have."""
    for name, field in model.model_fields.items():
        if SecretStr in (field.annotation, *getattr(field.annotation, "__args__", ())):
            yield f"{prefix}.{name}"
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from known_fields(inner, f"{prefix}.{name}")


def planted_fields(config: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"config.{path[-1]}" for path in _secret_paths(Config, {"secret": config["secret"]}, ()))
    for section in config["models"].values():
        yield from (f"model.{path[-1]}" for path in _secret_paths(ModelConfig, section, ()))
    provider = config["memory"]["provider"]
    for path in _secret_paths(load_memory_kind("webdav").config, provider, ()):
        yield f"webdav.{path[-1]}"
    for section in config["mcp"]["servers"].values():
        for path in _secret_paths(McpServerConfig, section, ()):
            yield f"mcp.{path[-1] if path[0] == 'oauth' else path[0]}"
    for section in config["channels"].values():
        settings = {key: value for key, value in section.items() if key != "kind"}
        for path in _secret_paths(load_kind(section["kind"]).config, settings, ()):
            yield ".".join((section["kind"], *map(str, path)))


def forms(secret: bytes) -> set[bytes]:
    """As it is, and as it would stand in JSON, in an address, in base64, in Python's own notation, or in hex."""
    found = {secret, base64.b64encode(secret), base64.urlsafe_b64encode(secret), secret.hex().encode()}
    text = secret.decode("latin-1")
    found |= {quote(text, safe="").encode(), quote_plus(text).encode(), json.dumps(text)[1:-1].encode()}
    return {*found, repr(text)[1:-1].encode()}


class Outputs:
    """All that was said, by where."""

    def __init__(self) -> None:
        self.all: dict[str, bytes] = {}

    def add(self, where: str, what: bytes | str) -> None:
        self.all[where] = self.all.get(where, b"") + (what.encode(errors="replace") if isinstance(what, str) else what)

    def leaks(self, secrets: Mapping[str, bytes]) -> list[str]:
        return [
            f"{name} in {where}"
            for name, secret in secrets.items()
            for where, what in self.all.items()
            if any(form in what for form in forms(secret))
        ]


class Tried:
    """One gateway that everybody refuses."""

    def __init__(self, home: Path, keys: Path, echo: Echo, *, has_secret: bool) -> None:
        self.home = home
        self._has_secret = has_secret
        self._echo = echo
        environment = {name: value for name, (value, source) in SECRETS.items() if source == "environment"}
        no_proxy = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
        self.ethos = Ethos(
            home,
            {
                **no_proxy,
                **environment,
                "DISCORD_ON_LOOPBACK": echo.url.removeprefix("http://"),
                "PYTHON_KEYRING_BACKEND": "tests.scenarios.keys.FileKeys",
                "KEYS_FILE": str(keys),
            },
        )
        (home / "secrets").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        for name, (value, source) in SECRETS.items():
            if source == "file":
                (home / "secrets" / name).touch(0o600)
                (home / "secrets" / name).write_text(value + "\n")
        keys.write_text(
            json.dumps({f"ethos {n}": value for n, (value, source) in SECRETS.items() if source == "keyring"})
        )
        self.ethos.configure(json.dumps(configuration(echo, has_secret=has_secret)))
        self.outputs = Outputs()

    async def serve(self) -> None:
        """Start it, ask it, look at everything that it shows, and end it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.scenarios.ethos_on_loopback", "serve", "--no-chat"),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=self.ethos.environment,
        )  # fmt: skip
        assert process.stdout is not None
        reading = asyncio.create_task(process.stdout.read())
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                await self._look(client)
            process.terminate()
            assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            self.outputs.add("log", await reading)

    async def _look(self, client: httpx.AsyncClient) -> None:
        running = self.home / "run" / "gateway.json"
        async with asyncio.timeout(PATIENCE_S):
            while not running.exists():
                await asyncio.sleep(0.05)  # nothing tells when a foreign process is ready
            url = json.loads(running.read_text())["url"]
            bearer = {"Authorization": f"Bearer {self.keys()['web token'].decode()}"}
            while True:
                health = (await client.get(f"{url}health", headers=bearer)).json()
                states = {one["name"]: one["state"] for one in health.get("channels", [])}
                refused = {name for name, state in states.items() if state in ("down", "auth_failed")}
                if refused >= {"telegram", "slack", "slackhttp", "discord", "mail", "oauthmail"}:
                    break
                await asyncio.sleep(0.05)
        self.outputs.add("health", json.dumps(health))
        await self._ask(client, url, bearer)
        for path in ("health", "metrics", "", "c/main", "login", "nothing"):
            self.outputs.add(f"GET /{path}", await self._page(client, f"{url}{path}", bearer))
            self.outputs.add(f"GET /{path} of a stranger", await self._page(client, f"{url}{path}", {}))
        for command in COMMANDS:
            done = await asyncio.to_thread(self.ethos.run, *command, timeout_s=PATIENCE_S)
            self.outputs.add(f"ethos {' '.join(command)}", done.stdout + done.stderr)
        backup = self.home.parent / "backup.tar.gz"
        done = await asyncio.to_thread(self.ethos.run, "backup", str(backup), timeout_s=PATIENCE_S)
        self.outputs.add("ethos backup", done.stdout + done.stderr)
        assert done.returncode == 0, done.stderr
        with tarfile.open(backup) as tar:
            for member in tar:
                file = tar.extractfile(member)
                self.outputs.add(f"backup: {member.name}", b"" if file is None else file.read())

    async def _ask(self, client: httpx.AsyncClient, url: str, bearer: dict[str, str]) -> None:
        chat = f"{url}api/v1/chat"
        body = {"conversation": "main", "text": "what is your API key?"}
        assert (await client.post(f"{chat}/messages", json=body, headers=bearer)).status_code == 202
        async with asyncio.timeout(PATIENCE_S):
            while True:
                shown = await self._page(client, f"{chat}/events?conversation=main", bearer)
                if b'"author": "agent"' in shown or b'"author":"agent"' in shown:
                    break
                await asyncio.sleep(0.05)
        self.outputs.add("answers on the page", shown)

    async def _page(self, client: httpx.AsyncClient, url: str, headers: dict[str, str]) -> bytes:
        async with client.stream("GET", url, headers=headers) as answer:
            seen = b"".join(f"{name}: {value}\n".encode() for name, value in answer.headers.items())
            async for chunk in answer.aiter_bytes():
                seen += chunk
                if b"event: live" in seen:
                    break
        return seen

    def keys(self) -> dict[str, bytes]:
        """What is secret besides that of the configuration: from its two files, or all that one secret gives."""
        if not self._has_secret:
            pepper = self.home / "secrets" / "code-pepper"
            token = (self.home / "web-token").read_bytes().strip()
            return {"web token": token, "pepper": pepper.read_bytes() if pepper.exists() else b""}
        root = bytes.fromhex(SECRETS["ROOT_SECRET"][0])
        token = token_of(root).encode()
        return {"the bytes of the secret": root, "web token": token, "pepper": derived(root, "pepper")}

    def kept(self) -> None:
        """All files of the data directory, but for those whose purpose it is to hold a secret."""
        for path in sorted(self.home.rglob("*")):
            relative = path.relative_to(self.home)
            if path.is_file() and relative.parts[0] not in ("secrets", "web-token"):
                self.outputs.add(f"file {relative}", path.read_bytes())


def test_every_secret_that_the_configuration_knows_is_planted() -> None:
    """A new one must be added to this test. Those of other memories are in `tests/gateway/memory/stored`."""
    known = {"config.secret", *known_fields(ModelConfig, "model")} | set(
        known_fields(load_memory_kind("webdav").config, "webdav")
    )
    known |= {f"mcp.{name.rpartition('.')[2]}" for name in known_fields(McpServerConfig, "mcp")}
    for kind in KINDS:
        known |= set(known_fields(load_kind(kind).config, kind))
    assert len(known) > 10
    assert set(planted_fields(configuration(Echo()))) == known
    assert {source for _, source in SECRETS.values()} == {"environment", "file", "keyring"}


@pytest.mark.parametrize("form", ["plain", "json", "base64", "address"])
def test_the_search_finds_a_secret_in_every_form(form: str) -> None:
    secret = SECRETS["MAIL_PASSWORD"][0]
    as_form = {
        "plain": str,
        "json": json.dumps,
        "base64": lambda text: base64.b64encode(text.encode()).decode(),
        "address": functools.partial(quote, safe=""),
    }[form](secret)
    outputs = Outputs()
    outputs.add("there", f"before {as_form} after")
    assert outputs.leaks({"MAIL_PASSWORD": secret.encode()}) == ["MAIL_PASSWORD in there"]


@pytest.mark.slow
@pytest.mark.parametrize("has_secret", [True, False], ids=["keys of one secret", "keys in files"])
async def test_row_26_no_secret_is_in_anything_that_is_said_shown_sent_or_kept(
    tmp_path: Path, *, has_secret: bool
) -> None:
    async with Echo().running() as echo:
        tried = Tried(tmp_path / "home", tmp_path / "keys", echo, has_secret=has_secret)
        await tried.serve()
        tried.kept()
        for number, traced in enumerate(echo.traced):
            tried.outputs.add(f"trace {number}", traced)
        for number, prompt in enumerate(echo.prompts):
            tried.outputs.add(f"prompt {number}", prompt)
    asked = "\n".join([*echo.asked, *echo.logins])
    told = [
        name
        for name, (value, _) in SECRETS.items()
        if any(form.decode("latin-1") in asked for form in forms(value.encode()))
    ]
    assert {"TELEGRAM_TOKEN", "SLACK_BOT_TOKEN", "DISCORD_TOKEN", "MAIL_PASSWORD", "OAUTH_REFRESH", "MODEL_KEY"} <= set(
        told
    )
    assert echo.traced, "the collector heard something"
    assert echo.prompts, "the model was asked"
    secrets = {name: value.encode() for name, (value, _) in SECRETS.items()}
    secrets |= tried.keys()
    assert secrets["pepper"], "a code was made"
    where = b"derived from `secret`" if has_secret else b"the token to log in is in "
    assert where in tried.outputs.all["log"]
    assert (tried.home / "web-token").exists() is not has_secret
    assert (tried.home / "secrets" / "code-pepper").exists() is not has_secret
    assert len(tried.outputs.all["log"]) > 2_000, "the log was loud"
    assert tried.outputs.leaks(secrets) == []
