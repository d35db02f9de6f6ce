"""What a person is told of calls that wait for a yes: the gateway's own words, never the model's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.approvals.approval import Approval, Decider
from gateway.domain.visible import visible
from gateway.messages import Action, Attachment, ConversationRef, OutboundMessage

SHOWN_CHARS = 1_500
"""More of the arguments than this is not shown in a chat, and then a chat has no Yes for them."""
MAX_BUTTONS = 2
"""Approvals that one message has buttons for."""
NO_FILES: Mapping[int, Attachment] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChat:
    """A direct chat in which an owner is asked.

    Attributes:
        is_proved: it proves who writes.
        files: as `described` has them, that its channel takes.
    """

    conversation: ConversationRef
    is_proved: bool
    files: Mapping[int, Attachment]


def is_shown_whole(approval: Approval) -> bool:
    """Whether the person sees all of what a yes would do."""
    return len(pretty(approval)) <= SHOWN_CHARS


def described(approval: Approval, files: Mapping[int, Attachment] = NO_FILES) -> str:
    """Tool, all arguments, what had been read, and until when.

    Args:
        files: by number, those with all arguments that go with the message.
    """
    text = pretty(approval)
    if len(text) > SHOWN_CHARS:
        number = approval.id
        whole = f" The file {files[number].filename} has all of them." if number in files else ""
        how = f"`ethos approvals show {number}` shows them, and `ethos approvals yes {number}` says yes."
        text = f"{text[:SHOWN_CHARS]}\n… {len(text)} characters in all.{whole} On the machine, {how}"
    by = f"\nSchedule {approval.schedule_id} wants it; **Always** holds for it alone." if approval.schedule_id else ""
    because = f"\nBecause I had read: {', '.join(approval.sources)}." if approval.sources else ""
    fence = "```"
    while fence in text:
        fence += "`"
    return (
        f"Number {approval.id}: `{approval.tool}` with\n{fence}\n{text}\n{fence}{by}{because}\n"
        f"It waits until {approval.expires_at:%Y-%m-%d %H:%M} UTC."
    )


def decided_by(decider: Decider, approvals: Sequence[Approval]) -> Sequence[Approval]:
    """Those that are shown to the person who asked; none where others read along."""
    return [one for one in approvals if decider.is_direct and decider.may_grant(one)]


def notice(approvals: Sequence[Approval], decider: Decider, files: Mapping[int, Attachment] = NO_FILES) -> str:
    """What stands below the answer that asked; nothing of the calls where others read along."""
    if not approvals:
        return ""
    mine = decided_by(decider, approvals)
    if not mine:
        numbers = " and ".join(str(one.id) for one in approvals)
        whose = "the owner's" if any(one.approver == "owner" for one in approvals) else "your"
        return f"\n\n_What I want to do waits for {whose} yes, in a direct chat: number {numbers}._"
    texts = "\n\n".join(described(one, files) for one in mine)
    return f"\n\n**This waits for your yes.**\n\n{texts}\n{_how(mine)}"


def questions_for_owners(
    approvals: Sequence[Approval], who: str, chats: Iterable[OwnerChat], turn_id: str
) -> list[OutboundMessage]:
    """What owners are asked in chats of their own; `who` asked for it."""
    asked = []
    for number, chat in enumerate(chats if approvals else ()):
        owner = Decider(user_ids=frozenset(), role="owner", is_verified=chat.is_proved)
        text, buttons = _question(approvals, who, owner, chat.files)
        name, files = f"{turn_id}.approval-{number}", tuple(chat.files.values())
        asked.append(
            OutboundMessage(id=name, conversation=chat.conversation, text=text, actions=buttons, attachments=files)
        )
    return asked


def _question(
    approvals: Sequence[Approval], who: str, owner: Decider, files: Mapping[int, Attachment]
) -> tuple[str, tuple[Action, ...]]:
    texts = "\n\n".join(described(one, files) for one in approvals)
    how = _how(approvals)
    if not owner.is_verified:
        how = f"Here you can only say no: `/no {approvals[0].id}`. Say yes on a channel that proves who you are."
    return f"**This waits for your yes.** {who} asked me for it.\n\n{texts}\n{how}", choices(approvals, owner)


def choices(approvals: Sequence[Approval], decider: Decider) -> tuple[Action, ...]:
    """The same as buttons; no Yes where not all is shown. Nothing is preselected.

    A yes to all names the numbers, and stands only where the person may decide on each and each is shown whole.
    """
    if not decider.is_direct:
        return ()
    mine = [one for one in approvals if decider.may_grant(one) or decider.is_owner]
    several = len(mine) > 1
    buttons = []
    for one in mine[:MAX_BUTTONS]:
        if is_shown_whole(one) and decider.may_grant(one):
            buttons.append(("yes", "Yes", one))
            if not several and one.may_be_granted(by_owner=decider.is_owner):
                buttons += [("yes here", "For this conversation", one), ("yes always", "Always", one)]
        buttons.append(("no", "No", one))
    actions = [
        Action(id=f"{verb} {one.id}", label=f"{label} {one.id}" if several else label) for verb, label, one in buttons
    ]
    if several and all(is_shown_whole(one) and decider.may_grant(one) for one in mine):
        actions.append(Action(id=f"yes {_numbers(mine)}", label="Yes to all"))
    return tuple(actions)


def _how(approvals: Sequence[Approval]) -> str:
    """What the buttons do, as it is typed."""
    numbers = _numbers(approvals)
    one = f"`/yes {approvals[0].id}`, " if len(approvals) > 1 and all(map(is_shown_whole, approvals)) else ""
    return f"{one}`/yes {numbers}`, `/no {numbers}`, `/approvals`"


def _numbers(approvals: Sequence[Approval]) -> str:
    return " ".join(str(one.id) for one in approvals)


def pretty(approval: Approval) -> str:
    """All arguments, a line or more for each; what nobody would see is named."""
    return visible(
        "\n".join(
            f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for name, value in json.loads(approval.arguments).items()
        )
    )
