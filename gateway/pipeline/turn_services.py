"""What turns work with, and by what limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.agent.model import Model
from gateway.agent.tools import Toolbox
from gateway.domain.personalities import Personalities
from gateway.domain.sessions import SessionScope, SessionStore
from gateway.memory.proposals import ProposalStore
from gateway.memory.recall import Recall
from gateway.memory.sync import MemorySync
from gateway.messages import Capabilities, ConversationRef
from gateway.people.linking.linked_identities import People
from gateway.pipeline.admission import Entrance
from gateway.pipeline.commands import Commands
from gateway.pipeline.history import History
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.parking import Parking
from gateway.pipeline.presence import Presence
from gateway.pipeline.turn_commit import TurnStore
from gateway.protocols import ChannelAdapter, MemoryContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """Limits and defaults of a turn; times in seconds. `hide` takes out of a reason what nobody may see."""

    default_personality: str = "assistant"
    personality_of_channel: Callable[[str], str | None] = lambda _channel: None
    session_scope: SessionScope = "conversation"
    steps_per_turn: int = 12
    turn_timeout_s: float = 600.0
    max_message_chars: int = 100_000
    parked_expire_after_h: float = 168.0
    hide: Callable[[str], str] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a turn works with.

    Attributes:
        model: by the name of the configuration; None for the default.
        adapter: by the channel's name; None while it is not connected.
        capabilities: by the channel's name; None where there is no such channel.
        kind: by the channel's name: the platform, which is the first half of an identity's key.
        render_memory: makes the memory section of the prompt, of what is remembered and what is asked.
        recall: a memory that brings up facts by itself; None where there is none.
        reopened: told that a conversation has messages to answer, which were held back before.
    """

    store: TurnStore
    sessions: SessionStore
    history: History
    memory: MemorySync
    people: People
    entrance: Entrance
    personalities: Personalities
    commands: Commands
    toolbox: Toolbox
    parking: Parking
    presence: Presence
    model: Callable[[str | None], Model]
    adapter: Callable[[str], ChannelAdapter | None]
    capabilities: Callable[[str], Capabilities | None]
    kind: Callable[[str], str]
    render_memory: Callable[[MemoryContext, str], Awaitable[str | None]]
    outbox: Outbox
    reopened: Callable[[ConversationRef], None]
    proposals: ProposalStore
    recall: Recall | None = None
