"""`ethos memory proposals`: what the agent wants to remember, and may not without a person's yes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.cli.options import LARGEST_ID, AsJson, run

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from pathlib import Path

    from gateway.memory.proposals import Proposal
    from gateway.memory.review import MemoryReview
    from gateway.sdk.client import AsyncEthos
    from gateway.store.sqlite import SqliteStore
    from gateway.traces.approved import ApprovedFacts

app = typer.Typer(help="See what waits for a yes; approve, edit or refuse it.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="Its number, from `ethos memory proposals list`.")]
Numbers = Annotated[
    list[int], typer.Argument(min=1, max=LARGEST_ID, help="Their numbers, from `ethos memory proposals list`.")
]

_LATE = " The file cannot be written now; the gateway does it at its next start."


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Print what waits, with who said it, what was read, and what would change."""
    run(_list(as_json=as_json))


@app.command()
def approve(numbers: Numbers, as_json: AsJson = False) -> None:
    """Write it into the memory, once."""
    run(_decide(numbers, "approved", as_json=as_json))


@app.command()
def refuse(numbers: Numbers, as_json: AsJson = False) -> None:
    """Let it go; it stays in the database, and is never written."""
    run(_decide(numbers, "refused", as_json=as_json))


@app.command()
def edit(
    number: Number,
    text: Annotated[
        str | None, typer.Option("--text", help="What is to be added; your editor opens without it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Edit the text that would be added; the proposal goes on waiting."""
    run(_edit(number, text, as_json=as_json))


async def _list(*, as_json: bool) -> None:
    from gateway.cli.data import opened_store
    from gateway.cli.named import labels
    from gateway.cli.output import print_diff, print_json, say
    from gateway.files.home import data_directory

    home = data_directory()
    async with opened_store(home) as store:
        waiting = [] if store is None else list(await store.proposals.proposals())
    described = await _described(waiting)
    if as_json:
        print_json(described)
        return
    if not waiting:
        say("Nothing waits for a yes.")
        return
    names = await labels(home)
    for one, value in zip(waiting, described, strict=True):
        say("\n".join(_told(one, names)))
        print_diff(value["diff"] or "It would change nothing now.")
        say("")
    say("`ethos memory proposals approve N` writes one, `refuse N` lets it go, `edit N` edits its text.")


async def _decide(numbers: Sequence[int], state: Literal["approved", "refused"], *, as_json: bool) -> None:
    from gateway.cli.asking import GatewayUnreachable
    from gateway.cli.output import print_json, say
    from gateway.files.home import data_directory

    decided: list[dict[str, Any]] = []

    def tell(number: int, *, is_late: bool) -> None:
        decided.append({"id": number, "state": state, "is_late": is_late})
        if not as_json:
            say(f"Proposal {number} is {state}." + (_LATE if is_late else ""))

    wanted = list(dict.fromkeys(numbers))
    try:
        await _decide_by_gateway(data_directory(), wanted, state, lambda number: tell(number, is_late=False))
    except GatewayUnreachable:
        await _decide_in_files(wanted[len(decided) :], state, tell)
    if as_json:
        print_json(decided)


async def _decide_by_gateway(
    home: Path, numbers: Sequence[int], state: Literal["approved", "refused"], tell: Callable[[int], None]
) -> None:
    """Let the running gateway decide, which writes the memory itself; raises as `ask_gateway`."""
    from gateway.cli.asking import ask_gateway

    for number in numbers:

        async def decide(client: AsyncEthos, number: int = number) -> None:
            proposals = client.memory.proposals
            await (proposals.approve(number) if state == "approved" else proposals.refuse(number))

        await ask_gateway(home, decide)
        tell(number)


async def _decide_in_files(
    numbers: Sequence[int], state: Literal["approved", "refused"], tell: Callable[..., None]
) -> None:
    from gateway.memory.proposals import Reviewer

    async with _review() as review:
        decide = review.approve if state == "approved" else review.refuse
        for number in numbers:
            await decide(number, Reviewer(user_id=None))
            tell(number, is_late=review.late > 0)


async def _edit(number: int, text: str | None, *, as_json: bool) -> None:
    from gateway.cli.named import NotNamed
    from gateway.cli.output import print_json, say
    from gateway.memory.proposals import Reviewer

    me = Reviewer(user_id=None)
    async with _review() as review:
        if text is None:
            now = next((one for one in await review.waiting(me) if one.id == number), None)
            text = None if now is None else _typed(now)
            if now is not None and text is None:
                raise NotNamed(f"nothing was saved in the editor, so proposal {number} is as it was")
        proposal = await review.edit(number, text or "", me)
    if as_json:
        print_json((await _described([proposal]))[0])
    else:
        say(f"Proposal {number} is edited, and goes on waiting.")


def _typed(proposal: Proposal) -> str | None:
    """What a person makes of the text in their editor; None where they did not save it."""
    import click

    texts = [one.content for one in proposal.updates if one.action != "remove"]
    if proposal.fact is not None:
        texts = [proposal.fact.content or ""]
    return click.edit("\n\n".join(texts), extension=".md")


@asynccontextmanager
async def _review() -> AsyncIterator[MemoryReview]:
    from gateway.cli.data import opened_memory, opened_store, operator_config
    from gateway.files.home import data_directory
    from gateway.memory.review import MemoryReview, NotReviewable
    from gateway.memory.sync import MemorySync

    home = data_directory()
    config = operator_config(home)
    async with opened_store(home) as store, opened_memory(home, config) as memory:
        if store is None:
            raise NotReviewable("nothing waits for a yes; there was no conversation yet")
        async with _opened_facts(home, store) as facts:
            yield MemoryReview(store.proposals, memory, MemorySync(memory, store.turns), facts)


@asynccontextmanager
async def _opened_facts(home: Path, store: SqliteStore) -> AsyncIterator[ApprovedFacts | None]:
    """The trace memory, as far as proposals are about it; None where there is none yet."""
    from gateway.traces.approved import ApprovedFacts
    from gateway.traces.trace_store import TRACES_NAME, open_trace_store

    if not (home / TRACES_NAME).exists():
        yield None
        return
    async with open_trace_store(home / TRACES_NAME, person_ids=store.links.person_ids) as trace_store:
        yield ApprovedFacts(trace_store, store.proposals)


async def _described(proposals: Sequence[Proposal]) -> list[Mapping[str, Any]]:
    """Proposals as the commands print them in JSON."""
    if not proposals:
        return []
    async with _review() as review:
        diffs = [await review.difference(one) for one in proposals]
    return [_value(one, diff) for one, diff in zip(proposals, diffs, strict=True)]


def _value(proposal: Proposal, diff: str) -> Mapping[str, Any]:
    from gateway.domain.visible import hidden_count

    return {
        "id": proposal.id,
        "state": proposal.state,
        "store": proposal.store,
        "personality_id": proposal.scope.personality_id,
        "user_id": proposal.scope.user_id,
        "author_id": proposal.scope.author_id,
        "channel": proposal.scope.channel,
        "session_id": proposal.scope.session_id,
        "turn_id": proposal.scope.turn_id,
        "proposed_at": proposal.proposed_at,
        "sources": list(proposal.sources),
        "hidden_characters": hidden_count(proposal.text),
        "is_edited": proposal.is_edited,
        "updates": [{"action": one.action, "content": one.content} for one in proposal.updates],
        "fact": None if proposal.fact is None else proposal.fact.as_value(),
        "diff": diff,
    }


def _told(proposal: Proposal, names: Mapping[str, str]) -> list[str]:
    from gateway.cli.output import local
    from gateway.domain.visible import hidden_note

    scope = proposal.scope
    who = names.get(scope.author_id or "", scope.author_id or "-")
    document = {
        "user": f"USER.md of {who}",
        "memory": f"MEMORY.md of {scope.personality_id}",
        "traces": f"a fact about {who}, with {scope.personality_id}",
    }[proposal.store]
    why = f"had read: {', '.join(proposal.sources)}" if proposal.sources else "every change is reviewed"
    edited = ", edited" if proposal.is_edited else ""
    hidden = [f"    it {note}, shown as ⟨U+...⟩"] if (note := hidden_note(proposal.text)) else []
    return [
        f"{proposal.id}  {document}  {local(proposal.proposed_at)}{edited}",
        f"    by {who} on {scope.channel or '-'}, turn {scope.turn_id}; {why}",
        *hidden,
    ]
