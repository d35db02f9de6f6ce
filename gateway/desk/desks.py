"""All desks of one gateway."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.desk.chat import ChatDesk
from gateway.desk.deliveries import DeliveryDesk
from gateway.desk.keys import KeyDesk
from gateway.desk.memory import MemoryDesk
from gateway.desk.naming import Naming
from gateway.desk.pairing import PairingDesk
from gateway.desk.people import PeopleDesk
from gateway.desk.personal import PersonalDesk
from gateway.desk.personalities import PersonalityDesk
from gateway.desk.sessions import SessionDesk
from gateway.desk.system import SystemDesk
from gateway.desk.trace_transfer import TraceTransferDesk
from gateway.desk.traces import TraceDesk


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
