"""What `/memory` does: show, explain, decide on proposals, take back. The rules are those of `memory/review.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gateway.domain.visible import hidden_note, visible
from gateway.errors import MemoryConflict
from gateway.memory.proposals import Proposal, Reviewer, choices
from gateway.memory.review import FactOrigin, MemoryChange, MemoryReview, NotReviewable, Origin
from gateway.messages import Action
from gateway.protocols import MemoryProvider, MemoryScope, MemoryStoreName

USAGE = "/memory [proposals | approve N | refuse N | edit N text | why words | log | undo [N]]"
_FILES: dict[MemoryStoreName, str] = {"user": "USER.md", "memory": "MEMORY.md"}
_SHOWN = 10
_DIFF_CHARS = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer:
    """What the person is told; `actions` are the decisions that they may make."""

    text: str
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCall:
    """What `/memory` is called with; the scope has the turn of the command, and the personality that answers."""

    words: str
    scope: MemoryScope
    reviewer: Reviewer
    personality_name: str


class MemoryCommands:
    """The subcommands of `/memory`."""

    def __init__(self, memory: MemoryProvider, review: MemoryReview) -> None:
        self._memory = memory
        self._review = review
        self._commands: dict[str, Callable[[MemoryCall], Awaitable[MemoryAnswer]]] = {
            "": self._show,
            "proposals": self._proposals,
            "approve": self._approve,
            "refuse": self._refuse,
            "edit": self._edit,
            "why": self._why,
            "log": self._log,
            "undo": self._undo,
        }

    async def run(self, arguments: str, call: MemoryCall) -> MemoryAnswer:
        """Do what the first word says.

        Raises:
            MemoryError_: it cannot be done; the text says why, and what can.
        """
        name, _, words = arguments.strip().partition(" ")
        command = self._commands.get(name.lower())
        if command is None:
            return MemoryAnswer(text=f"I know no `/memory {name}`. There is `{USAGE}`.")
        return await command(
            MemoryCall(
                words=words.strip(),
                scope=call.scope,
                reviewer=call.reviewer,
                personality_name=call.personality_name,
            )
        )

    async def _show(self, call: MemoryCall) -> MemoryAnswer:
        context = await self._memory.prefetch(call.scope)
        user = (context.user_memory if context else None) or "_Nothing yet._"
        project = (context.project_memory if context else None) or "_Nothing yet._"
        waiting = len(await self._review.waiting(call.reviewer))
        more = f"\n\n{waiting} waiting for a yes: `/memory proposals`." if waiting else ""
        return MemoryAnswer(
            text=f"**USER.md**, about you:\n\n{user.strip()}\n\n"
            f"**MEMORY.md**, of {call.personality_name}:\n\n{project.strip()}{more}"
        )

    # ---- proposals --------------------------------------------------------------------------------------------------

    async def _proposals(self, call: MemoryCall) -> MemoryAnswer:
        waiting = await self._review.waiting(call.reviewer)
        if not waiting:
            return MemoryAnswer(text="Nothing waits for a yes.")
        shown = [await self._described(one, call.reviewer) for one in waiting[:_SHOWN]]
        more = [f"And {len(waiting) - _SHOWN} more, after these."] if len(waiting) > _SHOWN else []
        how = "`/memory approve N` applies one, `/memory refuse N` lets it go, `/memory edit N text` edits its text."
        return MemoryAnswer(text="\n\n".join([*shown, *more, how]), actions=choices(waiting, call.reviewer))

    async def _described(self, proposal: Proposal, reviewer: Reviewer) -> str:
        whose = "" if proposal.scope.author_id == reviewer.user_id else f" by `{proposal.scope.author_id}`"
        read = f"It had read: {', '.join(proposal.sources)}." if proposal.sources else "Every change is reviewed here."
        edited = " Edited." if proposal.is_edited else ""
        decider = "" if reviewer.may_decide(proposal) else " The owner decides."
        return (
            f"**{proposal.id}**, {_what(proposal)} of {proposal.scope.personality_id}, "
            f"{proposal.proposed_at:%Y-%m-%d %H:%M} UTC on `{proposal.scope.channel}`{whose}. {read}{edited}{decider}\n"
            f"{_fenced(await self._review.difference(proposal) or 'It would change nothing now.')}"
        )

    async def _approve(self, call: MemoryCall) -> MemoryAnswer:
        return await self._decided(call, self._review.approve, "is in my memory now")

    async def _refuse(self, call: MemoryCall) -> MemoryAnswer:
        return await self._decided(call, self._review.refuse, "is refused; nothing of it is remembered")

    async def _decided(
        self, call: MemoryCall, decide: Callable[[int, Reviewer], Awaitable[Proposal]], done: str
    ) -> MemoryAnswer:
        """Each number alone: one that cannot be decided on holds up no other."""
        lines: list[str] = []
        for number in _numbers(call.words):
            try:
                decided = await decide(number, call.reviewer)
                lines.append(f"Proposal {decided.id} {done}.")
            except NotReviewable as error:
                lines.append(f"That did not work: {error}.")
        return MemoryAnswer(text="\n".join(lines) or "Say which: `/memory proposals` shows the numbers.")

    async def _edit(self, call: MemoryCall) -> MemoryAnswer:
        number, _, text = call.words.partition(" ")
        if not number.isdecimal() or not text.strip():
            return MemoryAnswer(text="Say which, and the text: `/memory edit 3 The release is on Friday.`")
        proposal = await self._review.edit(int(number), text, call.reviewer)
        return MemoryAnswer(
            text=await self._described(proposal, call.reviewer), actions=choices([proposal], call.reviewer)
        )

    # ---- history ----------------------------------------------------------------------------------------------------

    async def _why(self, call: MemoryCall) -> MemoryAnswer:
        if not call.words:
            return MemoryAnswer(text="Say a line of my memory, or a part of one: `/memory why Friday`.")
        facts = await self._review.facts_about(call.scope, call.reviewer.role, call.words)
        told = [f"A fact, {one.at:%Y-%m-%d %H:%M} UTC, {_quietly(one)}:\n{_fenced(one.text)}" for one in facts]
        try:
            origin = await self._review.why(call.scope, call.words)
        except NotReviewable:
            if not told:
                raise
        else:
            what = _in_words(origin.change.diff, added="It added:", removed="It took away:")
            told.insert(0, f"{_origin_text(origin, call.reviewer)}\n{what}")
        return MemoryAnswer(text="\n\n".join(told))

    async def _log(self, call: MemoryCall) -> MemoryAnswer:
        changes = await self._review.log(call.scope, _SHOWN)
        if not changes:
            return MemoryAnswer(text="No change yet.")
        lines = [
            f"- **{one.id}** {_FILES[store]}, {one.at:%Y-%m-%d %H:%M} UTC: {_action(one)}, {_by(one, call.reviewer)}"
            for store, one in changes
        ]
        return MemoryAnswer(text="\n".join([*lines, "", "`/memory undo N` takes one back."]))

    async def _undo(self, call: MemoryCall) -> MemoryAnswer:
        if call.words and not call.words.isdecimal():
            return MemoryAnswer(
                text="Say the number of a change: `/memory log` shows them. Without one, it is the last."
            )
        wanted = int(call.words) if call.words else None
        try:
            undone = await self._review.undo(call.scope, call.reviewer, wanted)
        except MemoryConflict as conflict:
            raise NotReviewable(
                "the memory has changed since, so nothing was taken back. Take back the later changes first"
            ) from conflict
        what = _in_words(undone.diff, added="It had added this, which is gone:", removed="This is back:")
        return MemoryAnswer(text=f"Change {undone.id} is taken back. {what}")


def _what(proposal: Proposal) -> str:
    return "a fact" if proposal.store == "traces" else _FILES[proposal.store]


def _quietly(fact: FactOrigin) -> str:
    """Where it comes from; a name in it is data and no Markdown."""
    turn = "" if fact.turn_id is None else f", in turn `{fact.turn_id}`"
    proposal = "" if fact.proposal is None else f", approved as proposal {fact.proposal}"
    source = fact.source.replace("`", "'")
    return f"`{source}`{turn}{proposal}"


def _origin_text(origin: Origin, reviewer: Reviewer) -> str:
    """Turn, time, channel and author of a change, and how it came through a review."""
    change, proposal = origin.change, origin.proposal
    text = (
        f"Change {change.id}, {change.at:%Y-%m-%d %H:%M} UTC, {_by(change, reviewer)}, on `{change.channel or '-'}`, "
        f"in turn `{origin.turn_id}`."
    )
    if proposal is None:
        return text
    read = f" It had read: {', '.join(proposal.sources)}." if proposal.sources else ""
    by = "you" if proposal.decided_by == reviewer.user_id else "the owner"
    return f"{text}{read} Proposal {proposal.id}, approved by {by}."


def _by(change: MemoryChange, reviewer: Reviewer) -> str:
    """The author; only the owner is told of others who they are."""
    if change.author_id is None:
        return "by hand, in an editor" if change.action == "edit" else "by an unknown author"
    if change.author_id == reviewer.user_id:
        return "by you"
    return f"by `{change.author_id}`" if reviewer.role == "owner" else "by another person"


def _action(change: MemoryChange) -> str:
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
