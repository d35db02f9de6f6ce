"""`ethos open`: the web page of the running gateway."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.errors import EXIT_CONFIG, EXIT_UNAVAILABLE, fail
from gateway.cli.options import AsJson
from gateway.cli.output import print_json, say
from gateway.errors import ConfigError
from gateway.files.home import TOKEN_NAME, data_directory
from gateway.files.running_gateway import running_gateway, web_token


def open_page(
    browser: Annotated[bool, typer.Option(help="Open the browser too, where there is a desktop.")] = True,
    as_json: AsJson = False,
) -> None:
    """Print the link that logs in to the web page of the running gateway, and open the page."""
    import webbrowser

    from gateway.cli.data import configured_secret  # with what it loads, 0.2 s that no other command needs
    from gateway.domain.root_secret import read_root_secret
    from gateway.web.token import token_of

    home = data_directory()
    process = running_gateway(home)
    if process is None:
        fail(f"no gateway runs on {home}; `ethos serve` starts one", EXIT_UNAVAILABLE)
        return
    if process.url is None:
        fail(
            "the gateway that runs has no web page: it belongs to `ethos chat`, or is starting; `ethos serve` has one",
            EXIT_UNAVAILABLE,
        )
        return
    try:
        secret = configured_secret(home)
    except ConfigError as error:
        fail(f"{process.url} needs a token, which is derived from `secret`:\n{error}", EXIT_CONFIG)
        return
    if as_json:
        print_json({"url": process.url, "token_file": str(home / TOKEN_NAME) if secret is None else None})
    elif sys.stdout.isatty():
        token = web_token(home) if secret is None else token_of(read_root_secret(secret.get_secret_value()))
        say(f"{process.url}?token={token}")
    else:  # the link is a secret: it is shown to a person, and kept out of logs
        say(f"{process.url} ({where_token_is(home, is_derived=secret is not None)})")
    if browser and not as_json and _has_desktop():
        webbrowser.open(process.url)  # without the token: every user of the machine can read the arguments of programs


def where_token_is(home: Path, *, is_derived: bool) -> str:
    """Where a person finds the token that logs in, for the place in which it must not be shown."""
    if is_derived:
        return "the token to log in is derived from `secret`; `ethos open` on a terminal shows it"
    return f"the token to log in is in {home / TOKEN_NAME}"


def _has_desktop() -> bool:
    is_shown = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(is_shown) and sys.stdout.isatty()
