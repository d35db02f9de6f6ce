"""The Slack channel."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from adapters.slack.adapter import SlackAdapter, SlackHttpAdapter
from adapters.slack.client import API_URL, SlackClient
from adapters.slack.trial import try_login
from gateway.protocols import AdapterServices, Trial


class Config(BaseModel):
    """What can be set for Slack."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bot_token: SecretStr = Field(description="of the installation, `xoxb-…`")
    app_token: SecretStr | None = Field(default=None, description="for Socket Mode, `xapp-…`")
    signing_secret: SecretStr | None = Field(default=None, description="for HTTP: what Slack signs its requests with")
    slack_connect: bool = Field(
        default=False, description="take messages of other organisations in channels shared with them, too"
    )
    catch_up_h: float = Field(
        default=24.0, ge=0, le=720, description="hours back to which missed messages are fetched after a break"
    )
    streams: bool = Field(
        default=True, description="show answers in threads as chat streams while they are written; false: by edits"
    )
    slash_command: str = Field(
        default="/ethos", pattern=r"^/[a-z0-9_-]{1,31}$", description="the one that the app's manifest has"
    )
    api_url: str = Field(default=API_URL, description="another one for GovSlack only")

    @field_validator("api_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"expected an address such as {API_URL}")
        return url.rstrip("/") + "/"

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        if (self.app_token is None) == (self.signing_secret is None):
            raise ValueError("expected either `app_token` (Socket Mode) or `signing_secret` (HTTP)")
        for key, token, prefix in (("bot_token", self.bot_token, "xoxb-"), ("app_token", self.app_token, "xapp-")):
            if token is not None and not token.get_secret_value().startswith(prefix):
                raise ValueError(f"expected a `{key}` that begins with `{prefix}`")
        return self


def account(entry: str) -> str:
    """What an entry of `allow` means: workspace (or organisation) and member, whose id may exist in another."""
    if not re.fullmatch(r"[TE][A-Z0-9]+/[UW][A-Z0-9]+", entry):
        raise ValueError("expected the workspace and the member, such as T012AB3CD/U045EF6GH")
    return entry


def own_accounts(config: Config) -> tuple[str, ...]:
    """The installation; in Socket Mode the app too, since Slack divides its events among all connections of the app.

    https://docs.slack.dev/apis/events-api/using-socket-mode#connections
    """
    tokens = (config.bot_token, config.app_token)
    return tuple(token.get_secret_value() for token in tokens if token is not None)


async def trial(config: Config) -> Trial:
    """Ask Slack for the app and what it may do; see `Trial`."""
    return await try_login(_client(config), is_socket_mode=config.app_token is not None)


def build(config: Config, services: AdapterServices) -> SlackAdapter:
    """Make the adapter; nothing is opened before `connect`."""
    secret = config.signing_secret.get_secret_value() if config.signing_secret else None
    adapter = SlackAdapter if secret is None else SlackHttpAdapter
    return adapter(
        services,
        _client(config),
        signing_secret=secret,
        slack_connect=config.slack_connect,
        catch_up_h=config.catch_up_h,
        streams=config.streams,
        slash_command=config.slash_command,
    )


def _client(config: Config) -> SlackClient:
    app_token = config.app_token.get_secret_value() if config.app_token else None
    return SlackClient(config.bot_token.get_secret_value(), app_token=app_token, api_url=config.api_url)
