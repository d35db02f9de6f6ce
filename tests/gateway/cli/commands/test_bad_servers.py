"""What a worker finds in its way when it starts: it says what to do, ends with a code, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from gateway.store.postgres.schema import steps
from tests.gateway.cli.commands.conftest import Answer, Ethos
from tests.servers import pgbouncer as poolers
from tests.servers.postgres import PostgresServer, fresh_database
from tests.stores import make_tables

OURS, THEIRS = (bytes(range(number, number + 32)).hex() for number in (1, 2))
Starts = Callable[..., Answer]
CONFIG_IS_WRONG, UNAVAILABLE = 78, 69


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all of this file."""
    with fresh_database(postgres_server, make_tables) as made:
        yield made


@pytest.fixture
def starts(ethos: Ethos, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    """What `ethos serve` says, by default with our secret; `more` goes into the section `store`."""
    fresh_home.mkdir(mode=0o700)

    def serve(url: str, *, secret: str | None = OURS, more: str = "") -> Answer:
        monkeypatch.setenv("ROOT", secret or "")
        written = "" if secret is None else "secret: ${ROOT}\n"
        (fresh_home / "config.yaml").write_text(f"web: {{port: 0}}\n{written}store: {{url: '{url}'{more}}}\n")
        return ethos("serve", "--no-chat")

    return serve


def asked(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        ("mysql://ada@127.0.0.1/ethos", CONFIG_IS_WRONG, "not an address with postgresql://"),
        ("postgresql://127.0.0.1/ethos?colour=red", CONFIG_IS_WRONG, "not an address that PostgreSQL's library takes"),
        ("postgresql://", CONFIG_IS_WRONG, "not an address"),
        ("postgresql://ada:s3cret@127.0.0.1:1/ethos", UNAVAILABLE, "look at `url`, and whether the server runs"),
    ],
)
def test_an_address_that_leads_nowhere(starts: Starts, wrong: str, code: int, says: str) -> None:
    refused = starts(wrong)
    assert (refused.code, says in refused.err) == (code, True), refused.err
    assert "s3cret" not in refused.err + refused.out


def test_a_database_that_is_not_for_us(
    starts: Starts, ethos: Ethos, fresh_home: Path, url: str, postgres_server: PostgresServer
) -> None:
    refused = starts(postgres_server.url("not_there"))
    assert (refused.code, '"not_there" does not exist' in refused.err) == (UNAVAILABLE, True), refused.err

    asked(postgres_server.url(), "CREATE DATABASE iso ENCODING 'LATIN1' TEMPLATE template0")
    refused = starts(postgres_server.url("iso"))
    assert (refused.code, "make a database with `ENCODING 'UTF8'`" in refused.err) == (UNAVAILABLE, True), refused.err

    asked(url, "UPDATE schema SET version = 99, oldest_program = 99")
    refused = starts(url)
    assert (refused.code, "has schema version 99" in refused.err) == (CONFIG_IS_WRONG, True), refused.err
    newest = steps()[-1].version
    asked(url, f"UPDATE schema SET version = {newest}, oldest_program = 1")  # noqa: S608 (a number)

    refused = starts(postgres_server.url(), more=", upgrade: by_hand")
    assert (refused.code, "Call `ethos store upgrade`" in refused.err) == (UNAVAILABLE, True), refused.err
    for looks in (("store", "status"), ("store", "check"), ("backup", str(fresh_home / "x.tar.gz"))):
        assert "Call `ethos store upgrade`" in ethos(*looks).err, "nothing is made by who looks"


def test_a_server_that_can_only_be_read(starts: Starts, url: str, postgres_server: PostgresServer) -> None:
    """As a standby that has no own mark of it, such as one behind a wrong address of a managed server."""
    name = url.rpartition("/")[2]
    asked(postgres_server.url(), f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    refused = starts(url)
    asked(postgres_server.url(), f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert (refused.code, "give the address of the primary" in refused.err) == (UNAVAILABLE, True), refused.err


def test_workers_with_different_secrets(starts: Starts, ethos: Ethos, url: str, fresh_home: Path) -> None:
    refused = starts(url, secret=None)
    assert (refused.code, "workers that share a database have one secret" in refused.err) == (CONFIG_IS_WRONG, True)
    asked(url, "DELETE FROM settings")
    (fresh_home / "config.yaml").write_text(f"secret: '{THEIRS}'\nstore: {{url: '{url}'}}\n")
    assert ethos("sessions", "list").code == 0, "from now on this one counts"
    refused = starts(url)
    assert (refused.code, "Give it theirs: `secret` in config.yaml" in refused.err) == (CONFIG_IS_WRONG, True)
    assert OURS not in refused.err
    assert THEIRS not in refused.err
    asked(url, "DELETE FROM settings")


@pytest.mark.skipif(poolers.MISSING is not None, reason=poolers.MISSING or "")
def test_a_pooler_in_the_way_of_news(starts: Starts, url: str, postgres_server: PostgresServer) -> None:
    with poolers.pgbouncer(postgres_server) as pooler:
        behind = url.replace(f":{postgres_server.port}/", f":{pooler.port}/")
        refused = starts(behind, more=", prepared_statements: false")
    assert (refused.code, "as `store.listen_url`" in refused.err) == (UNAVAILABLE, True), refused.err
