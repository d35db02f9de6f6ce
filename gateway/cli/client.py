"""The gateway as commands ask it: over its Unix socket while it runs, else put together in this process.

Either way a command asks the API, so what it may do and how is said once, in `gateway.services`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.errors import ConfigError, DataDirectoryLocked
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway
from gateway.files.unix_socket import SOCKET_NAME

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.config import Config
    from gateway.sdk.client import AsyncEthos

MAX_RETRIES = 2
PATIENCE_S = 10.0
"""As long as another command may take, or a gateway to start or to end."""
_LOOK_S = 0.05


@asynccontextmanager
async def connected(*, makes: bool = False) -> AsyncIterator[AsyncEthos]:
    """A client of the gateway of the data directory, which need not run.

    Args:
        makes: the command writes, so a database is made where there is none.

    Raises:
        DataDirectoryLocked: a process holds the directory and does not answer for `PATIENCE_S`.
        ConfigError: the configuration is wrong, and no gateway runs with the last good one.
        StoreError: the database cannot be used.
    """
    from gateway.sdk.client import AsyncEthos

    home = data_directory()
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + PATIENCE_S
    async with AsyncExitStack() as stack:
        client: AsyncEthos | None = None
        while client is None:
            is_late = clock() >= give_up_at
            if running_gateway(home) is None:
                try:
                    client = await stack.enter_async_context(_at_rest(home, makes=makes))
                except DataDirectoryLocked:  # another command was faster
                    if is_late:
                        raise
            elif is_late or (home / SOCKET_NAME).exists():
                client = await stack.enter_async_context(AsyncEthos(home=home, max_retries=MAX_RETRIES))
            if client is None:
                await asyncio.sleep(_LOOK_S)
        yield client


@asynccontextmanager
async def _at_rest(home: Path, *, makes: bool) -> AsyncIterator[AsyncEthos]:
    from gateway.app.gateway import Gateway
    from gateway.files.atomic import make_private_directory
    from gateway.files.home import DATABASE_NAME
    from gateway.sdk.client import AsyncEthos
    from gateway.store.sqlite import open_store

    if makes and not (home / DATABASE_NAME).exists():
        make_private_directory(home)
        await open_store(home / DATABASE_NAME).close()
    config, only = _config(home)
    async with (
        Gateway(home, config, only=only, is_served=False).at_rest() as app,
        AsyncEthos.in_process(app) as client,
    ):
        yield client


def _config(home: Path) -> tuple[Config, Collection[str] | None]:
    """The configuration, and the names of the channels that can be put together; None for all of them.

    Where secrets of channels or models are only known to the gateway's process, it is without these.

    Raises:
        ConfigError: what is left is wrong.
    """
    from gateway.cli.data import operator_config
    from gateway.config.file import load_config
    from gateway.config.secrets import is_unset_variable

    try:
        return load_config(home=home).config, None
    except ConfigError as error:
        if not all(map(is_unset_variable, error.problems)):
            raise
        return operator_config(home), ()
