"""All desks of one gateway."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.services.chat import ChatDesk
from gateway.services.deliveries import DeliveryDesk
from gateway.services.keys import KeyDesk
from gateway.services.memory import MemoryDesk
from gateway.services.naming import Naming
from gateway.services.pairing import PairingDesk
from gateway.services.people import PeopleDesk
from gateway.services.personal import PersonalDesk
from gateway.services.personalities import PersonalityDesk
from gateway.services.sessions import SessionDesk
from gateway.services.system import SystemDesk
from gateway.services.trace_transfer import TraceTransferDesk
from gateway.services.traces import TraceDesk


@dataclass(frozen=True, slots=True, kw_only=True)
class Desks:
    """One for each namespace."""

    naming: Naming
    memory: MemoryDesk
    sessions: SessionDesk
    chat: ChatDesk
    system: SystemDesk
    keys: KeyDesk
    deliveries: DeliveryDesk
    traces: TraceDesk
    trace_transfer: TraceTransferDesk
    people: PeopleDesk
    pairing: PairingDesk
    personal: PersonalDesk
    personalities: PersonalityDesk
