"""Servers of the Model Context Protocol, as they are configured."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

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


class McpOauthConfig(Section):
    """How the gateway signs in to a server.

    Attributes:
        mode: `gateway`: one account for all people, to which the operator signs in; `per_person`: an account for each
            person; `client_credentials`: the gateway shows its own secret, and nobody signs in.
        client_id: the gateway's name there; None: it registers itself.
        client_secret: that belongs to it.
        scopes: those that are asked for; empty: what the server names.
        issuer: the authorization server that is shown the secret of `client_credentials`, and no other is.
    """

    mode: Literal["gateway", "per_person", "client_credentials"]
    client_id: Text | None = None
    client_secret: SecretStr | None = None
    scopes: tuple[Text, ...] = ()
    issuer: WebAddress | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.mode == "client_credentials" and not (self.client_id and self.client_secret and self.issuer):
            raise ValueError("client_credentials needs `client_id`, `client_secret` and `issuer`")
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("`client_secret` has no effect without `client_id`; add it")
        if self.issuer is not None and self.mode != "client_credentials":
            raise ValueError("`issuer` has an effect only with `mode: client_credentials`; take it out")
        return self


def _in_words(value: Any) -> Any:
    """A mode alone, as people write it."""
    return {"mode": value} if isinstance(value, str) else value


class McpServerConfig(Section):
    """One server, by the name it has in `mcp.servers`: a command that is started here, or an address.

    Attributes:
        command: the program and its arguments.
        url: of a server that speaks streamable HTTP.
        headers: sent with each request to `url`.
        oauth: how the gateway signs in at `url`; None: not at all.
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
    oauth: Annotated[McpOauthConfig | None, BeforeValidator(_in_words)] = None
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

    @field_validator("oauth")
    @classmethod
    def _is_the_only_proof(cls, value: McpOauthConfig | None, info: ValidationInfo) -> McpOauthConfig | None:
        if value is not None and any(name.lower() == "authorization" for name in info.data.get("headers", ())):
            raise ValueError("the server has `headers` with Authorization, too; expected one of the two")
        return value

    @field_validator("headers", "oauth", "env", "sandbox")
    @classmethod
    def _has_effect(cls, value: Any, info: ValidationInfo) -> Any:
        is_for = "url" if info.field_name in ("headers", "oauth") else "command"
        is_set = value != McpSandboxConfig() if isinstance(value, McpSandboxConfig) else bool(value)
        if is_set and is_for in info.data and not info.data[is_for]:
            raise ValueError(f"has no effect here; expected it only beside `{is_for}`")
        return value

    @property
    def is_command(self) -> bool:
        """Whether it is a process of ours."""
        return bool(self.command)

    @property
    def needs_sign_in(self) -> bool:
        """Whether people sign in to it."""
        return self.oauth is not None and self.oauth.mode != "client_credentials"

    @property
    def is_per_person(self) -> bool:
        """Whether each person has an account of their own."""
        return self.oauth is not None and self.oauth.mode == "per_person"

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

    @property
    def has_oauth(self) -> bool:
        """Whether the gateway signs in to any of them."""
        return any(server.oauth is not None for server in self.servers.values())
