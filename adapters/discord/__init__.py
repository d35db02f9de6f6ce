"""The Discord channel: a bot that answers direct messages and mentions."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.client import DiscordClient
from adapters.discord.connection import Endpoints
from adapters.discord.trial import try_login
from gateway.protocols import AdapterServices, Trial

_DEFAULT = Endpoints()


class Config(BaseModel):
    """What can be set for Discord."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: SecretStr = Field(description="the bot's token, from the developer portal")
    message_content: bool = Field(
        default=True,
        description="read messages that speak to the bot without naming it (a role, a silent reply); needs the Message "
        "Content Intent, which is switched on in the developer portal",
    )
    api_url: str = Field(default=_DEFAULT.api_url, description="of another REST API, such as a test server's")
    gateway_url: str = Field(default=_DEFAULT.gateway_url, description="of the WebSocket that belongs to it")

    @field_validator("api_url", "gateway_url")
    @classmethod
    def _is_address(cls, url: str, info: ValidationInfo) -> str:
        is_api = info.field_name == "api_url"
        schemes, example = (("http", "https"), _DEFAULT.api_url) if is_api else (("ws", "wss"), _DEFAULT.gateway_url)
        if urlsplit(url).scheme not in schemes or not urlsplit(url).hostname:
            raise ValueError(f"expected an address such as {example}")
        return url


def account(entry: str) -> str:
    """What an entry of `allow` means: a person's user id, which stays with one person."""
    if not (entry.isascii() and entry.isdecimal()):
        raise ValueError('names can change hands; expected a user id in quotes, such as "123456789012345678"')
    return str(int(entry))


def own_accounts(config: Config) -> tuple[str, ...]:
    """The id of the bot, with which its token begins. Two connections would both answer its messages."""
    return (config.token.get_secret_value().partition(".")[0],)


async def trial(config: Config) -> Trial:
    """Ask Discord who the bot is; see `Trial`."""
    return await try_login(_client(config), message_content=config.message_content)


def build(config: Config, services: AdapterServices) -> DiscordAdapter:
    """Make the adapter; nothing is opened before `connect`."""
    return DiscordAdapter(_client(config), services)


def _client(config: Config) -> DiscordClient:
    endpoints = Endpoints(config.api_url, config.gateway_url)
    return DiscordClient(config.token.get_secret_value(), message_content=config.message_content, endpoints=endpoints)
