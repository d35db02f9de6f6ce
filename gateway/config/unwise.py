"""What of a configuration works and is not wise."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.config.channel_kinds import load_kind
from gateway.config.mcp import names_secret
from gateway.config.secrets import unused_secrets
from gateway.config.workers import OFF
from gateway.domain.personalities import BrokenPersonality, Personalities
from gateway.files.positions.validation import did_you_mean, shown
from gateway.files.positions.yaml import KeyPath, MarkedYaml, value_at

if TYPE_CHECKING:
    from gateway.config.file import _Reading


def warn(config: Config, reading: _Reading) -> None:
    """Note what is unwise in the file."""
    warned = reading.warned
    literal = literals(reading)
    for path in literal:
        advice = "a secret is in the file; better as `${ENV_VAR}`, `{file: path}` or `{keyring: name}`"
        warned.complain(path, advice)
    if literal and reading.path.exists() and (mode := stat.S_IMODE(reading.path.stat().st_mode)) & 0o077:
        warned.complain((), f"other users may read the secrets in this file ({mode:04o}); `chmod 600 {reading.path}`")
    for name, channel in config.channels.items():
        path = ("channels", name)
        if not channel.enabled:
            continue
        modes = {channel.access, channel.access_in_groups or channel.access}
        if channel.access == "allowlist" and not channel.allow:
            warned.complain(path, "owners only may talk here; put the ids of people into `allow`, or set `pairing`")
        if channel.allow and not modes & {"allowlist", "pairing"}:
            text = f"has no effect, for `access` is `{channel.access}`; set `access: allowlist`"
            warned.complain((*path, "allow"), text)
        host = load_kind(channel.kind).public_host(channel.settings)
        if host is not None and host not in config.web.allowed_hosts:
            text = f"is called as {host}, which `web.allowed_hosts` lacks; add it, unless your proxy sends another name"
            warned.complain(path, text)
    if not _is_loopback(config.web.host):
        warned.complain(("web", "host"), "other machines can reach the web server; put one with TLS in front of it")
    if config.log.message_text:
        effect = "at the level debug, which is not set" if config.log.level != "debug" else "in the log"
        warned.complain(("log", "message_text"), f"what people write is shown {effect}; set it to false when done")
    _warn_of_servers(config, warned)


def about_files(config: Config, home: Path) -> Iterator[str]:
    """What is unwise in the files around it, one line each."""
    for personality in Personalities(home).list():
        if isinstance(personality, BrokenPersonality):
            yield f"the personality {personality.id} cannot be used: {personality.reason}"
        elif personality.model is not None and personality.model not in config.models:
            near = did_you_mean(personality.model, config.models)
            text = f"the personality {personality.id} asks for the model {shown(personality.model)}"
            yield f"{text}, which is not among `models`{near}"
    for left in unused_secrets(home, Config.model_fields):
        yield f"{left}: no key names this file; delete it"


def literals(reading: _Reading) -> list[KeyPath]:
    """Where a secret stands in the file itself."""
    paths = [path for path, origin in reading.origins.items() if not origin and path not in reading.expanded]
    return [path for path in paths if not _is_open_address(path, reading.document) and not _is_plain(path)]


def _warn_of_servers(config: Config, warned: MarkedYaml) -> None:
    for name, server in config.mcp.servers.items():
        if server.lacks_version:
            text = "names no version, so what it runs may change with each start; expected one such as …@1.2.3"
            warned.complain(("mcp", "servers", name, "command"), text)


def _is_open_address(path: KeyPath, document: MarkedYaml) -> bool:
    """Whether it is the address of a server that could hold a password, and does not."""
    value = value_at(document.values, path)
    if path == ("store", "listen_url") and value == OFF:
        return True
    if (path[:2] != ("memory", "provider") and path[0] != "store") or not isinstance(value, str) or "://" not in value:
        return False
    return "password" not in value and ":" not in value.partition("://")[2].rpartition("@")[0]


def _is_plain(path: KeyPath) -> bool:
    """Whether it is a header or a variable of a server of tools whose name says that it is no secret."""
    return path[:2] == ("mcp", "servers") and not names_secret(str(path[-1]))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
