"""Every statement of the stores is one for both engines: each is prepared, and none of them is run."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import psycopg
from psycopg import postgres

import gateway.store
from gateway.store.postgres.statements import numbered
from gateway.store.sqlite.search import register_functions
from tests.stores import empty_database

STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
# Templates of others, and statements on tables that an erasure makes for itself: its own tests run these.
NOT_HERE = re.compile(r"\{|\btemp\.|\b(gone|touched)_\w+|\bemptied\w*")
# What the server takes a value for, and what the engine sends for it: `PostgresConnection` and psycopg's own.
SENT = {
    postgres.types[taken].oid: postgres.types[sent].oid
    for taken, sent in {"int2": "int8", "int4": "int8", "float4": "float8", "numeric": "float8"}.items()
}


def statements() -> Iterator[tuple[str, str]]:
    """Name and text: constants of the modules, and what stands whole in a call."""
    for found in pkgutil.iter_modules(gateway.store.__path__):
        if not found.ispkg:
            module = importlib.import_module(f"gateway.store.{found.name}")
            yield from _constants(module)
            yield from _inline(module)


def _constants(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, str) and STATEMENT.match(value):
            yield f"{module.__name__}.{name}", value


def _inline(module: ModuleType) -> Iterator[tuple[str, str]]:
    assert module.__file__
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            text = node.args[0].value
            if isinstance(text, str) and STATEMENT.match(text):
                yield f"{module.__name__}:{node.lineno}", text


def refusal(server: psycopg.pq.abc.PGconn, text: bytes) -> str | None:
    """Why a statement cannot be prepared: with types that the server finds, then with numbers as they are sent."""
    types: list[int] = []
    for _ in range(2):
        result = server.prepare(b"", text, types)
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            return result.error_message.decode().splitlines()[0]
        found = server.describe_prepared(b"")
        types = [SENT.get(found.param_type(place), found.param_type(place)) for place in range(found.nparams)]
    return None


def test_a_number_is_prepared_as_it_is_sent(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as theirs:
        assert refusal(theirs.pgconn, b"SELECT substr('text', 1, CAST($1 AS integer))") is None
        problem = refusal(theirs.pgconn, b"SELECT substr('text', 1, $1)")
    assert problem is not None
    assert "substr(unknown, integer, bigint) does not exist" in problem


def test_every_statement_is_understood_by_both_engines(postgres_url: str, tmp_path: Path) -> None:
    refused: list[str] = []
    with (
        closing(sqlite3.connect(empty_database(tmp_path / "ethos.db"))) as ours,
        psycopg.connect(postgres_url) as theirs,
    ):
        register_functions(ours)
        ours.create_function("now_ms", 0, lambda: 0)
        count = 0
        for name, text in statements():
            if NOT_HERE.search(text):
                continue
            count += 1
            places = numbered(text)
            try:
                names = places[1]
                values = dict.fromkeys(names) if names else [None] * len(set(re.findall(r"\$\d+", places[0])))
                ours.execute(f"EXPLAIN {text}", values).close()
            except sqlite3.Error as error:
                refused.append(f"{name}: SQLite: {error}")
            if problem := refusal(theirs.pgconn, places[0].encode()):
                refused.append(f"{name}: PostgreSQL: {problem}")
                theirs.rollback()
    assert count > 60
    assert not refused, "\n".join(refused)
