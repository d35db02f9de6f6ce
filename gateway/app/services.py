"""The operator's services, around the parts of a running gateway; loaded at the first request that asks them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from gateway.app.doctor import ground_of
from gateway.config.memory_kinds import DATABASE_KIND
from gateway.domain.codes import load_pepper
from gateway.domain.key_files import load_key
from gateway.errors import NotOffered
from gateway.memory.offered import offered
from gateway.memory.paths import is_document
from gateway.people.api_keys import ApiKeys
from gateway.people.logins import KEY_NAME as SECOND_FACTOR
from gateway.protocols import EditableMemory, ListsDocuments
from gateway.sdk.models.system import Reloaded
from gateway.services.approvals import ApprovalService, AskingAnew
from gateway.services.backups import BackupService
from gateway.services.caller import operator
from gateway.services.channels import ChannelService
from gateway.services.config_writing import ConfigWriting
from gateway.services.deliveries import DeliveryService
from gateway.services.files import FileService, versions_of
from gateway.services.hooks import HookService
from gateway.services.identity_map import IdentityMapService
from gateway.services.keys import KeyService
from gateway.services.logins import Keys, LoginService
from gateway.services.mcp import McpService
from gateway.services.memory import MemoryService
from gateway.services.models import ModelService
from gateway.services.naming import Naming
from gateway.services.operator_services import OperatorServices
from gateway.services.pairing import PairingService
from gateway.services.people import PeopleService
from gateway.services.personal import PersonalService
from gateway.services.personalities import PersonalityService
from gateway.services.repairs import RepairService
from gateway.services.schedules import ScheduleService
from gateway.services.sessions import SessionService
from gateway.services.settings import SettingsService
from gateway.services.setup import SetupService
from gateway.services.sign_ins import SignInService
from gateway.services.skills import SkillService
from gateway.services.system import SystemService
from gateway.services.talks import TalkService
from gateway.services.tools import ToolService
from gateway.services.trace_scopes import TraceScopes
from gateway.services.trace_stores import TraceStores
from gateway.services.trace_transfer import TraceTransferService
from gateway.services.traces import TraceService
from gateway.services.zones import ZoneService
from gateway.store.settings import FindingsAside, keep_setup_state, setup_state

if TYPE_CHECKING:
    from gateway.app.wiring import Composition


def services_of(gateway: Composition) -> OperatorServices:
    """The services of a running gateway."""
    store, config = gateway.store, gateway.live
    memory, people_of = gateway.memory.within_time, gateway.identities
    naming = Naming(memory, people_of, gateway.personalities, links=store.links, config=config)
    people = _people_service(gateway, naming)
    scopes = TraceScopes(
        naming=naming, people=people, links=store.links, sessions=store.sessions, database=store.engine, config=config
    )
    own, person_ids = gateway.trace_store, store.links.person_ids
    stores = TraceStores(home=gateway.home, own=own, engine=store.engine, person_ids=person_ids)
    traces = TraceService(stores, gateway.traces.consolidation, scopes=scopes, naming=naming)
    sessions = SessionService(store.session_edits, naming, gateway.history)
    deliveries = DeliveryService(store.deliveries, gateway.dispatcher, gateway.outbox)
    writing = _config_writing(gateway)
    return OperatorServices(
        naming=naming,
        memory=_memory_service(gateway, naming, traces),
        sessions=sessions,
        chat=gateway.chat,
        talks=_talk_service(gateway, sessions),
        system=_system_service(gateway, naming),
        settings=_settings_service(gateway),
        keys=KeyService(ApiKeys(store.api_keys), naming, people),
        deliveries=deliveries,
        repairs=RepairService(partial(ground_of, gateway, deliveries), FindingsAside(store.engine)),
        approvals=ApprovalService(store.approvals, gateway.dispatcher.look, person_ids, _asking_anew(gateway)),
        schedules=_schedule_service(gateway, naming),
        hooks=_hook_service(gateway),
        mcp=_mcp_service(gateway, naming, writing),
        models=_model_service(gateway, writing),
        backups=_backup_service(gateway),
        setup=_setup_service(gateway, people, writing),
        channels=_channel_service(gateway, deliveries, writing),
        skills=_skill_service(gateway),
        tools=ToolService(store.tool_log, naming, person_ids),
        traces=traces,
        trace_transfer=TraceTransferService(stores, scopes, gateway.transfers),
        people=people,
        pairing=PairingService(gateway.admission, store.people, gateway.dispatcher, gateway.outbox),
        personal=PersonalService(gateway.home, people, gateway.privacy, store.person_settings),
        identity_map=IdentityMapService(gateway.identities, people, erased=gateway.privacy.erased),
        personalities=PersonalityService(gateway.personalities),
        zones=ZoneService(gateway.zones, gateway.schedules, person_ids),
        files=_file_service(gateway, naming),
        sign_ins=SignInService(gateway.web.sign_ins, people),
        logins=_login_service(gateway, people),
    )


def _config_writing(gateway: Composition) -> ConfigWriting:
    return ConfigWriting(
        gateway.home,
        gateway.live,
        hide=gateway.reloading.hide,
        reload=partial(_reload, gateway),
        is_running=gateway.is_serving.is_set,
    )


def _talk_service(gateway: Composition, sessions: SessionService) -> TalkService:
    return TalkService(
        chat=gateway.chat,
        sessions=sessions,
        session_store=gateway.store.sessions,
        talks=gateway.store.talks,
        meter=gateway.meter,
        config=gateway.live,
    )


def _system_service(gateway: Composition, naming: Naming) -> SystemService:
    return SystemService(
        checkup=gateway.checkup,
        usage=gateway.store.usage,
        config=gateway.live,
        naming=naming,
        reload=partial(_reload, gateway),
        privacy=gateway.privacy,
        workers=gateway.cluster.workers,
        holding=gateway.cluster.holding,
    )


def _settings_service(gateway: Composition) -> SettingsService:
    return SettingsService(
        home=gateway.home,
        config=gateway.live,
        personalities=gateway.personalities,
        reload=partial(_reload, gateway),
        is_running=gateway.is_serving.is_set,
        restart=gateway.restart,
        workers=gateway.cluster.workers,
        worker_id=gateway.cluster.worker.id,
    )


def _file_service(gateway: Composition, naming: Naming) -> FileService:
    return FileService(
        memory=gateway.memory.within_time,
        versions=partial(_versions, gateway),
        personalities=gateway.personalities,
        naming=naming,
        config=gateway.live,
    )


def _asking_anew(gateway: Composition) -> AskingAnew:
    return AskingAnew(
        reserve=gateway.store.proposals.reserve,
        find=lambda name: gateway.toolbox().find(name),
        owner_chats=gateway.pairing.owner_chats,
        whole_calls=gateway.whole_calls,
    )


def _schedule_service(gateway: Composition, naming: Naming) -> ScheduleService:
    store = gateway.store
    return ScheduleService(
        gateway.schedules,
        naming,
        store.links.person_ids,
        reaching=gateway.reaching,
        personalities=gateway.personalities,
        config=gateway.live,
        sessions_of=store.session_edits.sessions_of,
    )


async def _reload(gateway: Composition) -> Reloaded:
    """Read the configuration again, here and at every other worker."""
    done = await gateway.reloading.reload()
    gateway.cluster.news.tell("reload")
    return done


def _base_of(gateway: Composition) -> str:
    """Where browsers find the pages, without a slash at its end."""
    web = gateway.config.web
    return (gateway.browser_url or web.public_url or f"http://{web.host}:{web.port}").rstrip("/")


def _login_service(gateway: Composition, people: PeopleService) -> LoginService:
    remedy = "remove it, and a new one is made. Then people who sign in with a password need a new link"
    path = gateway.home / SECOND_FACTOR
    return LoginService(
        gateway.store.logins,
        sign_ins=gateway.web.sign_ins,
        failures=gateway.people_parts.sign_in_failures,
        people=people,
        identities=gateway.identities,
        keys=Keys(
            second_factor=cache(lambda: load_key(path, "second-factor", gateway.secret, remedy=remedy)),
            pepper=cache(lambda: load_pepper(gateway.home, gateway.secret)),
        ),
        base=partial(_base_of, gateway),
    )


def _hook_service(gateway: Composition) -> HookService:
    return HookService(
        lambda: gateway.hooks,
        gateway.configured,
        gateway.store.schedules,
        config=gateway.live,
        base=partial(_base_of, gateway),
        sessions_of=gateway.store.session_edits.sessions_of,
    )


def _mcp_service(gateway: Composition, naming: Naming, writing: ConfigWriting) -> McpService:
    return McpService(
        gateway.mcp,
        gateway.store.mcp_tools,
        gateway.reloading.hide,
        home=gateway.home,
        writing=writing,
        is_running=gateway.is_serving.is_set,
        tokens=gateway.store.mcp_tokens,
        naming=naming,
    )


def _model_service(gateway: Composition, writing: ConfigWriting) -> ModelService:
    return ModelService(
        config=gateway.live,
        states=gateway.meter.states,
        personalities=gateway.personalities,
        hide=gateway.reloading.hide,
        writing=writing,
    )


def _backup_service(gateway: Composition) -> BackupService:
    url = gateway.config.store.url
    return BackupService(gateway.home, None if url is None else url.get_secret_value())


def _setup_service(gateway: Composition, people: PeopleService, writing: ConfigWriting) -> SetupService:
    return SetupService(
        home=gateway.home,
        config=gateway.live,
        people=people,
        admission=gateway.admission,
        operators=gateway.operators,
        log=gateway.store.log,
        writing=writing,
        kept=partial(setup_state, gateway.store.engine),
        keep=partial(keep_setup_state, gateway.store.engine),
    )


def _channel_service(gateway: Composition, deliveries: DeliveryService, writing: ConfigWriting) -> ChannelService:
    return ChannelService(
        home=gateway.home,
        config=gateway.live,
        channels=gateway.channels,
        checkup=gateway.checkup,
        deliveries=deliveries,
        writing=writing,
        is_running=gateway.is_serving.is_set,
        hide=gateway.reloading.hide,
    )


def _skill_service(gateway: Composition) -> SkillService:
    return SkillService(
        gateway.skills.library,
        home=gateway.home,
        config=gateway.live,
        personalities=gateway.personalities,
        sessions=gateway.store.sessions,
        offered=gateway.skills.offered,
        changed=lambda: gateway.cluster.news.tell("changed", what="skills"),
    )


async def _versions(gateway: Composition) -> Mapping[str, str]:
    """Those of all documents of the memory; the gateway's own database knows them without a look at the texts."""
    if gateway.memory_kind == DATABASE_KIND:
        return await gateway.store.documents.versions()
    lists = gateway.memory_provider
    if not isinstance(lists, ListsDocuments):
        raise NotOffered("The memory of this gateway does not say which documents it has, so they cannot be files.")
    keys = [key for key in await lists.keys() if is_document(key)]
    memory = offered(gateway.memory.within_time, EditableMemory)  # type: ignore[type-abstract]
    return await versions_of(memory, keys, operator("files"))


def _memory_service(gateway: Composition, naming: Naming, traces: TraceService) -> MemoryService:
    return MemoryService(
        provider=gateway.memory.within_time,
        kind=gateway.memory_kind,
        review=gateway.review,
        proposals=gateway.store.proposals,
        personalities=gateway.personalities,
        identities=gateway.identities,
        links=gateway.store.links,
        naming=naming,
        traces=traces,
        config=gateway.live,
    )


def _people_service(gateway: Composition, naming: Naming) -> PeopleService:
    return PeopleService(
        identities=gateway.identities,
        naming=naming,
        store=gateway.store.people,
        links=gateway.store.links,
        linking=gateway.linking,
        admission=gateway.admission,
        channels=gateway.channels,
        operators=gateway.operators,
        leaving=gateway.privacy.leaving,
    )
