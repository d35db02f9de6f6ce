"""Servers of the Model Context Protocol, as they are configured."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator

from gateway.config.values import Seconds, Section, Text, WebAddress

MAX_NAME_CHARS = 32
_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_EFFECTS = ("read", "own", "fetch", "act")
# Programs that install what they run; the words of their commands name a package, and its version or none.
_INSTALLERS = frozenset({"bunx", "deno", "docker", "npx", "pipx", "pnpm", "podman", "uvx", "yarn"})
_VERSION = re.compile(r"(?:@v?|==|:v?)\d|@sha256:")

_SECRET_NAME = re.compile(r"auth|cookie|credential|key|pass|secret|token", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether the name of a header or a variable says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def _server_name(value: str) -> str:
    if not _NAME.fullmatch(value) or len(value) > MAX_NAME_CHARS:
        raise ValueError(f"not a server's name; expected 1 to {MAX_NAME_CHARS} of a-z 0-9, with single _ between them")
    return value


def _effects(value: Any) -> Any:
    if value == "hints":
        return value
    is_good = isinstance(value, dict) and all(each in _EFFECTS for each in value.values())
    if not is_good:
        raise ValueError("expected `hints`, or patterns of names with read, own, fetch or act: {'get_*': read}")
    return value


class McpSandboxConfig(Section):
    """What the process of a server may touch, besides a directory of its own.

    Attributes:
        write: files and directories that it may change; relative ones are below the data directory.
        read: further ones that it may read, such as those of a program that is not installed for everybody.
    """

    write: tuple[Text, ...] = ()
    read: tuple[Text, ...] = ()
    network: Literal["open", "none"] = "open"


class McpServerConfig(Section):
    """One server, by the name it has in `mcp.servers`: a command that is started here, or an address.

    Attributes:
        command: the program and its arguments.
        url: of a server that speaks streamable HTTP.
        headers: sent with each request to `url`.
        env: all variables of the command, besides four of the gateway's.
        effects: the class of tools by patterns of their names, the first that fits; `hints` believes the server.
        trusted: what its tools return is not words of others.
        instructions: the model is shown what the server says of itself, once that is accepted.
        tools: patterns of those that are wanted; None: all.
        start: `eager` starts it with the gateway, else it is started by the first call.
        protocol: which era of it the server speaks; `auto` finds out.
        approver: who may say yes to a call.
        timeout_s: of one call.
    """

    command: tuple[str, ...] = ()
    url: WebAddress | None = None
    headers: dict[Text, SecretStr] = Field(default_factory=dict)
    env: dict[Text, SecretStr] = Field(default_factory=dict)
    sandbox: McpSandboxConfig = Field(default_factory=McpSandboxConfig)
    effects: Annotated[Literal["hints"] | dict[Text, Any], BeforeValidator(_effects)] = Field(default_factory=dict)
    trusted: bool = False
    instructions: bool = False
    tools: tuple[Text, ...] | None = None
    start: Literal["on_need", "eager"] = "on_need"
    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto"
    approver: Literal["owner", "asker"] = "owner"
    timeout_s: Annotated[Seconds, Field(le=600)] = 60

    @field_validator("url")
    @classmethod
    def _is_one_of_two(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("command"):
            raise ValueError("a server has a `command` or a `url`; expected one of the two")
        if value is None and info.data.get("command") == ():
            raise ValueError("missing; expected `url: …`, or `command: [program, argument, …]`")
        return value

    @field_validator("headers", "env", "sandbox")
    @classmethod
    def _has_effect(cls, value: Any, info: ValidationInfo) -> Any:
        is_for = "url" if info.field_name == "headers" else "command"
        is_set = value != McpSandboxConfig() if isinstance(value, Section) else bool(value)
        if is_set and is_for in info.data and not info.data[is_for]:
            raise ValueError(f"has no effect here; expected it only beside `{is_for}`")
        return value

    @property
    def is_command(self) -> bool:
        """Whether it is a process of ours."""
        return bool(self.command)

    @property
    def lacks_version(self) -> bool:
        """Whether its command installs whatever version there is today."""
        if not self.command or self.command[0].rpartition("/")[2] not in _INSTALLERS:
            return False
        return not any(_VERSION.search(word) for word in self.command[1:])


class McpConfig(Section):
    """The Model Context Protocol.

    Attributes:
        serve: programs of others reach memory, sessions and agent at `/mcp`.
        servers: those whose tools the agent has, by name.
    """

    serve: bool = False
    servers: dict[Annotated[Text, AfterValidator(_server_name)], McpServerConfig] = Field(default_factory=dict)

    @property
    def has_commands(self) -> bool:
        """Whether any of them is a process of ours."""
        return any(server.is_command for server in self.servers.values())
