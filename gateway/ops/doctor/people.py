"""Checks of people: who owns the gateway, who waits, and who is told of what it does alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.config import Config
from gateway.config.channel_kinds import load_kind
from gateway.config.unattended import OWNER
from gateway.ops.doctor.finding import Finding, Ground, named


async def access(ground: Ground) -> AsyncIterator[Finding]:
    """Who owns the gateway where others can reach it, and who waits; `config check` warns of what is open to all."""
    if ground.config is None:
        return
    reachable = _reachable(ground.config)
    if not reachable:
        return
    async with ground.opened_store() as store:
        snapshot = None if store is None else await store.people.snapshot()
        requests = [] if store is None else await store.people.requests()
    if snapshot is None or "owner" not in snapshot.ranks.values():
        yield Finding(
            "no-owner",
            "warning",
            f"There is no owner on {', '.join(reachable)} yet, so requests to talk wait there.",
            "`ethos people owner-code` makes a code; send it to the agent there.",
        )
    waiting = [request for request in requests if request.state == "waiting"]
    if waiting:
        yield Finding(
            "access-requests", "note", f"{len(waiting)} asked to be let in; `ethos people pairing list` shows them."
        )


async def told_alone(ground: Ground) -> AsyncIterator[Finding]:
    """Whom hooks and the heartbeat tell has written to the agent, so that it knows where."""
    config = ground.config
    if config is None:
        return
    wanted = {f"the hook {name}": hook.to for name, hook in config.hooks.items()}
    wanted |= {} if config.heartbeat.every is None else {"the heartbeat": config.heartbeat.to}
    if not wanted:
        return
    async with ground.opened_store() as store:
        has_owner = store is not None and bool((await store.people.snapshot()).chats)
        for what, to in wanted.items():
            channel, _, sender = to.partition(":")
            is_known = has_owner
            if to != OWNER:
                is_known = store is not None and await store.links.direct_conversation([channel], sender) is not None
            if not is_known:
                who = "no owner has" if to == OWNER else f"{to} has not"
                advice = "They must write to it once, in a direct chat."
                yield Finding(
                    named("tells-nobody", what),
                    "warning",
                    f"{what} tells nobody: {who} written to the agent yet.",
                    advice,
                )


def _reachable(config: Config) -> list[str]:
    """The channels that others than the operator can reach."""
    return [
        name
        for name, channel in config.channels.items()
        if channel.enabled and load_kind(channel.kind).access_default != "open"
    ]
