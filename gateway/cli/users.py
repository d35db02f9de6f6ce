"""`ethos users`: who is known, who is let in, and as what."""

from __future__ import annotations

import typer

from gateway.cli import people, privacy
from gateway.cli.options import AsJson, run

app = typer.Typer(help="See who is known, let people in, and say what they may do.", no_args_is_help=True)
app.add_typer(people.pair, name="pair")
app.command("export")(privacy.export)
app.command("erase")(privacy.erase)
app.command("role")(people.role)
app.command("revoke")(people.revoke)
app.command("owner-code")(people.owner_code)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List everybody with their accounts."""
    run(_list(as_json=as_json))


async def _list(*, as_json: bool) -> None:
    from gateway.cli.named import identities
    from gateway.cli.output import print_json, print_table, say
    from gateway.config.file import data_directory
    from gateway.identity import User

    def since(user: User) -> object:
        return min((account.first_seen_at for account in user.accounts if account.first_seen_at), default=None)

    users = await identities(data_directory()).users()
    if as_json:
        print_json(
            [
                {
                    "id": user.id,
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
        say("Nobody is known yet; whoever writes first becomes known.")
    else:
        rows = [
            (user.id, since(user), account.key, account.label, account.via)
            for user in users
            for account in user.accounts
        ]
        print_table(("id", "since", "account", "name", "via"), rows, flexible=("account", "name"))
