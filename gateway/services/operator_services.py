"""All services of one gateway."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.services.approvals import ApprovalService
from gateway.services.backups import BackupService
from gateway.services.channels import ChannelService
from gateway.services.chat import ChatService
from gateway.services.deliveries import DeliveryService
from gateway.services.files import FileService
from gateway.services.hooks import HookService
from gateway.services.identity_map import IdentityMapService
from gateway.services.keys import KeyService
from gateway.services.mcp import McpService
from gateway.services.memory import MemoryService
from gateway.services.models import ModelService
from gateway.services.naming import Naming
from gateway.services.pairing import PairingService
from gateway.services.people import PeopleService
from gateway.services.personal import PersonalService
from gateway.services.personalities import PersonalityService
from gateway.services.schedules import ScheduleService
from gateway.services.sessions import SessionService
from gateway.services.settings import SettingsService
from gateway.services.setup import SetupService
from gateway.services.skills import SkillService
from gateway.services.system import SystemService
from gateway.services.tools import ToolService
from gateway.services.trace_transfer import TraceTransferService
from gateway.services.traces import TraceService
from gateway.services.zones import ZoneService


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorServices:
    """One for each namespace."""

    naming: Naming
    memory: MemoryService
    sessions: SessionService
    chat: ChatService
    system: SystemService
    settings: SettingsService
    keys: KeyService
    deliveries: DeliveryService
    tools: ToolService
    approvals: ApprovalService
    schedules: ScheduleService
    hooks: HookService
    mcp: McpService
    models: ModelService
    backups: BackupService
    setup: SetupService
    channels: ChannelService
    skills: SkillService
    traces: TraceService
    trace_transfer: TraceTransferService
    people: PeopleService
    pairing: PairingService
    personal: PersonalService
    identity_map: IdentityMapService
    personalities: PersonalityService
    files: FileService
    zones: ZoneService
