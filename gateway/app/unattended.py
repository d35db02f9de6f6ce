"""Puts together what begins turns that nobody waits for; a part of the composition root."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from gateway.people.addressing import Addressing
from gateway.sandbox.workspace import Workspaces
from gateway.schedules.calls import Hooks
from gateway.schedules.configured import Configured
from gateway.schedules.heartbeat import Heartbeats
from gateway.store.heartbeats import SqlBeats
from gateway.store.hooks import SqlHooks

if TYPE_CHECKING:
    from gateway.app.wiring import Composition


def configured_of(gateway: Composition) -> Configured:
    """Keeps the rows of hooks and heartbeats equal to the configuration."""
    addressing = Addressing(
        gateway.people,
        gateway.access,
        gateway.identities,
        gateway.operators,
        channels=gateway.channels,
        heard_in=gateway.store.links.direct_conversation,
    )
    store = SqlHooks(gateway.store.engine)
    configured = Configured(
        store,
        gateway.store.schedules,
        addressing,
        gateway.zones,
        gateway.live,
        successors=gateway.linking.people.successors,
    )
    gateway.people.moved = configured.settle_soon
    return configured


def heartbeats_of(gateway: Composition) -> Heartbeats:
    """Decides whether a heartbeat has anything to look at."""

    def day_began(now: datetime) -> datetime:
        return gateway.meter.budgets.day_began(now)  # a reload gives others

    def workspaces() -> Workspaces | None:
        return gateway.workspaces if gateway.live.current.tools.has_workspaces else None

    return Heartbeats(
        gateway.configured,
        SqlBeats(gateway.store.engine),
        gateway.store.person_settings,
        gateway.personalities,
        gateway.live,
        person_ids=gateway.linking.people.ids,
        workspaces=workspaces,
        day_began=day_began,
    )


def hooks_of(gateway: Composition) -> Hooks:
    """Takes calls of services."""
    store = SqlHooks(gateway.store.engine)
    return Hooks(gateway.configured, store, gateway.live, begun=gateway.dispatcher.look)
