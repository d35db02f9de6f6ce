"""The data directory as `ethos status` and `ethos doctor` open it, for when no gateway answers.

SQLite and the memory files have locks of their own, so to look takes no lock of the data directory, and makes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from gateway.app.cluster import open_configured_store
from gateway.config import Config, EmbeddingsConfig
from gateway.config.file import CONFIG_NAME, core_keys, load_config, memory_section
from gateway.config.secrets import expand_variables, fetch_secrets
from gateway.config.workers import StoreConfig
from gateway.errors import ConfigError, StoreError
from gateway.files.home import DATABASE_NAME
from gateway.files.positions.validation import validate
from gateway.files.positions.yaml import read_marked_yaml
from gateway.files.running_gateway import running_gateway
from gateway.store.sqlite.schema import migrations, schema_version
from gateway.store.stores import Stores, open_store

_PARTS = ("personality", "memory", "web", "budgets", "retention")


def operator_config(home: Path) -> Config:
    """Those parts of the configuration that the operator's commands need, and the defaults for all others.

    Of a channel there is what the core knows, and nothing of its adapter.

    The secrets of the models and the channels are not looked up: they may be there for the gateway's process only.
    The address of the database is.

    Raises:
        ConfigError: one of these parts is wrong, or the file cannot be read.
    """
    path = home / CONFIG_NAME
    try:
        document = read_marked_yaml(path, path.name)
    except FileNotFoundError:
        return Config()
    if document.is_readable:
        database = configured_database(home)
        values = {name: document.values[name] for name in _PARTS if name in document.values}
        values["channels"] = core_keys(document.values.get("channels", {}))
        if isinstance(web := values.get("web"), dict):
            values["web"] = {key: value for key, value in web.items() if key != "search"}  # it has keys of its own
        if "${" in str(values):
            return load_config(home=home).config
        if "memory" in values or database.url is not None:
            document.values.setdefault("memory", {})
            values["memory"] = memory_section(document, home, {})
        config = validate(Config, document, values=values)
        if config is not None:
            return _without_embeddings(config).model_copy(update={"store": database})
    if document.problems:
        raise ConfigError(document.sorted_problems())
    return load_config(home=home).config


def configured_secret(home: Path) -> SecretStr | None:
    """The `secret` of the configuration, looked up without all the rest; None where none is configured or legible.

    Raises:
        ConfigError: it cannot be looked up from this shell, or is none.
    """
    return _looked_up(home, "secret").secret


def configured_database(home: Path) -> StoreConfig:
    """Where the database is, looked up without all the rest.

    Raises:
        ConfigError: its address cannot be looked up from this shell, or is none.
    """
    return _looked_up(home, "store").store


def _looked_up(home: Path, name: str) -> Config:
    """A configuration with this section alone."""
    path = home / CONFIG_NAME
    try:
        document = read_marked_yaml(path, path.name)
    except FileNotFoundError:
        return Config()
    if document.values.get(name) is None:
        return Config()
    document.values, document.problems = {name: document.values[name]}, []
    expanded = expand_variables(document, os.environ)
    origins = fetch_secrets(document, Config, (), home)
    config = validate(Config, document, hidden={*expanded, *origins})
    if config is None or document.problems:
        raise ConfigError(document.sorted_problems())
    return config


def _without_embeddings(config: Config) -> Config:
    """Their model is one of those that are not looked up."""
    traces = config.memory.traces.model_copy(update={"embeddings": EmbeddingsConfig()})
    return config.model_copy(update={"memory": config.memory.model_copy(update={"traces": traces})})


async def has_database(home: Path) -> bool:
    """Whether there is one: a file in the data directory, or that of a server.

    Raises:
        ConfigError: as of `configured_database`.
    """
    return (home / DATABASE_NAME).exists() or (await asyncio.to_thread(configured_database, home)).url is not None


@asynccontextmanager
async def opened_store(home: Path) -> AsyncIterator[Stores | None]:
    """The database; None where there is none yet.

    Raises:
        ConfigError: the address of the database cannot be looked up from this shell.
        StoreError: it cannot be used; or a running gateway of an older version works with it, and it would have to be
            changed under its feet.
    """
    database = await asyncio.to_thread(configured_database, home)
    if database.url is not None:
        looking = Config(store=database.model_copy(update={"upgrade": "by_hand"}))
        store = await asyncio.to_thread(open_configured_store, looking, home / DATABASE_NAME)
        try:
            yield store
        finally:
            await store.close()
        return
    path = home / DATABASE_NAME
    if not path.exists():
        yield None
        return
    version, newest = schema_version(path), migrations()[-1].version
    if version is not None and 0 < version < newest and running_gateway(home) is not None:
        raise StoreError(
            f"{path} has schema version {version}, this program works with {newest}. Restart the running gateway with "
            f"this program, which brings the database up to date."
        )
    store = open_store(path)
    try:
        yield store
    finally:
        await store.close()
