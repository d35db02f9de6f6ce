"""Checks of who may talk to the agent, and who decides about it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.cli.data import opened_store
from gateway.cli.finding import Finding, Ground
from gateway.config import Config
from gateway.config.channel_kinds import load_kind


async def access(ground: Ground) -> AsyncIterator[Finding]:
    """Who owns the gateway where others can reach it, and who waits; `config check` warns of what is open to all."""
    if ground.config is None:
        return
    reachable = _reachable(ground.config)
    if not reachable:
        return
    async with opened_store(ground.home) as store:
        book = None if store is None else await store.people.book()
        requests = [] if store is None else await store.people.requests()
    if book is None or "owner" not in book.ranks.values():
        yield Finding(
            level="warning",
            what=f"There is no owner on {', '.join(reachable)} yet, so requests to talk wait there.",
            advice="`ethos people owner-code` makes a code; send it to the agent there.",
        )
    waiting = [request for request in requests if request.state == "waiting"]
    if waiting:
        yield Finding(level="note", what=f"{len(waiting)} asked to be let in; `ethos people pairing list` shows them.")


def _reachable(config: Config) -> list[str]:
    """The channels that others than the operator can reach."""
    return [
        name
        for name, channel in config.channels.items()
        if channel.enabled and load_kind(channel.kind).access_default != "open"
    ]
