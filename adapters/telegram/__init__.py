"""The Telegram channel."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from adapters.telegram.adapter import TelegramAdapter, make_adapter
from adapters.telegram.client import TelegramClient
from adapters.telegram.trial import try_login
from gateway.protocols import AdapterServices, Trial

WEBHOOK_PORTS = (None, 443, 80, 88, 8443)
"""The ports that Telegram calls (https://core.telegram.org/bots/api#setwebhook)."""


class Config(BaseModel):
    """What can be set for Telegram."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: SecretStr = Field(min_length=1, description="the bot's token, from @BotFather")
    webhook_url: str | None = Field(
        default=None, description="the gateway's public https address; left out, updates are fetched by long polling"
    )
    poll_timeout_s: int = Field(default=30, ge=1, le=50, description="how long one long poll waits for an update")
    markup: Literal["markdown", "plain"] = Field(
        default="markdown", description="`plain` shows what the model writes as it stands"
    )
    api_url: str = Field(default="https://api.telegram.org", description="of the Bot API server")

    @field_validator("webhook_url")
    @classmethod
    def _can_be_called(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("expected an address such as https://ethos.example.org; Telegram calls https only")
        if parts.port not in WEBHOOK_PORTS:
            raise ValueError("Telegram calls the ports 443, 80, 88 and 8443 only")
        return url.rstrip("/")

    @field_validator("api_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError("expected an address such as https://api.telegram.org")
        return url.rstrip("/")


def account(entry: str) -> str:
    """What an entry of `allow` means: the number of a person's account, which stays with one person."""
    if not (entry.isascii() and entry.isdecimal()):
        raise ValueError('names can change hands; expected the number of an account in quotes, such as "123456789"')
    return str(int(entry))


def own_accounts(config: Config) -> tuple[str, ...]:
    """The number of the bot, with which its token begins. Only one process can fetch its updates."""
    return (config.token.get_secret_value().partition(":")[0],)


def public_host(config: Config) -> str | None:
    """The host of the webhook."""
    return None if config.webhook_url is None else urlsplit(config.webhook_url).hostname


async def trial(config: Config) -> Trial:
    """Ask Telegram who the bot is; see `Trial`."""
    return await try_login(_client(config), webhook_url=config.webhook_url)


def build(config: Config, services: AdapterServices) -> TelegramAdapter:
    """Make the adapter; nothing is opened before `connect`."""
    return make_adapter(_client(config), services, markup=config.markup, webhook_url=config.webhook_url)


def _client(config: Config) -> TelegramClient:
    token = config.token.get_secret_value()
    return TelegramClient(token, api_url=config.api_url, poll_timeout_s=config.poll_timeout_s)
