"""`ethos sessions`: what was said, and where to find it; `transcripts.py` prints it."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.options import AsJson, run

app = typer.Typer(help="Read and search what was said.", no_args_is_help=True)

UserFilter = Annotated[str | None, typer.Option("--user", "-u", help="Only of this user: an id or an account.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]


@app.command("list")
def list_(user: UserFilter = None, limit: LimitOption = 50, as_json: AsJson = False) -> None:
    """List sessions, the newest first."""
    from gateway.cli.transcripts import list_sessions

    run(list_sessions(user, limit=limit, as_json=as_json))


@app.command()
def show(
    session: Annotated[str, typer.Argument(help="Its id, from `ethos sessions list`.")], as_json: AsJson = False
) -> None:
    """Print a session from its beginning, with the calls of tools."""
    from gateway.cli.transcripts import show_session

    run(show_session(session, as_json=as_json))


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(help="Words in any order; `'\"a phrase\"'` and `begin*` work, too.")],
    user: UserFilter = None,
    limit: LimitOption = 20,
    as_json: AsJson = False,
) -> None:
    """Find messages that have all the words, the best first."""
    from gateway.cli.transcripts import search_sessions

    run(search_sessions(" ".join(words), user, limit=limit, as_json=as_json))
