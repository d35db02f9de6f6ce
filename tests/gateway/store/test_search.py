"""The index and its words: what only the SQLite store has."""

# ruff: noqa: RUF001 (letters that look like others are the point)

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.memory.tokenizer import MAX_QUERY_CHARS, MAX_TERMS, Matcher, Term, parse, words_of
from gateway.store.claims import SqlLanes
from gateway.store.sessions import SqlSessions
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.search import BATCH, expression
from gateway.store.stores import Stores
from tests.conformance.stores import THERE, claimed, ended, said, session_of, turn, written

LETTERS = "abcABCéÉßñΣσςжЖйأب中文京かガｶั้กមខ한국हिन्दी𠮷019_ -.,'\"*🙂\u0301\u200b\u00a0\n"


def test_a_pile_of_marks_is_read_in_time_that_grows_with_its_length() -> None:
    """Python puts marks in order in quadratic time: these, which one mail can hold, took a minute of every thread."""
    began_s = time.thread_time()
    first, *_, last = words_of("tea " + "\u0300\u0316" * 100_000 + " cafe\u0301").split()
    assert (first, last) == ("tea", "cafe")
    assert time.thread_time() - began_s < 2.0


@pytest.mark.parametrize("at", range(31))
def test_a_pile_of_marks_is_parted_wherever_it_stands(at: int) -> None:
    text = "x" * at + "\u0316" * 30 + "b"
    assert [len(word) for word in words_of(text).split()] == [at + 30, 1]
    assert [len(word) for word in words_of("x" * at + "\u0316" * 29 + "b").split()] == [at + 30]


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("two words", (Term("two"), Term("words"))),
        ('a "big phrase" b', (Term("a"), Term("big phrase"), Term("b"))),
        ('"never closed', (Term("never closed"),)),
        ('pre* "a pre"*', (Term("pre", is_prefix=True), Term("a pre", is_prefix=True))),
        ("a* 中*", (Term("a"), Term("中"))),
        ("same same", (Term("same"),)),
        ("foo-bar 北京x", (Term("foo bar"), Term("北 京 x"))),
        ("AND OR NOT NEAR(a)", (Term("and"), Term("or"), Term("not"), Term("near a"))),
        ("... 🙂 !", ()),
    ],
)
def test_a_query_is_words_phrases_and_prefixes(query: str, terms: tuple[Term, ...]) -> None:
    assert parse(query) == terms


def test_a_query_of_any_length_has_a_bound() -> None:
    assert len(parse(" ".join(f"w{i}" for i in range(1000)))) == MAX_TERMS
    assert sum(len(term.text) for term in parse("x" * 10**6)) == MAX_QUERY_CHARS


@settings(max_examples=400, deadline=None)
@given(text=st.text(LETTERS, max_size=30), query=st.text(LETTERS, max_size=8))
def test_the_index_and_the_matcher_agree_on_what_matches(text: str, query: str) -> None:
    terms = parse(query)
    if not terms:
        return
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE search USING fts5 (scope, text, tokenize = ascii)")
    database.execute("INSERT INTO search VALUES ('75', ?)", (words_of(text),))
    sql = "SELECT count(*) FROM search WHERE search MATCH ?"
    (found,) = database.execute(sql, (expression(terms, None),)).fetchone()
    (found_of_user,) = database.execute(sql, (expression(terms, ["u"]),)).fetchone()
    database.close()
    assert found == found_of_user == Matcher(terms).is_in(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World_2!", "hello world 2"),
        ("Zürich Ångström Tiếng Việt", "zurich angstrom tieng viet"),
        ("cafe\u0301", "cafe"),
        ("ΟΔΟΣ ЁЛКА straße", "οδοσ ёлка straße"),
        ("ＡＢＣ１", "abc1"),
        ("我们ok吗", "我 们 ok 吗"),
        ("ม้า", "ม ้ า"),
        ("हिन्दी", "हिन्दी"),
        ("hi🙂there", "hi there"),
        ("می\u200cخواهم", "می خواهم"),
    ],
)
def test_the_words_of_a_text(text: str, words: str) -> None:
    assert " ".join(words_of(text).split()) == words


@given(text=st.text(LETTERS), query=st.text(LETTERS, max_size=8))
def test_a_snippet_is_a_short_line_of_the_text(text: str, query: str) -> None:
    snippet = Matcher(parse(query)).snippet(text)
    assert "\n" not in snippet
    assert "\x1f" not in snippet
    assert len(snippet) <= 2 * 160 + 42


# ---- the index ------------------------------------------------------------------------------------------------------


async def indexed(store: Stores) -> int:
    return await store.engine.read(lambda c: c.execute("SELECT until FROM search_progress").fetchone()[0])


async def check_index(store: Stores) -> None:
    """Let FTS5 compare the index with the messages."""
    await store.index.catch_up()
    check = "INSERT INTO search (search, rank) VALUES ('integrity-check', 1)"
    await store.engine.write(lambda c: c.execute(check).close())


async def test_messages_are_indexed_in_batches_after_their_turns(store: Stores) -> None:
    session = session_of("k")
    await turn(store, session=session, messages=(written(session, "t", "x"),))
    await store.index.close()
    assert await indexed(store) == 1, "the first turn after a start takes up what was left"
    for i in range(BATCH - 1):
        await turn(store, session=session, messages=(written(session, f"t{i}", "x"),))
    await store.index.close()
    assert await indexed(store) == 1
    await turn(store, session=session, messages=(written(session, "t", "x"),))
    await store.index.close()
    assert await indexed(store) == BATCH + 1
    await check_index(store)


async def test_searches_and_turns_at_once_index_every_message_once(store: Stores) -> None:
    session = session_of("k")

    async def write(number: int) -> None:
        where = THERE
        await store.inbox.add(said(f"m{number}", where), f"t_m{number}")
        row = await claimed(store, where)
        messages = tuple(written(session, row.turn_id, f"word {number} {k}") for k in range(30))
        commit = ended(row, session=session, messages=messages)
        await store.turns.commit_turn(commit)

    async def search() -> None:
        for _ in range(10):
            await store.sessions.search_messages("word", user_id=None)

    async def write_all() -> None:
        for number in range(10):
            await write(number)

    await asyncio.gather(write_all(), search(), search())
    hits = await store.sessions.search_messages("word", user_id=None, limit=1000)
    assert len({hit.message_id for hit in hits}) == len(hits) == 300
    await check_index(store)


async def test_a_broken_index_stops_no_turn(store: Stores) -> None:
    await store.engine.write(lambda c: c.execute("DROP TABLE search").close())
    session = session_of("k")
    for i in range(3):
        messages = tuple(written(session, f"t{i}", "x") for _ in range(BATCH))
        await turn(store, session=session, messages=messages)
        await asyncio.gather(store.index.close(), return_exceptions=True)
    assert len(await store.sessions.messages(session.id)) == 3 * BATCH


async def test_messages_that_are_deleted_or_given_to_another_person_leave_the_index(store: Stores) -> None:
    session = session_of("k")
    await turn(store, session=session, messages=tuple(written(session, "t", f"word {i}") for i in range(4)))
    await store.index.catch_up()
    await turn(store, session=session, messages=(written(session, "t2", "word 4"), written(session, "t2", "word 5")))
    for sql in ("DELETE FROM messages WHERE id IN (2, 5)", "UPDATE messages SET user_id = 'u_ben' WHERE id IN (3, 6)"):
        await store.engine.write(lambda c, sql=sql: c.execute(sql).close())
    search = store.sessions.search_messages
    assert sorted(hit.message_id for hit in await search("word", user_id="u_ada")) == [1, 4]
    assert sorted(hit.message_id for hit in await search("word", user_id="u_ben")) == [3, 6]
    await check_index(store)


# ---- cost -----------------------------------------------------------------------------------------------------------


class CountingDatabase:
    """The database, which counts SQLite's steps (by 10) of each read and write."""

    def __init__(self, database: SqliteEngine) -> None:
        self._database = database
        self.steps = 0

    def _counted(self, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def count() -> int:
            self.steps += 1
            return 0

        def counted(connection: sqlite3.Connection) -> Any:
            connection.set_progress_handler(count, 10)
            try:
                return work(connection)
            finally:
                connection.set_progress_handler(None, 10)

        return counted

    async def read(self, work: Callable[[Any], Any]) -> Any:
        return await self._database.read(self._counted(work))

    rows, row, ask = SqliteEngine.rows, SqliteEngine.row, SqliteEngine.ask

    async def write(self, work: Callable[[Any], Any], *, is_durable: bool = True, **options: bool) -> Any:
        return await self._database.write(self._counted(work), is_durable=is_durable, **options)

    write_at_once = SqliteEngine.write_at_once


async def test_the_cost_of_a_window_and_of_a_claim_does_not_grow_with_what_is_finished(store: Stores) -> None:
    session = session_of("k")
    counting = CountingDatabase(store.engine)
    sessions, lanes = SqlSessions(counting, store.index), SqlLanes(counting)

    async def steps_of_a_turn(name: str) -> int:
        counting.steps = 0
        await sessions.window(session.id, after=0, max_chars=200)
        await store.inbox.add(said(name), f"t_{name}")
        [row] = (await lanes.claim("me", lease_s=60, limit=1, turns_of_one={"": 1, "local": 1})).rows
        await store.turns.commit_turn(ended(row))
        await sessions.active_session("k")
        return counting.steps

    async def least_steps(phase: str) -> int:
        """Without those of a reader that has just connected and has to learn the schema."""
        return min([await steps_of_a_turn(f"{phase}{i}") for i in range(8)])

    async def grow(turns: int) -> None:
        for i in range(turns):
            await turn(store, session=session, messages=tuple(written(session, f"{i}", "x" * 20) for _ in range(20)))

    await grow(5)
    short = await least_steps("short")
    await grow(100)
    long = await least_steps("long")
    assert 0 < long <= short + 2
