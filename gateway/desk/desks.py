"""All desks of one gateway."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gateway.api_keys import ApiKeys
from gateway.desk.deliveries import DeliveryDesk
from gateway.desk.keys import KeyDesk
from gateway.desk.memory import MemoryDesk, MemoryParts
from gateway.desk.naming import Naming
from gateway.desk.system import SystemDesk, SystemParts
from gateway.desk.trace_scopes import TraceScopes
from gateway.desk.trace_transfer import TraceTransferDesk
from gateway.desk.traces import TraceDesk, TraceParts
from gateway.memory_review import MemoryReview
from gateway.roles import Role
from gateway.store.person_sessions import session_ids

if TYPE_CHECKING:
    from gateway.app import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Desks:
    """One for each namespace."""

    memory: MemoryDesk
    system: SystemDesk
    keys: KeyDesk
    deliveries: DeliveryDesk
    traces: TraceDesk
    trace_transfer: TraceTransferDesk


def desks_of(gateway: Gateway) -> Desks:
    """The desks of a running gateway; what a reload changes is looked up when it is asked for."""
    store = gateway.store
    naming = Naming(
        gateway.home,
        gateway.identities,
        gateway.personalities,
        default_personality=lambda: gateway.config.personality,
    )
    scopes = _trace_scopes(gateway, naming)
    return Desks(
        memory=MemoryDesk(
            MemoryParts(
                files=gateway.memory_files,
                review=MemoryReview(
                    store.proposals, gateway.memory_files, gateway.memory, lambda: gateway.traces.facts
                ),
                proposals=store.proposals,
                personalities=gateway.personalities,
                identities=gateway.identities,
                naming=naming,
                sizes=lambda: gateway.config.memory,
            )
        ),
        system=SystemDesk(
            SystemParts(health=gateway.health, usage=store.usage, config=lambda: gateway.config, naming=naming)
        ),
        keys=KeyDesk(
            ApiKeys(store.api_keys), naming, survivor=lambda user_id: gateway.linking.people.heirs(user_id)[-1]
        ),
        deliveries=DeliveryDesk(store.deliveries, gateway.wake),
        traces=TraceDesk(
            TraceParts(brain=gateway.brain, consolidation=gateway.traces.consolidation, scopes=scopes, naming=naming)
        ),
        trace_transfer=TraceTransferDesk(gateway.brain, scopes, gateway.transfers),
    )


def _trace_scopes(gateway: Gateway, naming: Naming) -> TraceScopes:
    async def role(user_id: str) -> Role:
        accounts = await gateway.identities.accounts_of(user_id)
        return await gateway.entrance.access.role_of_person([account.key for account in accounts])

    async def has_session(session_id: str) -> bool:
        return await gateway.store.sessions.session(session_id) is not None

    return TraceScopes(
        naming=naming,
        person_ids=gateway.store.links.person_ids,
        sessions=partial(session_ids, gateway.store.database),
        has_session=has_session,
        role=role,
        personality=lambda: gateway.config.personality,
    )
