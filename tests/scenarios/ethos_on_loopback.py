"""`python -m tests.scenarios.ethos_on_loopback` is `ethos`, but Discord is where DISCORD_ON_LOOPBACK says.

The other libraries are told an address by the configuration; discord.py has it in class attributes only. With UNPACED
set, Telegram's own limit on what a bot may send (30 messages a second) is not kept, so that the rest can be measured.
"""

from __future__ import annotations

import functools
import importlib
import os


def lead_discord_to(host: str) -> None:
    importlib.import_module("adapters.discord")  # before the SDK by itself: it knows which warnings mean nothing
    import discord
    import yarl

    discord.http.Route.BASE = f"http://{host}/api/v10"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(f"ws://{host}/gw")
    discord.asset.Asset.BASE = f"http://{host}/cdn"


def lift_rate_limit() -> None:
    import adapters.telegram.adapter as telegram

    telegram.RateLimit = functools.partial(telegram.RateLimit, chat_s=0.0, group_s=0.0, overall_s=0.0)  # type: ignore[misc]


if __name__ == "__main__":
    from gateway.cli import main

    if "DISCORD_ON_LOOPBACK" in os.environ:
        lead_discord_to(os.environ["DISCORD_ON_LOOPBACK"])
    if "UNPACED" in os.environ:
        lift_rate_limit()
    main()
