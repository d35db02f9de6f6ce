"""`ethos memory`: read, follow, take back and edit what the agent remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import memory_copy, memory_proposals, memory_writing
from gateway.cli.client import connected
from gateway.cli.memory_writing import document_value
from gateway.cli.names import check_names, labels
from gateway.cli.options import AsJson, PersonalityOption, StoreOption, UserOption, asynchronous
from gateway.cli.output import fields, local, print_diff, print_json, print_table, say
from gateway.services.caller import COMMAND_LINE

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.memory import Change, Document, FactOrigin, Proposal, StoreName

app = typer.Typer(help="Read, follow, take back and edit what the agent remembers.", no_args_is_help=True)
app.add_typer(memory_proposals.app, name="proposals")

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many, the newest.")]
DiffOption = Annotated[bool, typer.Option("--diff", help="With the lines that came and went.")]

OUTSIDE = "(an editor)"
OPERATOR = "(the operator)"
_ABILITIES = {
    "editable": "editing",
    "history": "its history",
    "origins": "where a line comes from",
    "search": "search",
    "erasure": "erasing a person",
    "export": "exporting a person",
    "linking": "uniting two people",
}
_LOG_COLUMNS = ("id", "when", "who", "channel", "action", "outcome", "file", "turn")
_SCOPE = {"personality", "user", "session", "turn", "place", "channel", "author"}


@app.command()
@asynchronous
async def show(
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Print the memory as it is, with its place, its age and its size."""
    check_names(personality=personality, user=user)
    async with connected() as client:
        documents = await _documents(client, personality, user, store)
    if as_json:
        print_json([document_value(one) for one in documents])
        return
    for index, one in enumerate(documents):
        size = f"{one.bytes:,} of at most {one.max_bytes:,} bytes ({one.bytes / one.max_bytes:.0%})"
        say(("\n" if index else "") + one.location)
        say(f"{local(one.modified_at)}, {size}" if one.modified_at else size if one.content else "Not there yet.")
        if one.content:
            say("\n" + one.content.removesuffix("\n"))


@app.command()
@asynchronous
async def search(
    question: Annotated[str, typer.Argument(help="What you look for.")],
    personality: PersonalityOption = None,
    user: UserOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="At most so many, the best.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print the passages of the memory that fit a question."""
    check_names(personality=personality, user=user)
    async with connected() as client:
        found = await client.memory.search(question, personality=personality, user=user, limit=limit)
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("Nothing was found. Try fewer or other words.")
    else:
        for one in found:
            say(f"{one.score:.2f}  {one.store}, {one.source}:\n    {' '.join(one.text.split())}")


@app.command()
@asynchronous
async def provider(as_json: AsJson = False) -> None:
    """Print where the memory is, and what can be done with it."""
    async with connected() as client:
        kind = await client.memory.provider()
    if as_json:
        print_json(fields(kind))
        return
    offered = ["reading", *(what for name, what in _ABILITIES.items() if name not in kind.lacks)]
    say(f"The memory is `{kind.kind}`. It offers {', '.join(offered)}.")
    for why in dict.fromkeys(kind.lacks.values()):
        say(why)


@app.command()
@asynchronous
async def log(
    *,
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    limit: LimitOption = 50,
    diff: DiffOption = False,
    as_json: AsJson = False,
) -> None:
    """Print who changed the memory, when and where; of all memories where none is named."""
    check_names(personality=personality, user=user)
    async with connected() as client:
        changes = await _changes(client, personality, user, store, limit)
        names = {} if as_json else await labels(client)
    if as_json:
        print_json([_change_value(change) for change in changes])
    elif not changes:
        say("No change yet.")
    elif diff:
        _print_diffs(changes, names)
    else:
        print_table(_LOG_COLUMNS, [_row(change, names) for change in changes], flexible=("turn", "file", "who"))


@app.command()
@asynchronous
async def why(
    line: Annotated[str, typer.Argument(help="A line of the memory, or a part of one.")],
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Print which change brought a line into the memory."""
    check_names(personality=personality, user=user)
    async with connected() as client:
        origin = await client.memory.why(line, store=store, personality=personality, user=user)
        names = {} if as_json else await labels(client)
    change, proposal = origin.change, origin.proposal
    if as_json:
        facts = {"facts": [fields(fact, trace="id") for fact in origin.facts]}
        told = None if proposal is None else _proposal_value(proposal)
        print_json(facts if change is None else {**_change_value(change), "proposal": told, **facts})
        return
    if change is not None:
        _print_diffs([change], names)
    if proposal is not None:
        read = f", which had read: {', '.join(proposal.sources)}" if proposal.sources else ""
        by = names.get(proposal.decided_by or "", proposal.decided_by)
        say(f"\nProposed in turn {proposal.turn}{read}. Approved by {by}, {local(proposal.decided_at)}.")
    _print_facts(origin.facts)


app.command()(memory_writing.undo)
app.command()(memory_writing.edit)
app.command()(memory_copy.copy)


async def _documents(
    client: AsyncEthos, personality: str | None, user: str | None, store: StoreName | None
) -> Sequence[Document]:
    """The one that is named, or both; before there are users there is only MEMORY.md."""
    from gateway.sdk.errors import NotFoundError

    async def document(store: StoreName) -> Document:
        return await client.memory.get(store, personality=personality, user=user)

    if store is not None:
        return [await document(store)]
    try:
        first = [await document("user")]
    except NotFoundError:  # where that is not the reason, the second says so, too
        first = []
    return [*first, await document("memory")]


async def _changes(
    client: AsyncEthos, personality: str | None, user: str | None, store: StoreName | None, limit: int
) -> Sequence[Change]:
    stores: tuple[StoreName | None, ...] = (store,)
    named: dict[StoreName, str | None] = {"user": user, "memory": personality}
    if store is None and any(named.values()):  # of the only one that was named, its own file
        stores = tuple(store for store, name in named.items() if name is not None)
    found: list[Change] = []
    for each in stores:
        asked = client.memory.history(store=each, personality=personality, user=user, limit=limit)
        found += [change async for change in asked]
    return found if len(stores) == 1 else sorted(found, key=lambda one: (one.at, one.id), reverse=True)[:limit]


def _change_value(change: Change) -> Mapping[str, Any]:
    """A change as the commands print it in JSON: with the user and the personality of its turn."""
    own = {"turn_personality": "personality_id", "turn_user": "user_id"}
    versions = {"version_before": "hash_before", "version_after": "hash_after"}
    return fields(change, without={"personality", "user"}, **own, **versions)


def _proposal_value(proposal: Proposal) -> Mapping[str, Any]:
    own = fields(proposal, without={*_SCOPE, "hidden_characters", "diff", "is_late", "is_decidable"})
    updates = [] if proposal.fact is not None else [{**one, "store": proposal.store} for one in own["updates"]]
    return {**own, "scope": fields(proposal, only=_SCOPE), "updates": updates}


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
    """The document for people, who may have many; its name is in the JSON."""
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
