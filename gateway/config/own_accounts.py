"""One login of a platform is for one channel: two would take each other's messages, or both answer them."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config import ChannelConfig
from gateway.config.channel_kinds import load_kind
from gateway.files.positions.yaml import MarkedYaml


def check_own_accounts(channels: Mapping[str, ChannelConfig], document: MarkedYaml) -> None:
    """Complain of each enabled channel whose login another one has, by both names and without the login."""
    holders: dict[str, str] = {}
    for name, channel in channels.items():
        if channel.settings is None:
            continue
        accounts = load_kind(channel.kind).own_accounts(channel.settings)
        for other in sorted({holders.setdefault(account, name) for account in accounts} - {name}):
            text = f"has the same login or secret as the channel {other}; expected one of its own, or only one channel"
            document.complain(("channels", name), text, at_key=True)
