"""Checks of the programs, the configuration, the personalities and the models."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import platform
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator

from gateway import __version__
from gateway.agent.providers.embeddings import identity_of
from gateway.agent.providers.models import HTTP_LIBRARY, WireModel
from gateway.agent.providers.registry import ModelRegistry
from gateway.agent.providers.trial import ask_once
from gateway.cli.finding import Finding, Ground
from gateway.config import OFFLINE
from gateway.config.file import CONFIG_NAME, check
from gateway.config.secrets import is_unset_variable
from gateway.domain.personalities import BrokenPersonality, Personalities
from gateway.errors import EthosError
from gateway.runtime.extras import how_to_install
from gateway.store.sqlite.engine import SqliteConnection
from gateway.store.sqlite.schema import OLDEST_SQLITE, migrations, schema_version
from gateway.traces.lacking import count_lacking
from gateway.traces.trace_store import TRACES_NAME

OLDEST_PYTHON = (3, 11)
FIRST_UNTESTED_PYTHON = (3, 14)
FULL_TEXT_MODULE = "fts5"
MODEL_LIBRARY = HTTP_LIBRARY
VECTOR_LIBRARY = "numpy"
TRACES_LIBRARY = "opentelemetry"
_SHOWN_CHARS = 80


def versions(_ground: Ground) -> Iterator[Finding]:
    """Python, SQLite and its full-text search."""
    yield Finding(
        "note", f"Ethos Gateway {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    if sys.version_info < OLDEST_PYTHON:
        yield Finding(
            "problem", f"Python {platform.python_version()} is too old.", "Install it with Python 3.11, 3.12 or 3.13."
        )
    elif sys.version_info >= FIRST_UNTESTED_PYTHON:
        yield Finding(
            "warning",
            f"Python {platform.python_version()} is newer than those that this version was tested with.",
            "If something is odd, try Python 3.13.",
        )
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield Finding(
            "problem",
            f"SQLite {sqlite3.sqlite_version} is too old; {'.'.join(map(str, OLDEST_SQLITE))} or newer is needed.",
            "Use a Python that is built with a newer one.",
        )
    if not _has_full_text_search():
        yield Finding(
            "problem",
            "SQLite was built without FTS5, the full-text search.",
            "Use a Python whose SQLite has it; those of Debian, Fedora, Homebrew and uv do.",
        )


def _has_full_text_search() -> bool:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(f"CREATE VIRTUAL TABLE trial USING {FULL_TEXT_MODULE} (text)")
        except sqlite3.OperationalError:
            return False
    return True


def configuration(ground: Ground) -> Iterator[Finding]:
    """Everything that `ethos config check` says."""
    path = ground.home / CONFIG_NAME
    findings = check(home=ground.home)
    advice = f"Edit {path}, then `ethos config check`."
    for problem in findings.problems:
        if ground.process is not None and is_unset_variable(problem):
            advice_here = "Set it in this shell, too, and the doctor looks at everything. The running gateway has it."
            yield Finding("warning", problem, advice_here)
            continue
        yield Finding("problem", problem, advice)
    for warning in findings.warnings:
        is_about_files = warning.startswith("the personality ")
        where = f"Edit its files below {ground.home / 'personalities'}." if is_about_files else advice
        yield Finding("warning", warning, where)


def personalities(ground: Ground) -> Iterator[Finding]:
    """The default one must be able to answer; where the configuration is broken, this is the only check of them."""
    known = Personalities(ground.home)
    place = ground.home / "personalities"
    if ground.config is None:
        for one in known.list():
            if isinstance(one, BrokenPersonality):
                what = f"the personality {one.id} cannot be used: {one.reason}"
                yield Finding("warning", what, f"Edit its files below {place}.")
        return
    try:
        known.get(ground.config.personality)
    except EthosError:
        yield Finding(
            "problem",
            f"The default personality {ground.config.personality} cannot be used, so nothing is answered.",
            f"Edit its files below {place}, or set `personality` in {CONFIG_NAME} to another one.",
        )


def models(ground: Ground) -> Iterator[Finding]:
    """The models of the configuration."""
    config = ground.config
    if config is None:
        return
    if config.model == OFFLINE:
        yield Finding("note", "The offline model answers: a small program that needs no key and no network.")
    else:
        model = config.models[config.model]
        where = f" at {model.base_url}" if model.base_url else ""
        what = f"The model {config.model} answers: {model.model} of the provider {model.provider}{where}"
        hint = "" if ground.asks_models else " It was not asked: `ethos doctor --ask` does."
        yield Finding("note", f"{what}.{hint}")
    needy = [name for name, model in config.models.items() if model.provider != OFFLINE]
    if needy and importlib.util.find_spec(MODEL_LIBRARY) is None:
        yield Finding(
            "problem", f"The libraries for {', '.join(needy)} are not installed.", f"{how_to_install('models')}."
        )


async def answers(ground: Ground) -> AsyncIterator[Finding]:
    """What each model answers, where they are to be asked."""
    config = ground.config
    if config is None or not ground.asks_models or importlib.util.find_spec(MODEL_LIBRARY) is None:
        return
    registry, embedding = ModelRegistry(config), config.memory.traces.embeddings.model
    names = [name for name, model in config.models.items() if model.provider != OFFLINE]
    try:
        for finding in await asyncio.gather(*(_asked(registry, name, is_embedder=name == embedding) for name in names)):
            yield finding
    finally:
        await registry.close()


async def _asked(registry: ModelRegistry, name: str, *, is_embedder: bool) -> Finding:
    """One model, without its fallbacks; one that makes embeddings is asked for one."""
    try:
        if is_embedder:
            await registry.embedder(name, None).embed(["hello"])
            return Finding("note", f"The model {name} made an embedding.")
        model = registry.single(name)
        trial = await ask_once(model) if isinstance(model, WireModel) else None
    except EthosError as error:
        advice = f"Correct `models.{name}` in {CONFIG_NAME}, or see to its server; then `ethos doctor --ask`."
        return Finding("problem", f"The model {name} did not answer: {error}", advice)
    said = "" if trial is None else f" in {trial.seconds:.1f} s: {trial.text[:_SHOWN_CHARS]}"
    return Finding("note", f"The model {name} answered{said}")


def embeddings(ground: Ground) -> Iterator[Finding]:
    """They need libraries of their own, and what has no vector yet is found by its words alone."""
    if ground.config is None or not ground.config.memory.has_traces:
        return
    name = ground.config.memory.traces.embeddings.model
    if name is None:
        return
    if importlib.util.find_spec(VECTOR_LIBRARY) is None:
        yield Finding(
            "problem",
            "The libraries for embeddings are not installed, so the gateway cannot start.",
            f"{how_to_install('embeddings')}, or take the `model` out of `memory.traces.embeddings`.",
        )
    identity = identity_of(ground.config.models[name].model or name, ground.config.memory.traces.embeddings.dimensions)
    path = ground.home / TRACES_NAME
    if not path.exists() or schema_version(path) != migrations("gateway.traces")[-1].version:
        return
    with contextlib.closing(
        sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, factory=SqliteConnection)
    ) as connection:
        lacking = count_lacking(connection, identity)
    if lacking:
        yield Finding(
            "note",
            f"{lacking:,} facts have no vector of the model {name} yet, and are found by their words alone. A "
            "running gateway makes them, in the background.",
        )


def telemetry(ground: Ground) -> Iterator[Finding]:
    """Traces need a library of their own."""
    if ground.config is None or not ground.config.telemetry.traces:
        return
    if importlib.util.find_spec(TRACES_LIBRARY) is None:
        yield Finding(
            "problem",
            "The libraries for traces are not installed, so the gateway cannot start.",
            f"{how_to_install('otel')}, or set `telemetry.traces` in {CONFIG_NAME} to false.",
        )
