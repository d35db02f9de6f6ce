"""`ethos people`: who is known, who is whom, who is let in, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli import people, privacy
from gateway.cli.options import AsJson, run

app = typer.Typer(help="See who is who, let people in, and say what they may do.", no_args_is_help=True)
app.add_typer(people.pairing, name="pairing")
app.command("export")(privacy.export)
app.command("erase")(privacy.erase)
app.command("role")(people.role)
app.command("revoke")(people.revoke)
app.command("owner-code")(people.owner_code)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List everybody with their accounts, and the roles that were given to them."""
    run(_list(as_json=as_json))


Who = Annotated[str, typer.Argument(help="A user id or an account, `kind:id`.")]


@app.command()
def show(user: Who, as_json: AsJson = False) -> None:
    """Print one person: the accounts, and the links that brought them together."""
    from gateway.cli.links import show_user

    run(show_user(user, as_json=as_json))


@app.command()
def link(user: Who, other: Who, as_json: AsJson = False) -> None:
    """Make two users one, as they could themselves; the one who was there first keeps the id. Both are told."""
    from gateway.cli.links import link_users

    run(link_users(user, other, is_one_kept=False, as_json=as_json))


@app.command()
def merge(user: Who, other: Who, as_json: AsJson = False) -> None:
    """Make two users one, and let the first keep the id, even if it is the newer one. Both are told."""
    from gateway.cli.links import link_users

    run(link_users(user, other, is_one_kept=True, as_json=as_json))


@app.command()
def unlink(
    which: Annotated[str, typer.Argument(help="An account or a user id that came in with a link, or the link's id.")],
    as_json: AsJson = False,
) -> None:
    """Take a link back, however old it is. Both are told."""
    from gateway.cli.links import unlink_user

    run(unlink_user(which, as_json=as_json))


async def _list(*, as_json: bool) -> None:
    from gateway.cli.named import identities
    from gateway.cli.output import print_json, print_table, say
    from gateway.files.home import data_directory
    from gateway.people.identity import User

    def since(user: User) -> object:
        return min((account.first_seen_at for account in user.accounts if account.first_seen_at), default=None)

    home = data_directory()
    users = await identities(home).users()
    roles = await people.given_roles(home, users) if users else {}
    if as_json:
        print_json(
            [
                {
                    "id": user.id,
                    "role": roles.get(user.id),
                    "since": since(user),
                    "accounts": [
                        {
                            "key": account.key,
                            "label": account.label,
                            "first_seen_at": account.first_seen_at,
                            "via": account.via,
                        }
                        for account in user.accounts
                    ],
                }
                for user in users
            ]
        )
    elif not users:
        say("There are no users yet; the first person who writes becomes one.")
    else:
        rows = [
            (user.id, roles.get(user.id, "of the channel"), since(user), account.key, account.label, account.via)
            for user in users
            for account in user.accounts
        ]
        print_table(("id", "role", "since", "account", "name", "via"), rows, flexible=("account", "name"))
