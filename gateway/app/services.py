"""The operator's services, around the parts of a running gateway; loaded at the first request that asks them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.domain.roles import Role, highest
from gateway.people.api_keys import ApiKeys
from gateway.services.chat import ChatParts, ChatService
from gateway.services.deliveries import DeliveryService
from gateway.services.keys import KeyService
from gateway.services.memory import MemoryParts, MemoryService
from gateway.services.naming import Naming
from gateway.services.operator_services import OperatorServices
from gateway.services.pairing import PairingService
from gateway.services.people import PeopleParts, PeopleService
from gateway.services.personal import PersonalService
from gateway.services.personalities import PersonalityService
from gateway.services.sessions import SessionService
from gateway.services.system import SystemParts, SystemService
from gateway.services.trace_scopes import TraceScopes
from gateway.services.trace_transfer import TraceTransferService
from gateway.services.traces import TraceParts, TraceService
from gateway.store.person_sessions import session_ids
from gateway.store.standing import SqliteStanding

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway


def services_of(gateway: Gateway) -> OperatorServices:
    """The services of a running gateway; what a reload changes is looked up when it is asked for."""
    store = gateway.store
    naming = Naming(
        gateway.home,
        gateway.identities,
        gateway.personalities,
        default_personality=lambda: gateway.config.personality,
    )
    scopes = _trace_scopes(gateway, naming)
    people = _people_service(gateway, naming)
    traces = TraceService(
        TraceParts(
            trace_store=gateway.trace_store, consolidation=gateway.traces.consolidation, scopes=scopes, naming=naming
        )
    )
    return OperatorServices(
        naming=naming,
        memory=_memory_service(gateway, naming, traces),
        sessions=SessionService(store.session_edits, naming, forget=gateway.history.forget),
        chat=_chat_service(gateway),
        system=SystemService(
            SystemParts(health=gateway.health, usage=store.usage, config=lambda: gateway.config, naming=naming)
        ),
        keys=KeyService(
            ApiKeys(store.api_keys),
            naming,
            survivor=lambda user_id: gateway.linking.people.successors(user_id)[-1],
            is_barred=people.is_barred,
        ),
        deliveries=DeliveryService(store.deliveries, gateway.wake),
        traces=traces,
        trace_transfer=TraceTransferService(gateway.trace_store, scopes, gateway.transfers),
        people=people,
        pairing=PairingService(gateway.admission, store.people, gateway.wake),
        personal=PersonalService(gateway.home, people, gateway.privacy),
        personalities=PersonalityService(gateway.home, gateway.personalities),
    )


def _chat_service(gateway: Gateway) -> ChatService:
    store = gateway.store
    return ChatService(
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


def _memory_service(gateway: Gateway, naming: Naming, traces: TraceService) -> MemoryService:
    store = gateway.store
    return MemoryService(
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


def _people_service(gateway: Gateway, naming: Naming) -> PeopleService:
    store = gateway.store
    return PeopleService(
        PeopleParts(
            identities=gateway.identities,
            naming=naming,
            store=store.people,
            standing=SqliteStanding(store.database),
            links=store.links,
            linking=gateway.linking,
            admission=gateway.admission,
            kind=gateway.channels.kind,
            operators=gateway.operators,
        )
    )


def _trace_scopes(gateway: Gateway, naming: Naming) -> TraceScopes:
    async def role(user_id: str) -> Role:
        admission, kind = gateway.admission, gateway.channels.kind
        keys = [account.key for account in await gateway.identities.accounts_of(user_id)]
        given = admission.access.role_of(keys, await admission.people.book())
        if given is not None:
            return given
        places = [(channel, key) for channel in admission.access.rules for key in keys]
        roles = [
            await admission.access.role_on(channel, key)
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
