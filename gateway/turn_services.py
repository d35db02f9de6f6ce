"""What turns work with, and by what limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.agent.model import Model
from gateway.agent.tools import Toolbox
from gateway.commands import Commands
from gateway.entrance import Entrance
from gateway.history import History
from gateway.linking.people import People
from gateway.memory_proposals import ProposalStore
from gateway.memory_sync import MemorySync
from gateway.messages import Capabilities, ConversationRef
from gateway.outbox import Outbox
from gateway.parking import Parking
from gateway.personalities import Personalities
from gateway.presence import Presence
from gateway.protocols import ChannelAdapter, MemoryContext
from gateway.recall import Recall
from gateway.sessions import SessionScope, SessionStore
from gateway.turn_commit import TurnStore


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
