"""What a bot's login says of itself, in words for people."""

from __future__ import annotations

from urllib.parse import urlsplit

from adapters.telegram.client import BotFacts, TelegramClient
from gateway.protocols import Trial


async def try_login(client: TelegramClient, *, webhook_url: str | None) -> Trial:
    """Ask who the bot is, and what Telegram calls for it. Raises as `ChannelAdapter.connect`."""
    try:
        await client.open()
        return trial_of(await client.describe(), webhook_url=webhook_url)
    finally:
        await client.close()


def trial_of(bot: BotFacts, *, webhook_url: str | None) -> Trial:
    """The words for what Telegram says; `webhook_url` is the configured address, without the channel's path."""
    return Trial(
        account=f"@{bot.username}",
        address=f"https://t.me/{bot.username}",
        problems=tuple(_problems(bot, webhook_url)),
        hints=(_about_groups(bot),),
    )


def _problems(bot: BotFacts, webhook_url: str | None) -> list[str]:
    if not bot.webhook_url:
        return []
    host = urlsplit(bot.webhook_url).hostname
    is_ours = webhook_url is not None and bot.webhook_url.startswith(f"{webhook_url}/")
    if is_ours and bot.webhook_error:
        return [f"Telegram could not call the gateway at {host}: {bot.webhook_error}. Check the address from outside."]
    if is_ours:
        return []
    loses = f"Another program at {host} receives this bot's messages, and loses them to this channel."
    return [f"{loses} If you need that program, send /newbot to @BotFather, and use the new bot's token here."]


def _about_groups(bot: BotFacts) -> str:
    if not bot.can_join_groups:
        return "It cannot be added to groups. To allow that, send /setjoingroups to @BotFather."
    if bot.reads_groups:
        return "Its privacy mode is off: in groups it gets every message, and answers mentions and replies only."
    return "Its privacy mode is on: in groups it gets mentions, replies and commands. That is all that it needs."
