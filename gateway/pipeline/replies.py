"""What people are sent when a turn ends: the answer with all that stands below it, and what the owners are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.agent.state import AgentState
from gateway.approvals.telling import choices, decided_by, notice, questions_for_owners
from gateway.approvals.whole import WholeCalls
from gateway.domain.heard import Heard, before_answer
from gateway.domain.visible import as_name
from gateway.memory.proposals import SettledMemory
from gateway.messages import OutboundMessage
from gateway.people.pairing import Pairing
from gateway.pipeline.commands import STOPPED, chosen_by, stopped
from gateway.pipeline.commit import Committer, reply_to
from gateway.pipeline.server_questions import question_buttons, question_text
from gateway.tools.forms import OpenQuestion
from gateway.tools.resting import MOST_FAULTS, RESTS_S, WITHIN_S

if TYPE_CHECKING:
    from gateway.pipeline.open_turn import Turn

UNREAD = "I could not read my memory just now, so this answer was given without it."
"""What the person is told below an answer."""
_NOTED = " What I am to remember now is kept, and written as soon as the memory is back."
_RESTS = (
    f"{{}} broke {MOST_FAULTS} times within {WITHIN_S / 60:.0f} minutes, and rests for {RESTS_S / 60:.0f} minutes. "
    f"`ethos tools log` shows the calls."
)
_UNCERTAIN = "I do not know whether this took effect: {}. Please look before you ask for it again."


def unread_notice(memory: SettledMemory) -> str:
    """What stands below an answer that was given without the memory."""
    return f"\n\n_{UNREAD}{_NOTED if memory.applied else ''}_"


class Replies:
    """Puts together what is sent when the agent has answered."""

    def __init__(self, committer: Committer, whole_calls: WholeCalls, pairing: Pairing) -> None:
        self._committer = committer
        self._whole_calls = whole_calls
        self._pairing = pairing

    def text(self, turn: Turn, state: AgentState, ending: str | None, heard: Sequence[Heard]) -> str:
        """The answer itself; `ending` is why it was broken off, `heard` what was heard of recordings."""
        if turn.scheduled is not None and turn.scheduled.is_watch:
            text = turn.scheduled.reported(state)
        elif ending == STOPPED:
            text = state.text.strip() or stopped(turn.message)
        else:
            text = (state.text + self._committer.in_form(f"\n\n{ending or ''}", turn.message)).strip()
            done = "Done." if turn.scheduled is None else turn.scheduled.done
            text = text if text or state.choosing else done
        if state.uncertain:
            text += f"\n\n_{_UNCERTAIN.format(', '.join(dict.fromkeys(state.uncertain)))}_"
        if turn.scheduled is not None and text:
            text += turn.scheduled.late
        return before_answer(heard) + text if text else text

    async def at_end(
        self, turn: Turn, state: AgentState, text: str, memory: SettledMemory, asked: OpenQuestion | None
    ) -> tuple[OutboundMessage, ...]:
        """The answer with what stands below it, and what the owners are told in chats of their own.

        Args:
            asked: what a server wants to know.
        """
        return (await self._answer(turn, state, text, memory, asked), *await self._for_owners(turn, state))

    async def _answer(
        self, turn: Turn, state: AgentState, text: str, memory: SettledMemory, asked: OpenQuestion | None
    ) -> OutboundMessage:
        """With a question, what waits for a yes, their buttons, and files."""
        taken_bytes = sum(file.size_bytes for file in state.files)
        mine = decided_by(turn.decider, state.asks)
        whole = await self._whole_calls.files(mine, turn.message.conversation.channel, taken_bytes=taken_bytes)
        text = "\n\n".join([text, *(one.question for one in state.choosing)])
        by_server = "" if asked is None else f"\n\n{question_text(asked)}"
        told = [*(state.below.values() if turn.message.is_direct else ()), *state.below_for_all.values()]
        said = "".join(f"\n\n{each}" for each in told)
        below = memory.notice + notice(state.asks, turn.decider, whole) + said + by_server
        offered = [choice for one in state.choosing for choice in one.choices] if asked is None else []
        buttons = (
            *(chosen_by(number, turn.row.turn_id, label) for number, label in enumerate(offered, start=1)),
            *state.buttons,
            *memory.choices,
            *choices(state.asks, turn.decider),
            *(() if asked is None else question_buttons(asked)),
        )
        whole_text = (text + self._committer.in_form(below, turn.message)).strip()
        reply = reply_to(turn.row, whole_text, "reply", buttons, state.codes)
        return replace(reply, attachments=(*state.files, *whole.values()))

    async def _for_owners(self, turn: Turn, state: AgentState) -> tuple[OutboundMessage, ...]:
        """They are asked what the person may not decide, or not there, and hear of tools that rest."""
        asked = [one for one in state.asks if one.approver == "owner" and not turn.decider.may_grant(one)]
        if not asked and not state.rested:
            return ()
        who, turn_id = as_name(turn.message.sender.display_name), turn.row.turn_id
        chats = await self._pairing.owner_chats()
        told = questions_for_owners(asked, who, await self._whole_calls.owner_chats(chats, asked), turn_id)
        for number, chat in enumerate(chats if state.rested else ()):
            text = _RESTS.format(", ".join(f"`{tool}`" for tool in state.rested))
            told.append(OutboundMessage(id=f"{turn_id}.rests-{number}", conversation=chat, text=text))
        return self._committer.notices(told)
