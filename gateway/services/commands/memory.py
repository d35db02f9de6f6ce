"""What `/memory` says: it shows, explains, decides on proposals and takes back, all by asking `MemoryService`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.domain.visible import hidden_note, visible
from gateway.errors import MemoryConflict
from gateway.memory.proposals import buttons
from gateway.memory.review import NotReviewable
from gateway.messages import Action
from gateway.pipeline.commands import CommandResult
from gateway.services.caller import Caller, Refused

if TYPE_CHECKING:
    from gateway.sdk.models.memory import Change, FactOrigin, Origin, Proposal
    from gateway.services.memory import MemoryService

_FILES = {"user": "USER.md", "memory": "MEMORY.md", "traces": "a fact"}
_SHOWN = 10
_DIFF_CHARS = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCall:
    """What `/memory` is called with; `words` is what stands behind the subcommand."""

    service: MemoryService
    caller: Caller
    words: str
    personality_name: str

    @property
    def is_owner(self) -> bool:
        """Whether an owner asks."""
        return self.caller.chat is not None and self.caller.chat.role == "owner"


async def memory_command(call: MemoryCall) -> CommandResult:
    """Do what the first word says.

    Raises:
        EthosError: it cannot be done; the text says why, and what can.
    """
    name, _, words = call.words.strip().partition(" ")
    command, lacks = _COMMANDS.get(name.lower()), call.service.provider().lacks
    if command is None:
        return CommandResult(text=f"I know no `/memory {name}`. There is `{memory_usage(lacks)}`.")
    why = lacks.get(_NEEDS.get(name.lower(), ""))
    return CommandResult(text=why) if why else await command(replace(call, words=words.strip()))


def memory_usage(lacks: Container[str]) -> str:
    """How the command is typed, without what the memory lacks; see `MemoryKind`."""
    shown = [text for word, text in _USAGES.items() if _NEEDS.get(word) not in lacks]
    return f"/memory [{' | '.join(shown)}]"


async def _show(call: MemoryCall) -> CommandResult:
    from gateway.services.naming import Wanted  # noqa: PLC0415 (loaded with the services)

    user = (await call.service.get(call.caller, Wanted(store="user"))).content.strip()
    project = (await call.service.get(call.caller, Wanted(store="memory"))).content.strip()
    waiting = await call.service.waiting(call.caller)
    more = f"\n\n{waiting} waiting for a yes: `/memory proposals`." if waiting else ""
    only_read = call.service.provider().lacks.get("editable")
    more += f"\n\n{only_read}" if only_read else ""
    return CommandResult(
        text=f"**USER.md**, about you:\n\n{user or _NOTHING}\n\n"
        f"**MEMORY.md**, of {call.personality_name}:\n\n{project or _NOTHING}{more}"
    )


# ---- proposals ------------------------------------------------------------------------------------------------------


async def _proposals(call: MemoryCall) -> CommandResult:
    waiting = await call.service.proposals(call.caller)
    if not waiting:
        return CommandResult(text="Nothing waits for a yes.")
    shown = [_described(one, call) for one in waiting[:_SHOWN]]
    more = [f"And {len(waiting) - _SHOWN} more, after these."] if len(waiting) > _SHOWN else []
    how = "`/memory approve N` applies one, `/memory refuse N` lets it go, `/memory edit N text` edits its text."
    return CommandResult(text="\n\n".join([*shown, *more, how]), actions=_choices(waiting))


def _described(proposal: Proposal, call: MemoryCall) -> str:
    whose = "" if proposal.author == call.caller.user_id else f" by `{proposal.author}`"
    read = f"It had read: {', '.join(proposal.sources)}." if proposal.sources else "Every change is reviewed here."
    edited = " Edited." if proposal.is_edited else ""
    decider = "" if proposal.is_decidable else " The owner decides."
    return (
        f"**{proposal.id}**, {_FILES[proposal.store]} of {proposal.personality}, "
        f"{proposal.proposed_at:%Y-%m-%d %H:%M} UTC on `{proposal.channel}`{whose}. {read}{edited}{decider}\n"
        f"{_fenced(proposal.shown)}"
    )


def _choices(proposals: Sequence[Proposal]) -> tuple[Action, ...]:
    return buttons([one.id for one in proposals if one.is_decidable])


async def _approve(call: MemoryCall) -> CommandResult:
    return await _each(call, call.service.approve, "is in my memory now")


async def _refuse(call: MemoryCall) -> CommandResult:
    return await _each(call, call.service.refuse, "is refused; nothing of it is remembered")


async def _each(call: MemoryCall, decide: Callable[[Caller, int], Awaitable[Proposal]], done: str) -> CommandResult:
    """Each number alone: one that cannot be decided on holds up no other."""
    lines: list[str] = []
    for number in _numbers(call.words):
        try:
            decided = await decide(call.caller, number)
            lines.append(f"Proposal {decided.id} {_LATE if decided.is_late else done}.")
        except NotReviewable as error:
            lines.append(f"That did not work: {error}.")
    return CommandResult(text="\n".join(lines) or "Say which: `/memory proposals` shows the numbers.")


async def _edit(call: MemoryCall) -> CommandResult:
    number, _, text = call.words.partition(" ")
    if not number.isdecimal() or not text.strip():
        return CommandResult(text="Say which, and the text: `/memory edit 3 The release is on Friday.`")
    proposal = await call.service.edit(call.caller, int(number), text)
    return CommandResult(text=_described(proposal, call), actions=_choices([proposal]))


# ---- history --------------------------------------------------------------------------------------------------------


async def _why(call: MemoryCall) -> CommandResult:
    from gateway.services.naming import Wanted  # noqa: PLC0415 (loaded with the services)

    if not call.words:
        return CommandResult(text="Say a line of my memory, or a part of one: `/memory why Friday`.")
    origin = await call.service.why(call.caller, Wanted(), call.words)
    told = [f"A fact, {one.at:%Y-%m-%d %H:%M} UTC, {_quietly(one)}:\n{_fenced(one.text)}" for one in origin.facts]
    if origin.change is not None:
        what = _in_words(origin.change.diff, added="It added:", removed="It took away:")
        told.insert(0, f"{_origin_text(origin, origin.change, call)}\n{what}")
    return CommandResult(text="\n\n".join(told))


async def _log(call: MemoryCall) -> CommandResult:
    changes = await call.service.history(call.caller, None, limit=_SHOWN)
    if not changes:
        return CommandResult(text="No change yet.")
    lines = [
        f"- **{one.id}** {_FILES[one.store or 'memory']}, {one.at:%Y-%m-%d %H:%M} UTC: {_action(one)}, {_by(one, call)}"
        for one in changes
    ]
    return CommandResult(text="\n".join([*lines, "", "`/memory undo N` takes one back."]))


async def _undo(call: MemoryCall) -> CommandResult:
    if call.words and not call.words.isdecimal():
        return CommandResult(text="Say the number of a change: `/memory log` shows them. Without one, it is the last.")
    try:
        undone = await call.service.take_back(call.caller, int(call.words) if call.words else None)
    except MemoryConflict as conflict:
        raise Refused(
            "the memory has changed since, so nothing was taken back. Take back the later changes first"
        ) from conflict
    what = _in_words(undone.diff, added="It had added this, which is gone:", removed="This is back:")
    return CommandResult(text=f"Change {undone.id} is taken back. {what}")


_LATE = "is approved, and comes into my memory as soon as that can be written"
_NOTHING = "_Nothing yet._"
_USAGES: Mapping[str, str] = {
    "proposals": "proposals",
    "approve": "approve N",
    "refuse": "refuse N",
    "edit": "edit N text",
    "why": "why words",
    "log": "log",
    "undo": "undo [N]",
}
_NEEDS: Mapping[str, str] = {"why": "origins", "log": "history", "undo": "history"}
"""What of a memory, by its name in `MemoryKind`."""
_COMMANDS: dict[str, Callable[[MemoryCall], Awaitable[CommandResult]]] = {
    "": _show,
    "proposals": _proposals,
    "approve": _approve,
    "refuse": _refuse,
    "edit": _edit,
    "why": _why,
    "log": _log,
    "undo": _undo,
}


def _quietly(fact: FactOrigin) -> str:
    """Where it comes from; a name in it is data and no Markdown."""
    turn = "" if fact.turn is None else f", in turn `{fact.turn}`"
    proposal = "" if fact.proposal is None else f", approved as proposal {fact.proposal}"
    source = fact.source.replace("`", "'")
    return f"`{source}`{turn}{proposal}"


def _origin_text(origin: Origin, change: Change, call: MemoryCall) -> str:
    """Turn, time, channel and author of a change, and how it came through a review."""
    proposal = origin.proposal
    text = (
        f"Change {change.id}, {change.at:%Y-%m-%d %H:%M} UTC, {_by(change, call)}, on `{change.channel or '-'}`, "
        f"in turn `{origin.turn}`."
    )
    if proposal is None:
        return text
    read = f" It had read: {', '.join(proposal.sources)}." if proposal.sources else ""
    by = "you" if proposal.decided_by == call.caller.user_id else "the owner"
    return f"{text}{read} Proposal {proposal.id}, approved by {by}."


def _by(change: Change, call: MemoryCall) -> str:
    """The author, as far as the service says who that is."""
    if change.author is not None:
        return "by you" if change.author == call.caller.user_id else f"by `{change.author}`"
    if change.action == "edit":
        return "by hand, in an editor"
    return "by an unknown author" if call.is_owner else "by another person"


def _action(change: Change) -> str:
    if change.action == "edit" and change.refers_to is not None:
        return "merge"  # brought back what the editor had not read
    return f"undo of {change.refers_to}" if change.action == "undo" else change.action


def _numbers(words: str) -> Sequence[int]:
    return [int(word) for word in words.replace(",", " ").split() if word.isdecimal() and len(word) < 18]


def _in_words(diff: str, *, added: str, removed: str) -> str:
    """What a change did, for people who read no diffs."""
    parts = []
    for title, sign in ((added, "+"), (removed, "-")):
        text = "\n".join(line[1:] for line in diff.split("\n") if line[:1] == sign).strip("\n")
        if text.strip():
            parts.append(f"{title}\n{_fenced(text, language='')}")
    return "\n".join(parts)


def _fenced(diff: str, *, language: str = "diff") -> str:
    """Lines in a fence that they cannot end, nothing of it hidden, and not too many for a message."""
    note, diff = hidden_note(diff), visible(diff)
    if len(diff) > _DIFF_CHARS:
        diff = f"{diff[:_DIFF_CHARS]}\n[... {len(diff) - _DIFF_CHARS} more characters]"
    fence = "```"
    while fence in diff:
        fence += "`"
    return f"{fence}{language}\n{diff}\n{fence}" + (f"\n**It {note}**, shown as `⟨U+...⟩`." if note else "")
