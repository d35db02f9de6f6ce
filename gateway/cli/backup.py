"""`ethos backup` and `ethos restore`: the data directory in one file, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, say
from gateway.files.home import data_directory

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.ops.backup.restoring import Restored


@asynchronous
async def backup(
    file: Annotated[
        Path | None, typer.Argument(help="The file, or a directory in which it is named by the time; here by default.")
    ] = None,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Take in files with secrets too; then keep the backup as one.")
    ] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, help="In a directory, delete all but so many of the newest backups.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Save everything in one file, as a data directory for one machine; the gateway may go on running."""
    from gateway.cli.data import configured_database
    from gateway.ops.backup.making import make_backup

    home = data_directory()
    url = configured_database(home).url
    taken = await make_backup(
        home,
        file or Path(),
        url=None if url is None else url.get_secret_value(),
        with_secrets=with_secrets,
        keep=keep,
    )
    if as_json:
        print_json(asdict(taken))
        return
    files = len(taken.contents.files)
    say(f"{taken.path}: {files} files, {_size(taken.size_bytes)}, written and read back.")
    if taken.contents.secrets:
        say(f"Left out, because they hold secrets: {', '.join(taken.contents.secrets)}")
    for line in taken.left_out:
        say(f"Left out: {line}")
    for path in taken.removed:
        say(f"Deleted: {path}")


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Put aside what is in the data directory, and keep it there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup into an empty data directory, while no gateway runs on it."""
    from gateway.ops.backup.restoring import restore as restored
    from gateway.ops.privacy.home import clean_restored

    home = data_directory()
    done = restored(file, home, is_replacing=replace, clean=[clean_restored])
    if as_json:
        print_json({"home": home, **asdict(done)})
    else:
        _print_restored(home, done)


def _print_restored(home: Path, done: Restored) -> None:
    contents = done.contents
    say(f"{home} is now as it was on {contents.created_at}: {len(contents.files)} files, each checked.")
    if done.schema_version is not None and done.schema_version != contents.schema_version:
        say(f"The database was brought from schema version {contents.schema_version} to {done.schema_version}.")
    if done.replaced is not None:
        say(f"What was there before is in {done.replaced}. Delete it when you do not need it any more.")
    if done.unsent:
        say(f"Replies that waited then, and are marked as perhaps sent since: {done.unsent}")
    if done.kept_secrets:
        say(f"Kept from before, because they hold secrets: {', '.join(done.kept_secrets)}")
    if done.missing_secrets:
        say(f"Not in the backup, because they hold secrets; put them back: {', '.join(done.missing_secrets)}")
    for line in done.cleaned:
        say(line)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:.1f} MB" if size_bytes >= 1_000_000 else f"{size_bytes / 1_000:.1f} kB"
