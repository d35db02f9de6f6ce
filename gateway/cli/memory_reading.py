"""What the memory says, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gateway.cli.data import opened_memory, opened_store, operator_config
from gateway.cli.memory_traces import facts_about
from gateway.cli.named import CHANNEL, NotNamed, Wanted, find_memory, labels
from gateway.cli.output import local, print_diff, print_json, print_table, say
from gateway.files.home import data_directory
from gateway.memory.history import HistoryEntry
from gateway.memory.proposals import Proposal, proposal_number
from gateway.memory.review import FactOrigin
from gateway.protocols import MemoryDocument, MemoryScope, MemoryStoreName

OUTSIDE = "(an editor)"
OPERATOR = "(the operator)"
_LOG_COLUMNS = ("id", "when", "who", "channel", "action", "outcome", "file", "turn")


async def show_memory(wanted: Wanted, *, as_json: bool) -> None:
    """Print the documents, each with its place, time and size."""
    home = data_directory()
    config = operator_config(home)
    scope, stores = await find_memory(home, config, wanted)
    async with opened_memory(home, config) as memory:
        documents = [(store, await memory.read(scope, store)) for store in stores]
    described = [
        describe(scope, store, document, max_bytes=config.memory.max_file_bytes) for store, document in documents
    ]
    if as_json:
        print_json(described)
        return
    for index, one in enumerate(described):
        share = one["size_bytes"] / one["max_bytes"]
        size = f"{one['size_bytes']:,} of at most {one['max_bytes']:,} bytes ({share:.0%})"
        say(("\n" if index else "") + str(one["path"]))
        say(f"{local(one['modified_at'])}, {size}" if one["modified_at"] else "Not there yet.")
        if one["content"]:
            say("\n" + one["content"].removesuffix("\n"))


async def show_log(wanted: Wanted, *, limit: int, with_diff: bool, as_json: bool) -> None:
    """Print the newest changes, of the documents that are named or of all."""
    home = data_directory()
    config = operator_config(home)
    is_all = wanted == Wanted()
    async with opened_memory(home, config) as memory:
        if is_all:
            entries = await memory.log(limit=limit)
        else:
            scope, stores = await find_memory(home, config, _narrowed(wanted))
            found = [entry for store in stores for entry in await memory.log(scope, store, limit)]
            entries = sorted(found, key=lambda entry: (entry.at, entry.id), reverse=True)[:limit]
    if as_json:
        print_json([as_value(entry) for entry in entries])
    elif not entries:
        say("No change yet.")
    elif with_diff:
        await _print_diffs(home, entries)
    else:
        print_table(_LOG_COLUMNS, _rows(entries, await labels(home)), flexible=("turn", "file", "who"))


async def show_why(line: str, wanted: Wanted, *, as_json: bool) -> None:
    """Print the change that brought a line in, and the facts of the trace memory that hold its words.

    Raises:
        NotNamed: no change is known that did.
    """
    home = data_directory()
    config = operator_config(home)
    scope, stores = await find_memory(home, config, wanted)
    async with opened_memory(home, config) as memory:
        entry = None
        for store in stores:
            entry = entry or await memory.why(scope, line, store)
    facts = await facts_about(home, scope, line)
    if entry is None and facts:
        if as_json:
            print_json({"facts": [asdict(fact) for fact in facts]})
        else:
            _print_facts(facts)
        return
    if entry is None:
        where = " and ".join({"user": "USER.md", "memory": "MEMORY.md"}[store] for store in stores)
        raise NotNamed(
            f"no known change brought {line!r} into {where}. Give a part of one line as the file has it; a line that "
            f"was there before the gateway's first write has no history"
        )
    proposal = await _proposal_of(home, entry)
    if as_json:
        told = {"proposal": None if proposal is None else asdict(proposal), "facts": [asdict(fact) for fact in facts]}
        print_json({**as_value(entry), **told})
        return
    await _print_diffs(home, [entry])
    if proposal is not None:
        read = f", which had read: {', '.join(proposal.sources)}" if proposal.sources else ""
        names = await labels(home)
        by = names.get(proposal.decided_by or "", proposal.decided_by)
        say(f"\nProposed in turn {proposal.scope.turn_id}{read}. Approved by {by}, {local(proposal.decided_at)}.")
    _print_facts(facts)


def _print_facts(facts: Sequence[FactOrigin]) -> None:
    for fact in facts:
        turn = "" if fact.turn_id is None else f", in turn {fact.turn_id}"
        proposal = "" if fact.proposal is None else f", approved as proposal {fact.proposal}"
        say(f"A fact of {local(fact.at)}, {fact.source}{turn}{proposal}:\n    {' '.join(fact.text.split())}")


async def _proposal_of(home: Path, entry: HistoryEntry) -> Proposal | None:
    """The proposal that a change was, where it had to wait for a yes."""
    number = proposal_number(entry.turn_id)
    if number is None:
        return None
    async with opened_store(home) as store:
        return None if store is None else await store.proposals.proposal(number)


def describe(
    scope: MemoryScope, store: MemoryStoreName, document: MemoryDocument, *, max_bytes: int
) -> Mapping[str, Any]:
    """A document as the commands print it in JSON."""
    return {
        "store": store,
        "personality_id": scope.personality_id if store == "memory" and scope.place != "global" else None,
        "user_id": scope.user_id if store == "user" or scope.place == "per-user" else None,
        "path": document.path,
        "modified_at": document.modified_at,
        "size_bytes": size_bytes(document.path),
        "max_bytes": max_bytes,
        "version": document.version,
        "content": document.content,
    }


def as_value(entry: HistoryEntry) -> Mapping[str, Any]:
    """A change as the commands print it in JSON."""
    return {**asdict(entry), "store": store_of(entry.document)}


def store_of(document: str) -> MemoryStoreName | None:
    """The store of a document by its name in the journal; None where a change found no document."""
    if not document:
        return None
    return "user" if document.endswith("/USER.md") else "memory"


def size_bytes(path: Path) -> int:
    """Of the file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _narrowed(wanted: Wanted) -> Wanted:
    """The file of the only one that was named: a user's USER.md, a personality's MEMORY.md."""
    if wanted.store is None and wanted.personality is None:
        return Wanted(user=wanted.user, store="user")
    if wanted.store is None and wanted.user is None:
        return Wanted(personality=wanted.personality, store="memory")
    return wanted


def _rows(entries: Sequence[HistoryEntry], names: Mapping[str, str]) -> list[tuple[object, ...]]:
    return [
        (
            entry.id,
            entry.at,
            _who(entry, names),
            entry.channel,
            _action(entry),
            entry.outcome,
            _file(entry.document, names),
            entry.turn_id,
        )
        for entry in entries
    ]


def _who(entry: HistoryEntry, names: Mapping[str, str]) -> str | None:
    if entry.action == "edit":
        return OUTSIDE
    if entry.channel == CHANNEL or (entry.author_id is None and entry.action in {"write", "undo"}):
        return OPERATOR
    return names.get(entry.author_id or "", entry.author_id)


def _action(entry: HistoryEntry) -> str:
    """What was done; an `edit` that refers to a change brought back what the editor had not read, from that one on."""
    name = "merge" if entry.action == "edit" and entry.refers_to else entry.action
    return f"{name} {entry.refers_to}" if entry.refers_to else name


def _file(document: str, names: Mapping[str, str]) -> str | None:
    """The document for people, who may have many; its path is in the JSON."""
    match document.split("/"):
        case ["users", user_id, "USER.md"]:
            return f"USER.md of {names.get(user_id, user_id)}"
        case ["personalities", personality_id, "MEMORY.md"]:
            return f"MEMORY.md of {personality_id}"
        case ["users", user_id, "personalities", personality_id, "MEMORY.md"]:
            return f"MEMORY.md of {personality_id} for {names.get(user_id, user_id)}"
    return document or None


async def _print_diffs(home: Path, entries: Sequence[HistoryEntry]) -> None:
    names = await labels(home)
    for index, (entry, row) in enumerate(zip(entries, _rows(entries, names), strict=True)):
        _, _, who, channel, action, outcome, document, turn = row
        told = [f"{entry.id}", local(entry.at), str(action), str(outcome), str(document or "-")]
        say(("\n" if index else "") + "  ".join(told))
        by = f"by {who or 'an unknown author'}" + (f" on {channel}" if channel else "")
        say(f"    {by}, turn {turn}")
        if entry.diff:
            print_diff(entry.diff)
