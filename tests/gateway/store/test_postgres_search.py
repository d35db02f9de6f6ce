"""The words of messages in PostgreSQL: what its types refuse does not fail a turn, and is found all the same."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.memory.tokenizer import Matcher, parse
from gateway.store.engine import Connection
from gateway.store.postgres import search
from gateway.store.postgres.search import MAX_LEXEMES_BYTES, expression, vector
from gateway.store.stores import Stores
from tests.conformance.session_edits import wrote
from tests.conformance.stores import House, session_of
from tests.gateway.store.test_search import LETTERS
from tests.servers.postgres import PostgresServer

HARD_IDS = ["u_'", "u_\\", "u_\\'x", "'", "u " + "x" * 3_000, "u_\u4e2d"]


@pytest.fixture(scope="module")
def server(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def stores(postgres_house: House) -> Stores:
    made: Stores = postgres_house.store  # type: ignore[assignment]
    return made


def matches(
    server: psycopg.Connection, text: str, query: str, user_id: str = "u", among: list[str] | None = None
) -> bool:
    row = server.execute(
        "SELECT CAST(%s AS tsvector) @@ CAST(%s AS tsquery)", (vector(text, user_id), expression(parse(query), among))
    ).fetchone()
    assert row is not None
    return bool(row[0])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(LETTERS, max_size=30), query=st.text(LETTERS, max_size=8))
def test_the_index_and_the_matcher_agree_on_what_matches(server: psycopg.Connection, text: str, query: str) -> None:
    if terms := parse(query):
        found = matches(server, text, query)
        assert found == matches(server, text, query, among=["u"]) == Matcher(terms).is_in(text)


@pytest.mark.parametrize("user_id", HARD_IDS)
def test_a_person_is_found_by_any_id_and_no_other_is(server: psycopg.Connection, user_id: str) -> None:
    assert matches(server, "tea", "tea", user_id, ["u", user_id])
    assert not matches(server, "tea", "tea", user_id, ["u", "x"])
    assert not matches(server, "milk", "tea", user_id, [user_id])


LONG = {
    "a word of many letters": ("x" * 5_000 + " end", "x" * 900),
    "a word of many letters of four bytes": ("\U00010400" * 5_000 + " end", "\U00010428" * 900),
    "more words than there are positions": ("word " * 20_000 + "the end is here", '"the end"'),
    "a word more often than it may have positions": ("tea or milk, " * 400 + "tea with salt", '"tea with"'),
    "characters of a script without spaces": ("我们在北京吃烤鸭" * 3_000 + "的天津", '"的天津"'),
}


@pytest.mark.parametrize(("text", "query"), LONG.values(), ids=LONG)
async def test_a_long_message_is_kept_and_found_to_its_end(stores: Stores, text: str, query: str) -> None:
    await wrote(stores, session_of("one"), text, "something else")
    for user_id in ("u_ada", None):
        assert len(await stores.sessions.search_messages(query, user_id=user_id)) == 1
    assert await stores.sessions.search_messages('"end the"', user_id=None) == []
    assert await stores.sessions.search_messages('"milk tea with or"', user_id=None) == []


async def test_of_a_text_with_a_megabyte_of_different_words_the_beginning_is_found(stores: Stores) -> None:
    text = " ".join(f"word{number:012}" for number in range(MAX_LEXEMES_BYTES // 10))
    await wrote(stores, session_of("one"), text)
    assert len(await stores.sessions.search_messages("word000000000001", user_id="u_ada")) == 1
    [message] = await stores.sessions.messages("s_one")
    assert message.text == text


@pytest.mark.parametrize("read", [1, 2, 5, 9, 3_000])
async def test_a_prefix_is_found_in_all_messages_of_a_person_however_many_are_read_first(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    monkeypatch.setattr(search, "_LATEST_READ", read)
    texts = [f"{'teapot' if number in (0, 4, 5, 8) else 'milk'} {number}" for number in range(9)]
    ids = await wrote(stores, session_of("one"), *texts)
    await wrote(stores, session_of("two", "u_ben"), "teacup")
    await wrote(stores, session_of("three", "u_"), "teaspoon")
    with_tea = [ids[number] for number in (8, 5, 4, 0)]
    for before in (*ids, ids[-1] + 99):
        for limit in range(1, 6):

            def asking(connection: Connection, before: int = before, limit: int = limit) -> list[int]:
                found = search.newest(connection, parse("tea*"), ["u_ada"], before=before, limit=limit)
                return [row["id"] for row in found]

            assert await stores.engine.read(asking) == [one for one in with_tea if one < before][:limit]


async def test_the_latest_messages_of_a_person_are_read_by_their_index_and_no_others_are(stores: Stores) -> None:
    await wrote(stores, session_of("one"), *(f"teapot {number}" for number in range(40)))
    await wrote(stores, session_of("two", "u_ben"), *(f"teacup {number}" for number in range(400)))

    def explained(connection: Connection) -> list[str]:
        connection.execute("ANALYZE messages")
        connection.execute("SET LOCAL enable_seqscan = off")
        values = ("u_ada", 1 << 62, 20, expression(parse("tea*"), None), 200)
        return [row[0] for row in connection.execute(f"EXPLAIN ANALYZE {search._LATEST}", values).fetchall()]

    [scan] = [line for line in await stores.engine.write(explained) if "Scan" in line and "messages" in line]
    assert "Backward using messages_of_user" in scan, scan
    assert "rows=20 " in scan.split("actual")[1], scan
