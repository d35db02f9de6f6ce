"""The Discord channel: a bot, met in direct messages and wherever it is mentioned."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.client import DiscordClient
from gateway.protocols import AdapterServices


class Config(BaseModel):
    """What can be set for Discord."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: SecretStr = Field(description="the bot's token, from the developer portal")
    message_content: bool = Field(
        default=True,
        description="read messages that speak to the bot without naming it (a role, a silent reply); needs the Message "
        "Content Intent, which is switched on in the developer portal",
    )


def account(entry: str) -> str:
    """What an entry of `allow` means: a person's user id.

    Raises:
        ValueError: it is no id; names can pass to somebody else, and the id never does.
    """
    if not (entry.isascii() and entry.isdecimal()):
        raise ValueError('names can change hands; expected a user id in quotes, such as "123456789012345678"')
    return str(int(entry))


def own_accounts(config: Config) -> tuple[str, ...]:
    """The bot, whose id a token begins with: two connections would both answer what is written to it."""
    return (config.token.get_secret_value().partition(".")[0],)


def build(config: Config, services: AdapterServices) -> DiscordAdapter:
    """Make the adapter; nothing is opened before `connect`."""
    client = DiscordClient(config.token.get_secret_value(), message_content=config.message_content)
    return DiscordAdapter(client, services)
