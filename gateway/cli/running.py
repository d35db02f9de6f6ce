"""`ethos serve` and `ethos chat`: the commands that run a gateway."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from gateway.config import Config
from gateway.config.file import Loaded, data_directory, load_config
from gateway.errors import ConfigError, DataDirectoryLocked
from gateway.home import LOG_NAME, TOKEN_NAME

if TYPE_CHECKING:  # 0.3 s that no other command needs
    from gateway.app import Gateway
    from gateway.web.server import WebServer


def serve(
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--no-chat", help="Open the terminal chat here too; by default in a terminal."),
    ] = None,
) -> None:
    """Run every configured channel until Ctrl-C or SIGTERM."""
    loaded = load_config()
    is_chat = _is_terminal() if chat is None else chat
    sys.exit(asyncio.run(_serve(data_directory(), loaded, is_chat=is_chat)))


def chat(
    words: Annotated[list[str] | None, typer.Argument(help="One message; else what you type, or pipe in.")] = None,
    conversation: Annotated[str, typer.Option(help="Which conversation.")] = "main",
    lines: Annotated[bool, typer.Option("--lines", help="Each line of the input is a message.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer, when piped.")] = 600.0,
) -> None:
    """Talk to the agent in this terminal, through the running gateway or one of its own."""
    loaded = load_config()
    home = data_directory()
    options = {
        "conversation": conversation,
        "words": " ".join(words) if words else None,
        "is_interactive": _is_terminal(),
        "is_by_lines": lines,
        "timeout_s": timeout,
    }
    sys.exit(asyncio.run(_chat(home, loaded, options)))


async def _serve(home: Path, loaded: Loaded, *, is_chat: bool) -> int:
    from gateway.app import Gateway
    from gateway.logs import configure_logs

    config = loaded.config
    terminal = _terminal_channel(config) if is_chat else None
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway(home, config))
        log = None
        if terminal is not None:  # the terminal belongs to the chat
            log = stack.enter_context(_open_log(home))
        configure_logs(config.log.level, config.log.format, stream=log)
        stop = _stop_on_signals()
        for warning in loaded.warnings:
            typer.echo(f"warning: {warning}", err=True)
        if gateway.web is not None:
            typer.echo(f"Web page: {_web_address(gateway.web, home)}", err=True)
        typer.echo(f"Data:     {home}" + (f"\nLog:      {home / LOG_NAME}" if log else ""), err=True)
        if terminal is None:
            await gateway.run(stop)
            return 0
        return await _talk_beside(gateway, _talk(home, config, terminal, {"is_interactive": True}), stop)


def _web_address(web: WebServer, home: Path) -> str:
    """The address that logs in is a secret: it is shown to a person, and kept out of a service's log."""
    return web.login_url if sys.stderr.isatty() else f"{web.url} (the token to log in is in {home / TOKEN_NAME})"


async def _chat(home: Path, loaded: Loaded, options: dict[str, Any]) -> int:
    """Attach to a running gateway; where there is none, run one for as long as the chat lasts."""
    from gateway.app import Gateway
    from gateway.logs import configure_logs

    config = loaded.config
    terminal = _terminal_channel(config)
    if terminal is None:
        raise ConfigError(["no channel of the kind `cli` is configured; add `terminal: {kind: cli}` to `channels`"])
    try:
        async with Gateway(home, config, only=[terminal], is_served=False) as gateway:
            with _open_log(home) as log:  # the terminal belongs to the chat
                configure_logs(config.log.level, config.log.format, stream=log)
                return await _talk_beside(gateway, _talk(home, config, terminal, options))
    except DataDirectoryLocked:
        # Its holder may be just starting, or have no terminal channel.
        return await _talk(home, config, terminal, {**options, "patience_s": 2.0})


async def _talk_beside(gateway: Gateway, talk: Coroutine[Any, Any, int], stop: asyncio.Event | None = None) -> int:
    """Run the gateway for as long as the chat lasts, or until it is stopped; the chat's exit code."""
    stop = stop or asyncio.Event()
    running = asyncio.create_task(gateway.run(stop))
    talking = asyncio.create_task(talk)
    await asyncio.wait([running, talking], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    talking.cancel()
    await asyncio.wait([talking])
    await running
    return 0 if talking.cancelled() else talking.result()


async def _talk(home: Path, config: Config, terminal: str, options: dict[str, Any]) -> int:
    from adapters.cli import socket_path
    from gateway.cli.chat import chat as talk

    state_dir = home / "channels" / terminal
    path = socket_path(config.channels[terminal].settings, state_dir)
    return await talk(path, state_dir=state_dir, **options)


def _open_log(home: Path) -> TextIO:
    return open(home / LOG_NAME, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))


def _terminal_channel(config: Config) -> str | None:
    """The first enabled channel of the kind `cli`."""
    return next((name for name, channel in config.channels.items() if channel.kind == "cli" and channel.enabled), None)


def _is_terminal() -> bool:
    if sys.stdin is None or sys.stdout is None:  # closed by whoever started us
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
