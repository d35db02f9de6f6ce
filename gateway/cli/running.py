"""`ethos serve` and `ethos chat`: the commands that run a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from gateway.cli.errors import EXIT_TEMPORARY, fail
from gateway.cli.opening import where_token_is
from gateway.errors import DataDirectoryLocked
from gateway.files.home import LOG_NAME, data_directory
from gateway.runtime.process import Restart, begin_again

if TYPE_CHECKING:  # 0.4 s that neither other commands need, nor a chat with a gateway that runs
    from gateway.app.gateway import Gateway
    from gateway.config import Config
    from gateway.config.file import Loaded
    from gateway.runtime.systemd import ServiceManager

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json"]

SOON_S = 0.5  # an end that takes longer is explained
# So many more objects than before, in place of Python's 700, let the collector look for cycles among the young ones.
YOUNG_OBJECTS = 5_000


def serve(
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--no-chat", help="Open the terminal chat here too; by default in a terminal."),
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="In place of `log.level`.")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="In place of `log.format`.")] = None,
    roles: Annotated[str | None, typer.Option(help="In place of `worker.roles`, such as `channels,web`.")] = None,
) -> None:
    """Run every configured channel until Ctrl-C or SIGTERM."""
    _collect_seldom()  # while all is loaded, which takes a tenth longer else
    chosen = _roles(roles)

    def adapt(config: Config) -> Config:
        return _with_roles(_with_log(config, level=log_level, style=log_format), chosen)

    is_chat = _is_terminal() if chat is None else chat
    restart, code = Restart(), 0
    try:
        with asyncio.Runner(loop_factory=_event_loop()) as runner:
            code = runner.run(_serve(data_directory(), _loaded(), adapt, restart, is_chat=is_chat))
    except DataDirectoryLocked as locked:
        fail(f"{locked} To talk to it: `ethos chat`.", EXIT_TEMPORARY)
    if restart.is_wanted:
        begin_again()
    sys.exit(code)


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop on libuv, where there is one for this interpreter: an eighth less CPU at 100 conversations."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def chat(
    words: Annotated[list[str] | None, typer.Argument(help="One message; else what you type, or pipe in.")] = None,
    conversation: Annotated[str, typer.Option(help="Which conversation.")] = "main",
    lines: Annotated[bool, typer.Option("--lines", help="Each line of the input is a message.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer, when piped.")] = 600.0,
) -> None:
    """Talk to the agent in this terminal, through the running gateway or one of its own."""
    options = {
        "conversation": conversation,
        "words": " ".join(words) if words else None,
        "is_interactive": _is_terminal(),
        "is_by_lines": lines,
        "timeout_s": timeout,
    }
    sys.exit(asyncio.run(_chat(data_directory(), options)))


def _loaded() -> Loaded:
    """The configuration of the data directory, once that is whole."""
    from gateway.config.file import load_config
    from gateway.ops.backup.placing import finish_broken_off

    home = data_directory()
    if finish_broken_off(home):
        typer.echo(f"A restore of {home} was broken off in the middle; it is finished now.", err=True)
    return load_config()


async def _serve(
    home: Path, loaded: Loaded, adapt: Callable[[Config], Config], restart: Restart, *, is_chat: bool
) -> int:
    from gateway.app.gateway import Gateway
    from gateway.cli.chat import chat as talk
    from gateway.runtime.systemd import ServiceManager

    config = adapt(loaded.config)
    _configure_logs(config)
    async with AsyncExitStack() as stack:
        gateway = Gateway(home, config)
        gateway.reloading.adapt = adapt
        gateway.restart = restart
        await stack.enter_async_context(gateway)
        _collect_seldom()
        log = None
        if is_chat:  # the terminal belongs to the chat
            log = stack.enter_context(_open_log(home))
            _configure_logs(config, log)
        is_watched_by_person = is_chat or _has_terminal()
        numbers = (signal.SIGTERM, signal.SIGINT, *((signal.SIGHUP,) if is_watched_by_person else ()))
        stop = _stop_on_signals(*numbers, restart=restart)
        restart.offer(stop.set)
        manager = ServiceManager(is_ending=lambda: not restart.is_wanted)
        if not is_watched_by_person:
            _reload_on_hangup(gateway, manager)
        watching = asyncio.create_task(manager.watch(gateway, stop), name="service manager")
        stack.push_async_callback(_end, watching)
        for warning in loaded.warnings:
            typer.echo(f"warning: {warning}", err=True)
        typer.echo(f"Web page: {_web_address(gateway, home)}", err=True)
        if not loaded.path.exists():
            typer.echo("Set up:   open the page; it leads through a model, a channel and a backup", err=True)
        typer.echo(f"Model:    {_model_told(home, config)}", err=True)
        typer.echo(f"Data:     {home}" + (f"\nLog:      {home / LOG_NAME}" if log else ""), err=True)
        if await gateway.lacks_owner():
            typer.echo(f"Owner:    {await _how_to_own(gateway)}", err=True)
        if not is_chat:
            await gateway.run(stop)
            return 0
        return await _talk_beside(
            gateway.run, talk(home, app=gateway.web.of_owner, is_interactive=True, advice=_see_log(home)), stop
        )


def _collect_seldom() -> None:
    """Each full collection holds the event loop up for as long as it looks; what is loaded by now stays anyway."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _model_told(home: Path, config: Config) -> str:
    from gateway.config import OFFLINE
    from gateway.config.file import CONFIG_NAME

    if config.model == OFFLINE:
        is_new = not (home / CONFIG_NAME).exists()
        way = "`ethos init`, or the page" if is_new else "`ethos models add`, or the page Models"
        return f"offline demo model (understands a few sentences); connect a real one: {way}"
    return config.model


def _reload_on_hangup(gateway: Gateway, manager: ServiceManager) -> None:
    """SIGHUP reads the configuration again; not where it was ignored from the start, as by `nohup`."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    reloads: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        manager.reloading()
        await gateway.reloading.reload()
        manager.tell(READY=1, STATUS=gateway.summary())

    def begin() -> None:
        task = asyncio.create_task(reload(), name="reload")
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _web_address(gateway: Gateway, home: Path) -> str:
    """The address that logs in is a secret: it is shown to a person, and kept out of a service's log."""
    if sys.stderr.isatty():
        return f"{gateway.web.login_url}"
    return f"{gateway.web.url} ({where_token_is(home, is_derived=gateway.config.secret is not None)})"


async def _how_to_own(gateway: Gateway) -> str:
    """The code is a secret: it is shown to a person, and kept out of a service's log."""
    if not sys.stderr.isatty():
        return "none yet; `ethos people owner-code` makes a code that makes you the owner"
    code = await gateway.admission.pairing.offer_owner()
    return f"none yet; to become it, send `/owner {code}` to the agent within the hour"


async def _chat(home: Path, options: dict[str, Any]) -> int:
    """Attach to a running gateway; where there is none, run one for as long as the chat lasts."""
    from gateway.cli.chat import chat as talk
    from gateway.files.running_gateway import LOOK_S, PATIENCE_S, running_gateway

    clock = asyncio.get_running_loop().time
    give_up_at = clock() + PATIENCE_S
    while True:
        process = running_gateway(home)
        if process is None:
            with contextlib.suppress(DataDirectoryLocked):  # another command was faster
                return await _chat_alone(home, options)
        elif process.started_at is not None or clock() >= give_up_at:
            return await _until_told(talk(home, **options), is_interactive=options["is_interactive"])
        await asyncio.sleep(LOOK_S)


async def _until_told(talk: Coroutine[Any, Any, int], *, is_interactive: bool) -> int:
    """Chat; a signal ends it in order, so that what was not sent is put away."""
    talking = asyncio.create_task(talk)
    if is_interactive:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, talking.cancel)
    await asyncio.wait([talking])
    return 0 if talking.cancelled() else talking.result()


async def _chat_alone(home: Path, options: dict[str, Any]) -> int:
    """Run a gateway for as long as the chat lasts; other chats may use it, too.

    Raises:
        DataDirectoryLocked: another process has the directory.
        ConfigError: the configuration is wrong.
    """
    _collect_seldom()  # as in `serve`
    from gateway.app.gateway import Gateway
    from gateway.cli.chat import chat as talk

    config = _loaded().config
    _configure_logs(config)  # what the start has to say goes to the standard error, and no answer is mixed with it
    async with Gateway(home, config, only=(), is_served=False) as gateway:
        # At a keyboard Ctrl-C is a key; without one, the signal itself ends the wait for the answer.
        stop = _stop_on_signals(signal.SIGTERM, signal.SIGHUP) if options["is_interactive"] else asyncio.Event()
        with _open_log(home) as log:  # the terminal belongs to the chat
            _configure_logs(config, log)
            return await _talk_beside(
                gateway.run, talk(home, app=gateway.web.of_owner, **options, advice=_see_log(home)), stop
            )


def _with_log(config: Config, *, level: LogLevel | None, style: LogFormat | None) -> Config:
    """The configuration with what the command line says of the log."""
    said = {name: value for name, value in (("level", level), ("format", style)) if value is not None}
    return config.model_copy(update={"log": config.log.model_copy(update=said)})


def _roles(text: str | None) -> tuple[str, ...] | None:
    """The roles that the command line names, None where it names none."""
    from gateway.config.workers import ROLES

    if text is None:
        return None
    named = {name.strip() for name in text.split(",")}
    if not named <= set(ROLES):
        fail(f"--roles: {', '.join(sorted(named - set(ROLES))) or text!r}; expected some of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in named)


def _with_roles(config: Config, roles: tuple[str, ...] | None) -> Config:
    """The configuration with what the command line says of the worker."""
    if roles is None:
        return config
    return config.model_copy(update={"worker": config.worker.model_copy(update={"roles": roles})})


def _configure_logs(config: Config, stream: TextIO | None = None) -> None:
    from gateway.runtime.logs import configure_logs, secrets_in

    log = config.log
    configure_logs(log.level, log.format, stream=stream, secrets=secrets_in(config), is_text_shown=log.message_text)


def _see_log(home: Path) -> str:
    return f"{home / LOG_NAME} says why."


async def _talk_beside(
    run: Callable[[asyncio.Event], Coroutine[Any, Any, None]], talk: Coroutine[Any, Any, int], stop: asyncio.Event
) -> int:
    """Run a gateway for as long as the chat lasts, or until it is stopped; the chat's exit code."""
    running = asyncio.create_task(run(stop))
    talking = asyncio.create_task(talk)
    try:
        await asyncio.wait([running, talking], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # Ctrl-C without a prompt: end now, but before the store is closed
        running.cancel()
        talking.cancel()
        await asyncio.wait([running, talking])
        raise
    stop.set()
    talking.cancel()
    await asyncio.wait([talking])
    if not (await asyncio.wait([running], timeout=SOON_S))[0]:
        with contextlib.suppress(OSError):  # the terminal may be gone
            typer.echo("Finishing the answer that is being written; it will be in the conversation.", err=True)
    await running
    return 0 if talking.cancelled() else talking.result()


def _open_log(home: Path) -> TextIO:
    def opener(path: str, flags: int) -> int:
        return os.open(path, flags, 0o600)

    # the name of a file may hold what is no character, and a line of the log that name
    return open(home / LOG_NAME, "a", encoding="utf-8", errors="backslashreplace", opener=opener)


def _is_terminal() -> bool:
    if sys.stdin is None or sys.stdout is None:  # closed by the process that started us
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def _has_terminal() -> bool:
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _stop_on_signals(*numbers: signal.Signals, restart: Restart | None = None) -> asyncio.Event:
    """An event that these signals set; the end of the terminal does not where `nohup` has it ignored.

    A second SIGTERM or SIGINT ends the process at once, whatever it is at: the kernel does it. That is as safe as
    `kill -9` is, and what was not finished is taken up at the next start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin_to_stop() -> None:
        if restart is not None:
            restart.is_wanted = False  # who is told to end while it begins again ends
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            if number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, begin_to_stop)
    return stop
