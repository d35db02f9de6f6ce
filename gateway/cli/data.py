"""The data directory as `ethos status` and `ethos doctor` open it, for when no gateway answers.

SQLite and the memory files have locks of their own, so to look takes no lock of the data directory, and makes nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.config import Config, EmbeddingsConfig
from gateway.config.file import CONFIG_NAME, core_keys, load_config, memory_section
from gateway.config.secrets import expand_variables, fetch_secrets
from gateway.errors import ConfigError, StoreError
from gateway.files.home import DATABASE_NAME
from gateway.files.positions.validation import validate
from gateway.files.positions.yaml import read_marked_yaml
from gateway.files.running_gateway import running_gateway
from gateway.store.sqlite.schema import migrations
from gateway.store.stores import Stores, open_store

_PARTS = ("personality", "memory", "web", "budgets", "retention")


def operator_config(home: Path) -> Config:
    """Those parts of the configuration that the operator's commands need, and the defaults for all others.

    Of a channel there is what the core knows, and nothing of its adapter.

    The secrets of the models and the channels are not looked up: they may be there for the gateway's process only.
    The address of the database is, and the `secret`.

    Raises:
        ConfigError: one of these parts is wrong, or the file cannot be read.
    """
    path = home / CONFIG_NAME
    try:
        document = read_marked_yaml(path, path.name)
    except FileNotFoundError:
        return Config()
    if document.is_readable:
        database = database_config(home)
        values = {name: document.values[name] for name in _PARTS if name in document.values}
        values["channels"] = core_keys(document.values.get("channels", {}))
        if "${" in str(values):
            return load_config(home=home).config
        if "memory" in values or database.has_others:
            document.values.setdefault("memory", {})
            values["memory"] = memory_section(document, home, {})
        config = validate(Config, document, values=values)
        if config is not None:
            found = {"store": database.store, "secret": database.secret}
            return _without_embeddings(config).model_copy(update=found)
    if document.problems:
        raise ConfigError(document.sorted_problems())
    return load_config(home=home).config


def database_config(home: Path) -> Config:
    """`store` and `secret` of the configuration, looked up without all the rest; else the defaults.

    Raises:
        ConfigError: one of the two cannot be looked up from this shell, or is wrong.
    """
    path = home / CONFIG_NAME
    try:
        document = read_marked_yaml(path, path.name)
    except FileNotFoundError:
        return Config()
    wanted = {name: document.values[name] for name in ("store", "secret") if document.values.get(name) is not None}
    if not wanted:
        return Config()
    document.values, document.problems = wanted, []
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


@asynccontextmanager
async def opened_store(home: Path) -> AsyncIterator[Stores | None]:
    """The database; None where there is none yet.

    Raises:
        StoreError: it cannot be used; or a running gateway of an older version works with it, and it would have to be
            changed under its feet.
    """
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


def schema_version(path: Path) -> int | None:
    """The version in the file, without changing it; None where it is no database or cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return None
