"""What the memory says, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.cli.client import connected
from gateway.cli.names import check_names, labels
from gateway.cli.output import local, print_diff, print_json, print_table, say
from gateway.services.caller import COMMAND_LINE

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.memory import Change, Document, FactOrigin, Proposal, StoreName

OUTSIDE = "(an editor)"
OPERATOR = "(the operator)"
_LOG_COLUMNS = ("id", "when", "who", "channel", "action", "outcome", "file", "turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Whose memory is meant, as far as it was said."""

    personality: str | None = None
    user: str | None = None
    store: StoreName | None = None

    def __post_init__(self) -> None:
        check_names(personality=self.personality, user=self.user)


async def show_memory(wanted: Wanted, *, as_json: bool) -> None:
    """Print the documents, each with its place, time and size."""
    async with connected() as client:
        documents = await _documents(client, wanted)
    if as_json:
        print_json([describe(one) for one in documents])
        return
    for index, one in enumerate(documents):
        size = f"{one.bytes:,} of at most {one.max_bytes:,} bytes ({one.bytes / one.max_bytes:.0%})"
        say(("\n" if index else "") + one.path)
        say(f"{local(one.modified_at)}, {size}" if one.modified_at else "Not there yet.")
        if one.content:
            say("\n" + one.content.removesuffix("\n"))


async def show_log(wanted: Wanted, *, limit: int, with_diff: bool, as_json: bool) -> None:
    """Print the newest changes, of the documents that are named or of all."""
    async with connected() as client:
        changes = await _changes(client, wanted, limit)
        names = {} if as_json else await labels(client)
    if as_json:
        print_json([change_value(change) for change in changes])
    elif not changes:
        say("No change yet.")
    elif with_diff:
        _print_diffs(changes, names)
    else:
        print_table(_LOG_COLUMNS, [_row(change, names) for change in changes], flexible=("turn", "file", "who"))


async def show_why(line: str, wanted: Wanted, *, as_json: bool) -> None:
    """Print the change that brought a line in, and the facts of the trace memory that hold its words."""
    async with connected() as client:
        origin = await client.memory.why(line, store=wanted.store, personality=wanted.personality, user=wanted.user)
        names = {} if as_json else await labels(client)
    change, proposal, facts = origin.change, origin.proposal, [_fact_value(fact) for fact in origin.facts]
    if as_json and change is None:
        print_json({"facts": facts})
    elif as_json and change is not None:
        told = None if proposal is None else _proposal_value(proposal)
        print_json({**change_value(change), "proposal": told, "facts": facts})
    else:
        if change is not None:
            _print_diffs([change], names)
        if proposal is not None:
            read = f", which had read: {', '.join(proposal.sources)}" if proposal.sources else ""
            by = names.get(proposal.decided_by or "", proposal.decided_by)
            say(f"\nProposed in turn {proposal.turn}{read}. Approved by {by}, {local(proposal.decided_at)}.")
        _print_facts(origin.facts)


async def _documents(client: AsyncEthos, wanted: Wanted) -> Sequence[Document]:
    """The one that is named, or both; before there are users there is only MEMORY.md."""
    from gateway.sdk.errors import NotFoundError

    async def document(store: StoreName) -> Document:
        return await client.memory.get(store, personality=wanted.personality, user=wanted.user)

    if wanted.store is not None:
        return [await document(wanted.store)]
    try:
        first = [await document("user")]
    except NotFoundError:  # where that is not the reason, the second says so, too
        first = []
    return [*first, await document("memory")]


async def _changes(client: AsyncEthos, wanted: Wanted, limit: int) -> Sequence[Change]:
    stores: tuple[StoreName | None, ...] = (wanted.store,)
    if wanted.store is None and wanted != Wanted():  # of the only one that was named, its own file
        named: dict[StoreName, str | None] = {"user": wanted.user, "memory": wanted.personality}
        stores = tuple(store for store, name in named.items() if name is not None)
    found: list[Change] = []
    for store in stores:
        asked = client.memory.history(store=store, personality=wanted.personality, user=wanted.user, limit=limit)
        found += [change async for change in asked]
    return found if len(stores) == 1 else sorted(found, key=lambda one: (one.at, one.id), reverse=True)[:limit]


def describe(document: Document) -> Mapping[str, Any]:
    """A document as the commands print it in JSON."""
    return {
        "store": document.store,
        "personality_id": document.personality,
        "user_id": document.user,
        "path": document.path,
        "modified_at": document.modified_at,
        "size_bytes": document.bytes,
        "max_bytes": document.max_bytes,
        "version": document.version,
        "content": document.content,
    }


def change_value(change: Change) -> Mapping[str, Any]:
    """A change as the commands print it in JSON."""
    return {
        "id": change.id,
        "at": change.at,
        "document": change.document,
        "personality_id": change.turn_personality,
        "user_id": change.turn_user,
        "channel": change.channel,
        "session_id": change.session,
        "turn_id": change.turn,
        "action": change.action,
        "content": change.content,
        "outcome": change.outcome,
        "hash_before": change.version_before,
        "hash_after": change.version_after,
        "diff": change.diff,
        "refers_to": change.refers_to,
        "author_id": change.author,
        "store": change.store,
    }


def _proposal_value(proposal: Proposal) -> Mapping[str, Any]:
    is_fact = proposal.fact is not None
    updates = (
        []
        if is_fact
        else [{"action": one.action, "store": proposal.store, "content": one.content} for one in proposal.updates]
    )
    return {
        "id": proposal.id,
        "scope": {
            "personality_id": proposal.personality,
            "user_id": proposal.user,
            "session_id": proposal.session,
            "turn_id": proposal.turn,
            "place": proposal.place,
            "channel": proposal.channel,
            "author_id": proposal.author,
        },
        "store": proposal.store,
        "updates": updates,
        "fact": proposal.fact,
        "part": proposal.part,
        "sources": proposal.sources,
        "state": proposal.state,
        "is_edited": proposal.is_edited,
        "proposed_at": proposal.proposed_at,
        "decided_at": proposal.decided_at,
        "decided_by": proposal.decided_by,
    }


def _fact_value(fact: FactOrigin) -> Mapping[str, Any]:
    return {
        "id": fact.trace,
        "text": fact.text,
        "at": fact.at,
        "source": fact.source,
        "turn_id": fact.turn,
        "channel": fact.channel,
        "proposal": fact.proposal,
    }


def _print_facts(facts: Sequence[FactOrigin]) -> None:
    for fact in facts:
        turn = "" if fact.turn is None else f", in turn {fact.turn}"
        proposal = "" if fact.proposal is None else f", approved as proposal {fact.proposal}"
        say(f"A fact of {local(fact.at)}, {fact.source}{turn}{proposal}:\n    {' '.join(fact.text.split())}")


def _row(change: Change, names: Mapping[str, str]) -> tuple[object, ...]:
    who, action, file = _who(change, names), _action(change), _file(change, names)
    return change.id, change.at, who, change.channel, action, change.outcome, file, change.turn


def _who(change: Change, names: Mapping[str, str]) -> str | None:
    if change.action == "edit":
        return OUTSIDE
    if change.channel == COMMAND_LINE or (change.author is None and change.action in {"write", "undo"}):
        return OPERATOR
    return names.get(change.author or "", change.author)


def _action(change: Change) -> str:
    """What was done; an `edit` that refers to a change brought back what the editor had not read, from that one on."""
    name = "merge" if change.action == "edit" and change.refers_to else change.action
    return f"{name} {change.refers_to}" if change.refers_to else name


def _file(change: Change, names: Mapping[str, str]) -> str | None:
    """The document for people, who may have many; its path is in the JSON."""
    user = names.get(change.user or "", change.user)
    if change.store == "user":
        return f"USER.md of {user}"
    if change.personality is None:
        return change.document or None
    return f"MEMORY.md of {change.personality}" + (f" for {user}" if user else "")


def _print_diffs(changes: Sequence[Change], names: Mapping[str, str]) -> None:
    for index, change in enumerate(changes):
        _, _, who, channel, action, outcome, document, turn = _row(change, names)
        told = [f"{change.id}", local(change.at), str(action), str(outcome), str(document or "-")]
        say(("\n" if index else "") + "  ".join(told))
        by = f"by {who or 'an unknown author'}" + (f" on {channel}" if channel else "")
        say(f"    {by}, turn {turn}")
        if change.diff:
            print_diff(change.diff)
