"""`ethos people pairing`, `role`, `revoke` and `owner-code`: who is let in, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.names import check_names
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.domain.roles import Role
from gateway.errors import EthosError

pairing = typer.Typer(help="See who asks to be let in, and decide.", no_args_is_help=True)

Asking = Annotated[str, typer.Argument(help="The code that the person was given, or their account, `kind:id`.")]
Who = Annotated[str, typer.Argument(help="A user id, or an account, `kind:id`; `ethos people list` shows both.")]


@pairing.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List who waits for a yes."""
    async with connected() as client:
        rows = await client.people.pairing.list()
    if as_json:
        print_json([row.model_dump(by_alias=False) for row in rows])
    elif not rows:
        say("There are no pending requests.")
    else:
        columns = ("code", "channel", "account", "name", "asked", "until", "messages")
        table = [
            (row.code, row.channel, row.account, row.label, row.asked_at, row.expires_at, row.messages) for row in rows
        ]
        print_table(columns, table, flexible=("account", "name"))


@pairing.command()
@asynchronous
async def approve(
    who: Asking,
    role: Annotated[Role | None, typer.Option(help="What they may do; by default what the channel says.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let somebody in; what they wrote meanwhile is answered."""
    await _decide(who, is_yes=True, role=role, as_json=as_json)


@pairing.command()
@asynchronous
async def refuse(who: Asking, as_json: AsJson = False) -> None:
    """Refuse somebody, who gets no other code for a week."""
    await _decide(who, is_yes=False, role=None, as_json=as_json)


async def _decide(who: str, *, is_yes: bool, role: Role | None, as_json: bool) -> None:
    from gateway.sdk.errors import NotFoundError

    async with connected() as client:
        pairing = client.people.pairing
        try:
            decision = await (pairing.approve(who, role=role) if is_yes else pairing.refuse(who))
        except NotFoundError as error:
            raise EthosError(f"{error}. `ethos people pairing list` shows those that wait") from error
    if as_json:
        outcome = "let in" if is_yes else "refused"
        print_json({"account": decision.account, "channel": decision.channel, "outcome": outcome})
    else:
        say(decision.text)


@asynchronous
async def role(
    who: Who, role: Annotated[Role, typer.Argument(help="What they may do.")], as_json: AsJson = False
) -> None:
    """Say what somebody may do, on every channel where they are let in."""
    await _set_rank(who, role, as_json=as_json)


@asynchronous
async def revoke(who: Who, as_json: AsJson = False) -> None:
    """Let somebody in nowhere any more, whatever the configuration says."""
    await _set_rank(who, None, as_json=as_json)


async def _set_rank(who: str, role: Role | None, *, as_json: bool) -> None:
    """Give a person a role; None revokes all access."""
    check_names(user=who)
    async with connected(makes=True) as client:
        person = await (client.people.revoke(who) if role is None else client.people.set_role(who, role))
    accounts = [account.key for account in person.accounts]
    if as_json:
        print_json({"accounts": accounts, "rank": role or "revoked"})
    elif role is None:
        say(f"{', '.join(accounts)}: access is revoked everywhere, from the next message on.")
    else:
        say(f"{', '.join(accounts)}: {role}, from the next message on.")


@asynchronous
async def owner_code(as_json: AsJson = False) -> None:
    """Make a code that makes you the owner when you send it to the agent."""
    async with connected(makes=True) as client:
        made = await client.people.owner_code()
    minutes = round(made.valid_s / 60)
    if as_json:
        print_json({"code": made.code, "minutes": minutes})
    else:
        say(f"Send this to the agent, in a direct chat, within {minutes} minutes:\n\n  /owner {made.code}\n")
        say("The account that sends it becomes an owner. It works once; a new code makes this one void.")
