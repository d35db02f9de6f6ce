"""`ethos people pairing`, `role`, `revoke` and `owner-code`: who is let in, and as what."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, run
from gateway.domain.roles import Role

if TYPE_CHECKING:
    from gateway.people.access_records import Rank, Request
    from gateway.people.identity import IdentityMap, User
    from gateway.people.pairing import Pairing
    from gateway.store.people import SqlitePeople

pairing = typer.Typer(help="See who asks to be let in, and decide.", no_args_is_help=True)

VIA = "the command line"
Asking = Annotated[str, typer.Argument(help="The code that the person was given, or their account, `kind:id`.")]
Who = Annotated[str, typer.Argument(help="A user id, or an account, `kind:id`; `ethos people list` shows both.")]


@pairing.command("list")
def list_(as_json: AsJson = False) -> None:
    """List who waits for a yes."""
    run(_list(as_json=as_json))


@pairing.command()
def approve(
    who: Asking,
    role: Annotated[Role | None, typer.Option(help="What they may do; by default what the channel says.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let somebody in; what they wrote meanwhile is answered."""
    run(_decide(who, is_yes=True, role=role, as_json=as_json))


@pairing.command()
def refuse(who: Asking, as_json: AsJson = False) -> None:
    """Refuse somebody, who gets no other code for a week."""
    run(_decide(who, is_yes=False, role=None, as_json=as_json))


def role(who: Who, role: Annotated[Role, typer.Argument(help="What they may do.")], as_json: AsJson = False) -> None:
    """Say what somebody may do, on every channel where they are let in."""
    run(_set_rank(who, role, as_json=as_json))


def revoke(who: Who, as_json: AsJson = False) -> None:
    """Let somebody in nowhere any more, whatever the configuration says."""
    run(_set_rank(who, "revoked", as_json=as_json))


def owner_code(as_json: AsJson = False) -> None:
    """Make a code that makes you the owner when you send it to the agent."""
    run(_owner_code(as_json=as_json))


@dataclass(frozen=True, slots=True)
class _Desk:
    """What these commands work with."""

    store: SqlitePeople
    identities: IdentityMap
    pairing: Pairing


@asynccontextmanager
async def _desk(home: Path, *, is_made: bool = False) -> AsyncIterator[_Desk | None]:
    """None where nobody can have asked yet, for there is no database; `is_made`: make one then."""
    from gateway.cli.data import opened_store
    from gateway.cli.named import identities
    from gateway.domain.channels import Channels
    from gateway.domain.codes import load_pepper
    from gateway.files.atomic import make_private_directory
    from gateway.files.home import DATABASE_NAME
    from gateway.people.access import Access
    from gateway.people.access_records import AccessRecords
    from gateway.people.operators import Operators
    from gateway.people.pairing import Pairing
    from gateway.store.sqlite import open_store

    if is_made and not (home / DATABASE_NAME).exists():
        make_private_directory(home)
        await open_store(home / DATABASE_NAME).close()
    async with opened_store(home) as store:
        if store is None:
            yield None
            return
        people, known = AccessRecords(store.people), identities(home)
        channels = Channels()  # none runs: a channel is told by its name
        operators = Operators(channels)
        access = Access({}, people=people, identities=known, channels=channels, operators=operators)
        pepper = partial(load_pepper, home)
        pairing = Pairing(store.people, people, access, known, pepper=pepper, operators=operators)
        yield _Desk(store.people, known, pairing)


async def given_roles(home: Path, users: Sequence[User]) -> Mapping[str, Rank]:
    """What each user was given, by id; nobody else: they have the role of the channel."""
    from gateway.domain.roles import highest
    from gateway.people.access_records import ranks_of

    async with _desk(home) as desk:
        ranks = {} if desk is None else (await desk.store.book()).ranks
    found: dict[str, Rank] = {}
    for user in users:
        given = ranks_of([account.key for account in user.accounts], ranks)
        role = "revoked" if "revoked" in given else highest(rank for rank in given if rank != "revoked")
        if any(account.via == "operator" for account in user.accounts):
            role = "owner"  # whoever runs the gateway is its owner always
        if role is not None:
            found[user.id] = role
    return found


async def _list(*, as_json: bool) -> None:
    from gateway.cli.output import print_json, print_table, say
    from gateway.files.home import data_directory

    rows: list[tuple[Request, str]] = []
    async with _desk(data_directory()) as desk:
        if desk is not None:
            rows = [(request, desk.pairing.code(request)) for request in await desk.pairing.waiting()]
    if as_json:
        print_json(
            [
                {
                    "code": code,
                    "channel": request.channel,
                    "account": request.account,
                    "label": request.label,
                    "asked_at": request.first_at,
                    "expires_at": request.expires_at,
                    "messages": request.held,
                }
                for request, code in rows
            ]
        )
    elif not rows:
        say("There are no pending requests.")
    else:
        columns = ("code", "channel", "account", "name", "asked", "until", "messages")
        table = [
            (code, one.channel, one.account, one.label, one.first_at, one.expires_at, one.held) for one, code in rows
        ]
        print_table(columns, table, flexible=("account", "name"))


async def _decide(who: str, *, is_yes: bool, role: Role | None, as_json: bool) -> None:
    from gateway.cli.named import NotNamed
    from gateway.cli.output import print_json, say
    from gateway.cli.queues import wake
    from gateway.files.home import data_directory

    decision, home = None, data_directory()
    async with _desk(home) as desk:
        request = None if desk is None else await desk.pairing.find(who)
        if desk is not None and request is not None:
            notice_id = f"op_{secrets.token_hex(8)}"
            if is_yes:
                decision = await desk.pairing.let_in(request, role=role, via=VIA, notice_id=notice_id)
            else:
                decision = desk.pairing.refuse(request, notice_id=notice_id)
            await desk.store.change(decision.change, decision.notices)
    if request is None or decision is None:
        raise NotNamed(f"no request has the code or account {who!r}; `ethos people pairing list` shows those that wait")
    for place in decision.woken:
        wake(home, "inbox", place)
    for notice in decision.notices:
        wake(home, "outbox", notice.conversation)
    if as_json:
        outcome = "let in" if is_yes else "refused"
        print_json({"account": request.account, "channel": request.channel, "outcome": outcome})
    else:
        say(decision.text.replace("`", ""))


async def _set_rank(who: str, rank: str, *, as_json: bool) -> None:
    from datetime import UTC, datetime

    from gateway.cli.named import NotNamed
    from gateway.cli.output import print_json, say
    from gateway.files.home import data_directory
    from gateway.people.access_records import SetRank

    home = data_directory()
    async with _desk(home, is_made=True) as desk:
        if desk is None:
            raise NotNamed("there is no database yet; `ethos serve` makes one")
        accounts = await _accounts_of(desk, home, who)
        change = SetRank(accounts=accounts, rank=rank, via=VIA, at=datetime.now(UTC))  # type: ignore[arg-type]
        await desk.store.change(change)
    if as_json:
        print_json({"accounts": accounts, "rank": rank})
    elif rank == "revoked":
        say(f"{', '.join(accounts)}: access is revoked everywhere, from the next message on.")
    else:
        say(f"{', '.join(accounts)}: {rank}, from the next message on.")


async def _accounts_of(desk: _Desk, home: Path, who: str) -> tuple[str, ...]:
    """All accounts of the person who is named.

    Raises:
        NotNamed: nobody is.
        InvalidId: it can be neither an account nor a user.
    """
    from gateway.cli.named import NotNamed, find_user

    with contextlib.suppress(NotNamed):
        found = await desk.identities.accounts_of(await find_user(home, who))
        if found:
            return tuple(account.key for account in found)
    if ":" in who and any(who == account for _, account in (await desk.store.book()).admitted):
        return (who,)  # was let in, and has not written since
    raise NotNamed(f"there is nobody {who!r}; `ethos people list` shows everybody")


async def _owner_code(*, as_json: bool) -> None:
    from gateway.cli.output import print_json, say
    from gateway.files.home import data_directory
    from gateway.people.pairing import CODE_LIFETIME

    async with _desk(data_directory(), is_made=True) as desk:
        code = "" if desk is None else await desk.pairing.offer_owner()
    minutes = round(CODE_LIFETIME.total_seconds() / 60)
    if as_json:
        print_json({"code": code, "minutes": minutes})
    else:
        say(f"Send this to the agent, in a direct chat, within {minutes} minutes:\n\n  /owner {code}\n")
        say("The account that sends it becomes an owner. It works once; a new code makes this one void.")
