"""`ethos people`: who is known, who is whom, who is let in, and as what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import identity_map, privacy
from gateway.cli.client import connected
from gateway.cli.completing import people
from gateway.cli.names import check_names
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, print_json, print_table, say
from gateway.domain.roles import Role
from gateway.errors import EthosError
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway

if TYPE_CHECKING:
    from gateway.sdk.models.people import Link, Person

app = typer.Typer(help="See who is who, let people in, and say what they may do.", no_args_is_help=True)
pairing = typer.Typer(help="See who asks to be let in, and decide.", no_args_is_help=True)
app.add_typer(pairing, name="pairing")
app.command("export")(privacy.export)
app.command("erase")(privacy.erase)
app.command("export-map")(identity_map.export_map)
app.command("import-map")(identity_map.import_map)

Asking = Annotated[str, typer.Argument(help="The code that the person was given, or their account, `kind:id`.")]
Who = Annotated[
    str,
    typer.Argument(autocompletion=people, help="A user id, or an account, `kind:id`; `ethos people list` shows both."),
]

# ---- what they may do -----------------------------------------------------------------------------------------------


@app.command()
@asynchronous
async def role(
    who: Who, role: Annotated[Role, typer.Argument(help="What they may do.")], as_json: AsJson = False
) -> None:
    """Say what somebody may do, on every channel where they are let in."""
    await _set_rank(who, role, as_json=as_json)


@app.command()
@asynchronous
async def revoke(who: Who, as_json: AsJson = False) -> None:
    """Revoke all access of a person, whatever the configuration says."""
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


@app.command()
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


# ---- who signs in to the pages ---------------------------------------------------------------------------------------


@app.command()
@asynchronous
async def invite(
    who: Annotated[str | None, typer.Argument(help="A user id, or an account, `kind:id`.")] = None,
    new: Annotated[str | None, typer.Option("--new", help="The name of somebody who has no account here yet.")] = None,
    role: Annotated[Role, typer.Option("--role", help="The role of somebody new.")] = "member",
    as_json: AsJson = False,
) -> None:
    """Make a link by which a person sets up a password for the web pages, once."""
    if (who is None) == (new is None):
        raise typer.BadParameter("name a person, or somebody new with --new NAME")
    if who is not None:
        check_names(user=who)
    async with connected(makes=True) as client:
        made = await (client.people.invite(who) if who else client.people.invite_new(new or "", role))
    if as_json:
        print_json(made.model_dump(mode="json"))
        return
    say(f"Give this link to the person. It works once, until {made.expires_at:%Y-%m-%d %H:%M} UTC:\n\n  {made.url}\n")


@app.command()
@asynchronous
async def end_sign_ins(who: Who, as_json: AsJson = False) -> None:
    """Delete a person's password for the web pages, and sign their browsers out."""
    check_names(user=who)
    async with connected(makes=True) as client:
        ended = await client.people.end_sign_ins(who)
    if as_json:
        print_json(ended.model_dump(mode="json"))
        return
    password = "The password is deleted" if ended.had_password else "There was no password"
    browsers = "1 browser is" if ended.browsers == 1 else f"{ended.browsers} browsers are"
    say(f"{password}; {browsers} signed out.")


# ---- who is who ------------------------------------------------------------------------------------------------------


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List everybody with their accounts, and the roles that were given to them."""
    async with connected() as client:
        found = [person async for person in client.people.list()]
    found.reverse()  # who was there first comes first
    if as_json:
        values = [
            {"id": one.id, "role": one.assigned_role, "since": _since(one), "accounts": _accounts_json(one)}
            for one in found
        ]
        print_json(values)
    elif not found:
        say("There are no users yet; the first person who writes becomes one.")
    else:
        rows = [
            (one.id, one.assigned_role or "of the channel", _since(one), account.key, account.label, account.via)
            for one in found
            for account in one.accounts
        ]
        print_table(("id", "role", "since", "account", "name", "via"), rows, flexible=("account", "name"))


@app.command()
@asynchronous
async def show(user: privacy.User, as_json: AsJson = False) -> None:
    """Print one person: the accounts, and the links that brought them together."""
    check_names(user=user)
    async with connected() as client:
        person = await client.people.get(user)
    if as_json:
        links = [_link_json(link) for link in person.links]
        print_json({"id": person.id, "ids": person.ids, "accounts": _accounts_json(person), "links": links})
        return
    say(person.id + (f", with what {', '.join(person.ids[1:])} wrote before" if person.ids[1:] else ""))
    if person.accounts:
        rows = [(one.key, one.label, one.first_seen_at, one.via) for one in person.accounts]
        print_table(("account", "name", "since", "via"), rows, flexible=("account", "name"))
    if person.links:
        say("")
        rows_of_links = [
            (link.id, link.linked_at, link.absorbed, link.survivor, link.by, link.state, link.undo_until)
            for link in person.links
        ]
        columns = ("link", "since", "was", "is", "by", "state", "undo until")
        print_table(columns, rows_of_links, flexible=("was", "is"))


@app.command()
@asynchronous
async def link(user: privacy.User, other: privacy.User, as_json: AsJson = False) -> None:
    """Make two users one, as they could themselves; the one who was there first keeps the id. Both are told."""
    await _link(user, other, is_one_kept=False, as_json=as_json)


@app.command()
@asynchronous
async def merge(user: privacy.User, other: privacy.User, as_json: AsJson = False) -> None:
    """Make two users one, and let the first keep the id, even if it is the newer one. Both are told."""
    await _link(user, other, is_one_kept=True, as_json=as_json)


async def _link(one: str, other: str, *, is_one_kept: bool, as_json: bool) -> None:
    from gateway.people.linking.texts import day

    check_names(user=one)
    check_names(user=other)
    async with connected(makes=True, is_whole=True) as client:
        made = await client.people.link(one, other, is_one_kept=is_one_kept)
    link = made.link
    if link is None and as_json:
        print_json({"account": other, "user": made.person.id})
    elif link is None:
        map_ = data_directory() / "users" / "identity-map.json"
        is_file = await asyncio.to_thread(map_.exists)
        how = f"remove its line from {map_}" if is_file else "give it another user: `ethos people import-map --replace`"
        say(f"{other} is {made.person.id}, from its first message on. To take it back, {how}.")
    elif as_json:
        print_json({**_link_json(link), "kept_apart": made.kept_apart})
    else:
        if link.state == "linked":
            say(f"Linked: {', '.join(link.accounts)} belong to {link.survivor} now.")
        else:
            say("Decided. It is finished when the answers that are being written have ended.")
        if made.kept_apart:
            say(made.kept_apart)
        say(_told(link))
        until = day(link.undo_until)
        say(f"`ethos people unlink {link.absorbed}` takes it back; they can themselves until {until}.")


@app.command()
@asynchronous
async def unlink(
    which: Annotated[str, typer.Argument(help="An account or a user id that came in with a link, or the link's id.")],
    as_json: AsJson = False,
) -> None:
    """Take a link back, however old it is. Both are told."""
    async with connected(makes=True, is_whole=True) as client:
        link = await client.people.unlink(which)
    if as_json:
        print_json(_link_json(link))
        return
    say(f"No longer linked: {link.absorbed} has {', '.join(link.accounts) or 'no accounts'} again.")
    say(_told(link))


def _since(person: Person) -> object:
    return min((account.first_seen_at for account in person.accounts if account.first_seen_at), default=None)


def _accounts_json(person: Person) -> list[Mapping[str, Any]]:
    return [fields(one, only={"key", "label", "first_seen_at", "via"}) for one in person.accounts]


def _link_json(link: Link) -> Mapping[str, Any]:
    return {**fields(link, without={"undone_at", "notified"}), "told": link.notified}


def _told(link: Link) -> str:
    """Who hears of it, and when; asked once our own gateway, which does not run, has let go of the data directory."""
    if not link.notified:
        return "They are not told: no direct chat with them is known."
    when = "Told" if running_gateway(data_directory()) is not None else "To be told when the gateway starts"
    return f"{when}: {', '.join(link.notified)}."


# ---- who asks to be let in -------------------------------------------------------------------------------------------


@pairing.command("list")
@asynchronous
async def requests(as_json: AsJson = False) -> None:
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
