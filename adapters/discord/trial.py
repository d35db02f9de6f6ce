"""What a bot's login says of itself, in words for people."""

from __future__ import annotations

from adapters.discord.client import BotFacts, DiscordClient
from adapters.discord.errors import INTENT_ADVICE
from gateway.protocols import Trial

PERMISSIONS = 274_878_008_320
"""View Channels, Send Messages, Send Messages in Threads, Attach Files, Read Message History.

https://docs.discord.com/developers/topics/permissions#permissions-bitwise-permission-flags
"""


async def try_login(client: DiscordClient, *, message_content: bool) -> Trial:
    """Ask who the bot is. Raises as `ChannelAdapter.connect`."""
    return trial_of(await client.describe(), message_content=message_content)


def trial_of(bot: BotFacts, *, message_content: bool) -> Trial:
    """The words for what Discord says; `message_content` is the setting."""
    problems, hints = [], []
    if message_content and not bot.reads_content:
        problems.append(f"The Message Content Intent is off. {INTENT_ADVICE}.")
    if bot.interactions_url:
        problems.append(
            "Discord sends the bot's commands and buttons to another address. Under General Information of the "
            "developer portal, empty Interactions Endpoint URL."
        )
    if bot.guilds == 0:
        hints.append("The bot is in no server yet. Open the link and choose one of yours, so that people can write.")
    return Trial(account=bot.name, address=invite_link(bot), problems=tuple(problems), hints=tuple(hints))


def invite_link(bot: BotFacts) -> str:
    """With which somebody who manages a server lets the bot in."""
    query = f"client_id={bot.application_id}&scope=bot+applications.commands&permissions={PERMISSIONS}"
    return f"https://discord.com/oauth2/authorize?{query}"
