"""`ethos open`: the web page of the running gateway."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gateway.cli.errors import EXIT_UNAVAILABLE, fail
from gateway.cli.options import AsJson
from gateway.cli.output import print_json, say
from gateway.files.home import TOKEN_NAME, data_directory
from gateway.files.running_gateway import running_gateway, web_token


def open_page(
    browser: Annotated[bool, typer.Option(help="Open the browser too, where there is a desktop.")] = True,
    as_json: AsJson = False,
) -> None:
    """Print the link that logs in to the web page of the running gateway, and open the page."""
    import webbrowser

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
    if as_json:
        print_json({"url": process.url, "token_file": str(home / TOKEN_NAME)})
    elif sys.stdout.isatty():
        say(f"{process.url}?token={web_token(home)}")
    else:  # the link is a secret: it is shown to a person, and kept out of logs
        say(f"{process.url} (the token to log in is in {home / TOKEN_NAME})")
    if browser and not as_json and _has_desktop():
        webbrowser.open(process.url)  # without the token: every user of the machine can read the arguments of programs


def _has_desktop() -> bool:
    is_shown = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(is_shown) and sys.stdout.isatty()
