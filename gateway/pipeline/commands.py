"""What a turn asks of the chat commands, and what they answer; the commands themselves are in `services/commands/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.domain.personalities import Personality
from gateway.domain.roles import Role
from gateway.domain.sessions import Session, SessionMessage
from gateway.messages import Action, Attachment, ConversationRef, InboundMessage, OutboundMessage
from gateway.people.access_records import PeopleChange
from gateway.protocols import CommandInfo

PAIR = "pair"
CHOOSE = "choose"
CANCEL = "cancel"
STOPPED = "Stopped."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """What a command is called with.

    Attributes:
        turn_id: the same however often it is tried.
        account: the sender's, `kind:id`.
        role: what the writer may do.
        is_proved: the platform proves who wrote it; it is not merely claimed.
        session: the active one; new, and not yet stored, where there is none.
        had_effect: for `/stop` and `/retry`: a turn was running, or waited, and was acted on when they arrived.
    """

    arguments: str
    message: InboundMessage
    turn_id: str
    account: str
    user_id: str
    role: Role
    session: Session
    personality: Personality
    is_proved: bool
    had_effect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command answers.

    Attributes:
        session: to be stored, and to be the active one.
        ask_again: the agent is to answer the last message of the session once more.
        chosen: the agent is to answer this choice, by its number and the turn that offered it, if it is open.
        actions: choices that the answer offers.
        messages: of the session, as the agent reads them from now on; `session` is to be stored with them.
        codes: in the answer.
        notices: for others.
        people: who is let in.
        woken: conversations in which messages get their turn now.
        then: to be called once the answer is committed.
    """

    text: str
    session: Session | None = None
    ask_again: bool = False
    chosen: tuple[int, str] | None = None
    messages: tuple[SessionMessage, ...] = ()
    actions: tuple[Action, ...] = ()
    codes: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    notices: tuple[OutboundMessage, ...] = ()
    people: PeopleChange | None = None
    woken: tuple[ConversationRef, ...] = ()
    then: Callable[[], None] | None = None


class ChatCommands(Protocol):
    """All chat commands, by name; see `gateway.services.commands.Commands`."""

    @property
    def infos(self) -> Sequence[CommandInfo]:
        """For menus and completion."""

    async def run(self, name: str, call: CommandCall) -> CommandResult:
        """Do it; an error on purpose becomes the answer."""


def chosen_by(number: int, turn_id: str, label: str) -> Action:
    """The button of one choice that a turn offers."""
    return Action(id=f"{CHOOSE} {number} {turn_id}", label=label)


def stopped(message: InboundMessage) -> str:
    """The answer to a message that was stopped before anything was written.

    The answer to `/stop` tells the person. This one has no text and only ends the wait of a client; the menu of a
    platform waits for words.
    """
    return STOPPED if message.command is not None else ""


def gave_up(timeout_s: float) -> str:
    """What the person is told when the time of a turn was over."""
    return f"I gave up: the answer took longer than {timeout_s:g} seconds. `/retry` tries again."
