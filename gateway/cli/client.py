"""The gateway as commands ask it: over its Unix socket while it runs, else put together in this process.

Either way a command asks the API, so what it may do and how is said once, in `gateway.services`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.errors import ConfigError, DataDirectoryLocked
from gateway.files.home import data_directory
from gateway.files.running_gateway import LOOK_S, PATIENCE_S
from gateway.files.unix_socket import SOCKET_NAME, is_served

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.config import Config
    from gateway.sdk.client import AsyncEthos

MAX_RETRIES = 2
QUERY_TIMEOUT_S = 15.0
"""A person at a terminal can wait for the meaning of a question: loading the libraries alone takes a second."""


@asynccontextmanager
async def connected(
    *, makes: bool = False, is_whole: bool = False, corrects: bool = False
) -> AsyncIterator[AsyncEthos]:
    """A client of the gateway of the data directory, which need not run.

    Commands that find none running wait for one another, and a gateway that starts waits for them.

    Args:
        makes: the command writes, so a database is made where there is none.
        corrects: the command may correct the configuration, so it works with the defaults where that is wrong.
        is_whole: the command needs models, or words in the form of a platform: then all of the configuration is read.

    Raises:
        DataDirectoryLocked: a process holds the directory and does not answer for `PATIENCE_S`.
        ConfigError: the configuration is wrong, and no gateway runs with the last good one.
        StoreError: the database cannot be used.
    """
    from gateway.cli.waiting import CommandClient

    home = data_directory()
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + PATIENCE_S
    async with AsyncExitStack() as stack:
        client: AsyncEthos | None = None
        while client is None:
            if is_served(home / SOCKET_NAME):
                client = await stack.enter_async_context(CommandClient(home=home, max_retries=MAX_RETRIES))
                break
            try:
                client = await stack.enter_async_context(
                    _at_rest(home, makes=makes, is_whole=is_whole, corrects=corrects)
                )
            except DataDirectoryLocked:  # by a gateway that is about to serve, or to end
                if clock() >= give_up_at:
                    raise
                await asyncio.sleep(LOOK_S)
        yield client


@asynccontextmanager
async def _at_rest(home: Path, *, makes: bool, is_whole: bool, corrects: bool) -> AsyncIterator[AsyncEthos]:
    from gateway.app.gateway import Gateway
    from gateway.sdk.client import AsyncEthos

    import_module("gateway.web.api.application")  # which takes its time, while others need not wait for us
    try:
        config, only = _config(home, is_whole=is_whole)
    except ConfigError:
        if not corrects:
            raise
        from gateway.config import Config

        config, only = Config(), ()
    gateway = Gateway(home, config, only=only, is_served=False)
    async with gateway.at_rest(makes=makes) as app, AsyncEthos.in_process(app) as client:
        yield client


def _config(home: Path, *, is_whole: bool) -> tuple[Config, Collection[str] | None]:
    """The configuration, and the names of the channels that are put together; None for all of them.

    The libraries of platforms take seconds to load, and secrets may be known to the gateway alone. So where it does, it
    is what commands need of it, and no channel. What a third party's channel calls its kind only that channel knows.

    Raises:
        ConfigError: what is read of it is wrong.
    """
    from gateway.cli.data import configured_secret, operator_config
    from gateway.config.file import load_config

    # The codes that commands show and take are made with it.
    config = operator_config(home).model_copy(update={"secret": configured_secret(home)})
    if not is_whole and not any("." in channel.kind for channel in config.channels.values()):
        return config, ()
    try:
        config = load_config(home=home).config
    except ConfigError:
        return config, ()
    waits = config.memory.traces.embeddings.model_copy(update={"query_timeout_s": QUERY_TIMEOUT_S})
    traces = config.memory.traces.model_copy(update={"embeddings": waits})
    return config.model_copy(update={"memory": config.memory.model_copy(update={"traces": traces})}), None
