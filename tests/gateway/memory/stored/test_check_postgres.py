"""Whatever is wrong with a PostgreSQL is said in one line that says what to do, and never shows the password."""

from pathlib import Path

import psycopg
import pytest

from gateway.memory.kinds import postgres as kind
from gateway.memory.stored.postgres import _too_old
from gateway.protocols import MemoryServices
from tests.servers import free_port, postgres, stubs

SECRET = "canary-of-postgres"
pytestmark = pytest.mark.skipif(postgres.MISSING is not None, reason=str(postgres.MISSING))


async def check(url: str, **settings: object) -> list[str]:
    config = kind.Config(url=url, **{"timeout_s": 20, **settings})
    memory = kind.provider(config, MemoryServices(state_dir=Path("unused"), max_document_bytes=1 << 19))
    found = [*await memory.check()]
    assert SECRET not in "".join(found)
    return found


async def only(url: str, **settings: object) -> str:
    [line] = await check(url, **settings)
    return line


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture(scope="module")
def sound():
    """A server that keeps what it is given."""
    with postgres.postgres_server() as server:
        yield server


async def test_a_good_server_has_nothing_to_say_and_nothing_is_left_in_it(sound):
    assert await check(sound.url()) == []
    with psycopg.connect(sound.url()) as connection:
        assert connection.execute("SELECT to_regclass('ethos_documents')").fetchone() == (None,)


async def test_a_server_that_is_away():
    line = await only(f"postgresql://ada:{SECRET}@127.0.0.1:{free_port()}/ethos")
    assert "Connection refused; look at `url`, and whether the server runs" in line


async def test_a_wrong_password(sound):
    execute(sound.url(), "CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules = sound.root / "data" / "pg_hba.conf"
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    execute(sound.url(), "SELECT pg_reload_conf()", "GRANT CREATE ON SCHEMA public TO locked")
    url = sound.url().replace(postgres.USER, "locked")
    for wrong in (url, url.replace("locked", f"locked:{SECRET}")):
        assert "it refuses the user name or the password; see `url`" in await only(wrong)
    assert await check(url.replace("locked", "locked:right")) == []


async def test_a_database_that_is_not_there(sound):
    line = await only(sound.url("nowhere"))
    assert 'database "nowhere" does not exist; look at `url`' in line


async def test_a_user_who_may_make_no_tables(sound):
    execute(sound.url(), "CREATE ROLE guest LOGIN")
    line = await only(sound.url().replace(postgres.USER, "guest"))
    assert "its user may not make or change tables; `GRANT CREATE ON SCHEMA public`" in line


async def test_a_read_only_database(sound):
    execute(
        sound.url(),
        "CREATE DATABASE readonly",
        "ALTER DATABASE readonly SET default_transaction_read_only = on",
    )
    assert "it is read-only; give the address of the primary" in await only(sound.url("readonly"))


async def test_a_standby(sound, tmp_path_factory):
    with postgres.standby_of(sound) as server:
        assert "it is read-only; give the address of the primary" in await only(server.url())


async def test_tables_of_another_shape(sound):
    execute(sound.url(), "CREATE DATABASE shaped")
    execute(sound.url("shaped"), "CREATE TABLE ethos_documents (key text, body text)")
    line = await only(sound.url("shaped"))
    assert "there are tables of these names with other columns; rename them, or name another database" in line


async def test_another_encoding_and_no_fsync(sound):
    execute(sound.url(), "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "has the encoding LATIN1; make a database with `ENCODING 'UTF8'`" in await only(sound.url("latin"))
    with postgres.postgres_server("fsync=off") as server:
        assert "does not write to its disk at once (fsync = off)" in await only(server.url())


async def test_an_old_server(sound):
    with postgres.of_version(sound, 120_022) as old:
        assert (await only(old.url())).endswith("is PostgreSQL 12, which is too old; use 13 or newer")


@pytest.mark.parametrize(("version", "is_too_old"), [(120_022, True), (130_000, False), (180_001, False)])
def test_an_old_version(version, is_too_old):
    assert [*_too_old(version)] == (
        [f"is PostgreSQL {version // 10_000}, which is too old; use 13 or newer"] * is_too_old
    )


@pytest.mark.parametrize("mode", ["prefer", "disable", "require"])
async def test_a_web_server(mode):
    async with stubs.speaking(stubs.web_page) as port:
        line = await only(f"postgresql://ada:{SECRET}@127.0.0.1:{port}/ethos?sslmode={mode}")
    assert "what answers there is no PostgreSQL; look at `url`" in line


async def test_a_server_that_says_nothing():
    async with stubs.speaking(stubs.silence) as port:
        assert "it does not answer in time" in await only(f"postgresql://127.0.0.1:{port}/ethos", timeout_s=2)


async def test_a_certificate_that_is_not_trusted_and_the_same_named(sound):
    with postgres.postgres_server("fsync=on", has_tls=True) as server:
        assert "its certificate is not trusted" in await only(f"{server.url()}?sslmode=verify-full&sslrootcert=system")
        other = server.root / "other"
        other.mkdir()
        from tests.servers.certificates import self_signed

        assert "name its authority's in `ca_file`" in await only(server.url(), ca_file=self_signed(other).file)
        assert await check(server.url(), ca_file=server.ca_file) == []
    assert "it speaks no TLS; leave `sslmode` and `ca_file` out" in await only(f"{sound.url()}?sslmode=require")
