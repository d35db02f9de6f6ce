"""The operator's services, around the parts of a running gateway; loaded at the first request that asks them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.domain.roles import Role, highest
from gateway.people.api_keys import ApiKeys
from gateway.services.chat import ChatDesk, ChatParts
from gateway.services.deliveries import DeliveryDesk
from gateway.services.keys import KeyDesk
from gateway.services.memory import MemoryDesk, MemoryParts
from gateway.services.naming import Naming
from gateway.services.operator_services import Desks
from gateway.services.pairing import PairingDesk
from gateway.services.people import PeopleDesk, PeopleParts
from gateway.services.personal import PersonalDesk
from gateway.services.personalities import PersonalityDesk
from gateway.services.sessions import SessionDesk
from gateway.services.system import SystemDesk, SystemParts
from gateway.services.trace_scopes import TraceScopes
from gateway.services.trace_transfer import TraceTransferDesk
from gateway.services.traces import TraceDesk, TraceParts
from gateway.store.person_sessions import session_ids
from gateway.store.standing import SqliteStanding

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway


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
    people = _people_desk(gateway, naming)
    traces = TraceDesk(
        TraceParts(brain=gateway.brain, consolidation=gateway.traces.consolidation, scopes=scopes, naming=naming)
    )
    return Desks(
        naming=naming,
        memory=_memory_desk(gateway, naming, traces),
        sessions=SessionDesk(store.session_edits, naming, forget=gateway.history.forget),
        chat=_chat_desk(gateway),
        system=SystemDesk(
            SystemParts(health=gateway.health, usage=store.usage, config=lambda: gateway.config, naming=naming)
        ),
        keys=KeyDesk(
            ApiKeys(store.api_keys),
            naming,
            survivor=lambda user_id: gateway.linking.people.heirs(user_id)[-1],
            is_barred=people.is_barred,
        ),
        deliveries=DeliveryDesk(store.deliveries, gateway.wake),
        traces=traces,
        trace_transfer=TraceTransferDesk(gateway.brain, scopes, gateway.transfers),
        people=people,
        pairing=PairingDesk(gateway.entrance, store.people, gateway.wake),
        personal=PersonalDesk(gateway.home, people, gateway.privacy),
        personalities=PersonalityDesk(gateway.home, gateway.personalities),
    )


def _chat_desk(gateway: Gateway) -> ChatDesk:
    store = gateway.store
    return ChatDesk(
        ChatParts(
            talk=gateway.talk,
            keep=gateway.inbox.keep,
            sessions=store.session_edits,
            identities=gateway.identities,
            personalities=gateway.personalities,
            log=store.log,
            default_personality=lambda: gateway.config.personality,
            join_operator=lambda: gateway.operators.join(gateway.identities, with_programs=True),
        )
    )


def _memory_desk(gateway: Gateway, naming: Naming, traces: TraceDesk) -> MemoryDesk:
    store = gateway.store
    return MemoryDesk(
        MemoryParts(
            files=gateway.memory_files,
            review=gateway.review,
            proposals=store.proposals,
            personalities=gateway.personalities,
            identities=gateway.identities,
            naming=naming,
            sizes=lambda: gateway.config.memory,
            facts=traces.origins,
        )
    )


def _people_desk(gateway: Gateway, naming: Naming) -> PeopleDesk:
    store = gateway.store
    return PeopleDesk(
        PeopleParts(
            identities=gateway.identities,
            naming=naming,
            store=store.people,
            standing=SqliteStanding(store.database),
            links=store.links,
            linking=gateway.linking,
            entrance=gateway.entrance,
            kind=gateway.supervisor.kind,
            operators=gateway.operators,
        )
    )


def _trace_scopes(gateway: Gateway, naming: Naming) -> TraceScopes:
    async def role(user_id: str) -> Role:
        entrance, kind = gateway.entrance, gateway.supervisor.kind
        keys = [account.key for account in await gateway.identities.accounts_of(user_id)]
        given = entrance.access.role_of(keys, await entrance.people.book())
        if given is not None:
            return given
        places = [(channel, key) for channel in entrance.access.rules for key in keys]
        roles = [
            await entrance.access.role_on(channel, key)
            for channel, key in places
            if kind(channel) == key.partition(":")[0]
        ]
        return highest(role for role in roles if role is not None) or "guest"

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
