"""`/yes`, `/no` and `/approvals`: what waits for a yes, and the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.approvals.approval import MOST_OF_PERSON, Approval, Decider, Grant, GrantScope
from gateway.approvals.telling import choices, described, is_shown_whole, notice
from gateway.domain.visible import as_name, visible
from gateway.errors import EthosError
from gateway.messages import Action, Attachment
from gateway.pipeline.commands import CommandCall, CommandResult
from gateway.services.caller import Expired, Malformed, Refused

if TYPE_CHECKING:
    from gateway.services.approvals import ApprovalService

SHOWN = 5
_SCOPES: Mapping[str, GrantScope] = {"here": "conversation", "always": "always"}


async def listed(
    service: ApprovalService, waiting: Sequence[Approval], grants: Sequence[Grant], decider: Decider, channel: str
) -> CommandResult:
    """What waits, with buttons for the first; and what is not asked for any more."""
    shown = waiting[:SHOWN]
    files = await service.files(shown, channel) if decider.is_direct else {}
    text = _list_text(waiting, grants, files)
    return CommandResult(text=text, actions=choices(waiting[:1], decider), attachments=tuple(files.values()))


def _list_text(waiting: Sequence[Approval], grants: Sequence[Grant], files: Mapping[int, Attachment]) -> str:
    spared = "".join(f"\n- {one.id}: {_granted(one)}" for one in grants)
    how = f"`/approvals revoke {grants[0].id}` ends it." if grants else ""
    below = f"\n\nNot asked for any more, by your yes:{spared}\n{how}" if grants else ""
    if not waiting:
        return f"Nothing waits for a yes.{below}"
    texts = [described(one, files) for one in waiting[:SHOWN]]
    more = [] if len(waiting) <= SHOWN else [f"{len(waiting) - SHOWN} more wait."]
    how = f"`/yes {waiting[0].id}` has it done, `/no {waiting[0].id}` drops it."
    return "\n\n".join([*texts, *more, how]) + below


def _granted(grant: Grant) -> str:
    whom = f" with {visible(grant.destination)}" if grant.destination else ""
    until = "" if grant.until_at is None else f", in one conversation until {grant.until_at:%Y-%m-%d %H:%M} UTC"
    by = "" if grant.schedule_id is None else f", by schedule {grant.schedule_id} alone"
    return f"`{grant.tool}`{whom}{until}{by}"


async def revoke(service: ApprovalService, user_id: str, word: str) -> CommandResult:
    """End one grant."""
    grant = await service.revoke(user_id, _number(word, "/approvals revoke 3"))
    return CommandResult(text=f"From now on I ask again before I use {_granted(grant)}.")


async def ask_again(service: ApprovalService, decider: Decider, word: str, call: CommandCall) -> CommandResult:
    """Ask once more for what has expired: here, or the owners where the person may not decide, or not here."""
    again = await service.ask_again(decider, _number(word, "/approvals again 3"))
    if decider.may_grant(again):
        return await listed(service, [again], (), decider, call.message.conversation.channel)
    who = as_name(call.message.sender.display_name)
    notices = await service.questions(again, who, call.turn_id) if again.approver == "owner" else ()
    return CommandResult(text=notice([again], decider).strip(), notices=tuple(notices))


async def decide(service: ApprovalService, decider: Decider, arguments: str, *, is_yes: bool) -> CommandResult:
    """One of them, or several; without a number the only one that waits."""
    words = arguments.split()
    scope = _SCOPES.get(words[0]) if words and is_yes else None
    numbers = words if scope is None else words[1:]
    if len(numbers) > 1:
        if scope is not None:
            raise Malformed(f"`/yes {words[0]}` takes one number, since it spares later questions, too")
        return await _decide_each(service, decider, numbers, is_yes=is_yes)
    word = "".join(numbers)
    if not word:
        waiting = await service.waiting(decider)
        if len(waiting) != 1:
            raise Malformed("say which number; `/approvals` lists what waits" if waiting else "nothing waits for a yes")
        word = str(waiting[0].id)
    number = _number(word, "/yes 3" if is_yes else "/no 3")
    try:
        await (service.yes(decider, number, scope=scope) if is_yes else service.no(decider, number))
    except Expired as error:
        if not is_yes or not decider.may_ask_again(await service.get(decider, number)):
            raise
        command = f"approvals again {number}"
        text = f"That did not work: {error}: `/{command}`"
        return CommandResult(text=text, actions=(Action(id=command, label="Ask again"),))
    if is_yes:
        spared = {None: "", "always": " I do not ask for it again.", "conversation": " I do not ask again here today."}
        return CommandResult(text=f"Number {word} has its yes; I do it now.{spared[scope]}")
    return CommandResult(text=f"Number {word} is dropped; it is never done.")


async def _decide_each(
    service: ApprovalService, decider: Decider, words: Sequence[str], *, is_yes: bool
) -> CommandResult:
    """Each by itself, durably, in this order; what cannot be decided is passed over and named.

    After a crash it is done again, and those that have their yes are passed over.
    """
    done, left = [], []
    example = "/yes 3 4 5" if is_yes else "/no 3 4 5"
    for number in dict.fromkeys(_number(word, example) for word in words[:MOST_OF_PERSON]):
        try:
            if is_yes and not is_shown_whole(await service.get(decider, number)):
                raise Refused(f"number {number} is too long to be shown whole; decide on it alone: `/yes {number}`")
            await (service.yes(decider, number) if is_yes else service.no(decider, number))
        except EthosError as error:
            left.append(f"\n- {error}")
        else:
            done.append(str(number))
    what = "have their yes; I do them now" if is_yes else "are dropped; they are never done"
    text = f"These {what}: {', '.join(done)}." if done else "Nothing was decided."
    passed_over = "\nPassed over:" if left else ""
    return CommandResult(text=text + passed_over + "".join(dict.fromkeys(left)))


def _number(word: str, example: str) -> int:
    if not word.isdecimal() or len(word) > 18:
        raise Malformed(f"say which number: `{example}`; `/approvals` lists them")
    return int(word)
