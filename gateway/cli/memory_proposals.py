"""`ethos memory proposals`: what the agent wants to remember, and may not without a person's yes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.cli.client import connected
from gateway.cli.names import labels
from gateway.cli.options import LARGEST_ID, AsJson, asynchronous
from gateway.cli.output import fields, local, print_diff, print_json, say
from gateway.domain.visible import hidden_note
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.memory import Proposal

app = typer.Typer(help="See what waits for a yes; approve, edit or refuse it.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="Its number, from `ethos memory proposals list`.")]
Numbers = Annotated[
    list[int], typer.Argument(min=1, max=LARGEST_ID, help="Their numbers, from `ethos memory proposals list`.")
]

_MOST = 200
_LATE = " The memory cannot be written now; the gateway tries again."


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """Print what waits, with who said it, what was read, and what would change."""
    async with connected() as client:
        waiting = await client.memory.proposals.list(limit=_MOST)
        names = await labels(client) if waiting and not as_json else {}
    if as_json:
        print_json([_value(one) for one in waiting])
        return
    if not waiting:
        say("Nothing waits for a yes.")
        return
    for one in waiting:
        say("\n".join(_told(one, names)))
        print_diff(one.shown)
        say("")
    say("`ethos memory proposals approve N` writes one, `refuse N` lets it go, `edit N` edits its text.")


@app.command()
@asynchronous
async def approve(numbers: Numbers, as_json: AsJson = False) -> None:
    """Write it into the memory, once."""
    await _decide(numbers, "approved", as_json=as_json)


@app.command()
@asynchronous
async def refuse(numbers: Numbers, as_json: AsJson = False) -> None:
    """Let it go; it stays in the database, and is never written."""
    await _decide(numbers, "refused", as_json=as_json)


@app.command()
@asynchronous
async def edit(
    number: Number,
    text: Annotated[
        str | None, typer.Option("--text", help="What is to be added; your editor opens without it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Edit the text that would be added; the proposal goes on waiting."""
    if text is None:
        async with connected() as client:
            now = await client.memory.proposals.get(number)
        text = _typed(now) if now.state == "waiting" else " ".join(_texts(now))
        if text is None:
            raise NotNamed(f"nothing was saved in the editor, so proposal {number} is as it was")
    async with connected() as client:
        proposal = await client.memory.proposals.edit(number, text)
    if as_json:
        print_json(_value(proposal))
    else:
        say(f"Proposal {number} is edited, and goes on waiting.")


async def _decide(numbers: Sequence[int], state: Literal["approved", "refused"], *, as_json: bool) -> None:
    decided: list[dict[str, Any]] = []
    async with connected() as client:
        proposals = client.memory.proposals
        for number in dict.fromkeys(numbers):
            one = await (proposals.approve(number) if state == "approved" else proposals.refuse(number))
            decided.append({"id": number, "state": state, "is_late": one.is_late})
            if not as_json:
                say(f"Proposal {number} is {state}." + (_LATE if one.is_late else ""))
    if as_json:
        print_json(decided)


def _texts(proposal: Proposal) -> Sequence[str]:
    return [one.content for one in proposal.updates if one.action != "remove"]


def _typed(proposal: Proposal) -> str | None:
    """What a person makes of the text in their editor; None where they did not save it."""
    import click

    return click.edit("\n\n".join(_texts(proposal)), extension=".md")


def _value(proposal: Proposal) -> Mapping[str, Any]:
    """A proposal as the commands print it in JSON."""
    without = {"place", "part", "decided_at", "decided_by", "is_late", "is_decidable"}
    value = fields(proposal, without=without)
    return value if proposal.fact is None else {**value, "updates": []}


def _told(proposal: Proposal, names: Mapping[str, str]) -> list[str]:
    who = names.get(proposal.author or "", proposal.author or "-")
    document = {
        "user": f"USER.md of {who}",
        "memory": f"MEMORY.md of {proposal.personality}",
        "traces": f"a fact about {who}, with {proposal.personality}",
    }[proposal.store]
    why = f"had read: {', '.join(proposal.sources)}" if proposal.sources else "every change is reviewed"
    edited = ", edited" if proposal.is_edited else ""
    note = hidden_note("\n".join(one.content for one in proposal.updates))
    hidden = [f"    it {note}, shown as ⟨U+...⟩"] if note else []
    return [
        f"{proposal.id}  {document}  {local(proposal.proposed_at)}{edited}",
        f"    by {who} on {proposal.channel or '-'}, turn {proposal.turn}; {why}",
        *hidden,
    ]
