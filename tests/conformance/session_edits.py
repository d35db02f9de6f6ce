"""What every store must do in which people look through their sessions and tidy them; and its neighbours.

A test module makes a subclass and gives it a fixture `stores`.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.sessions import Session
from gateway.messages import ConversationRef
from gateway.people.api_keys import ApiKey
from gateway.people.sign_ins import SignIn
from gateway.store.engine import Connection
from gateway.store.idempotency import SqlIdempotency, StoredAnswer
from gateway.store.session_edits import SessionFilter, place_of
from gateway.store.sessions import save_message, save_session
from gateway.store.stores import Stores
from tests.conformance.stores import BEGAN, MINUTE, session_of, written

THERE = ConversationRef(channel="web", conversation="fork")


async def wrote(stores: Stores, session: Session, *texts: str, **changes: Any) -> list[int]:
    """Say the texts in the session; the ids of its messages."""

    def work(connection: Connection) -> None:
        save_session(connection, session)
        for text in texts:
            save_message(connection, written(session, f"t_{text[:9]}", text, **changes))

    await stores.engine.write(work)
    return [message.id for message in await stores.sessions.messages(session.id)]


async def names(stores: Stores, wanted: SessionFilter, **changes: Any) -> list[str]:
    listed = await stores.session_edits.listed(wanted, **{"limit": 9, **changes})
    return [one.session.id for one in listed]


class SessionEditSuite:
    async def test_sessions_are_listed_by_what_is_asked_for_in_pages(self, stores: Stores) -> None:
        for number, (user, channel) in enumerate([("u_ada", "web"), ("u_ben", "web"), ("u_ada", "mail")]):
            session = session_of(f"{number}", user, conversation=ConversationRef(channel=channel, conversation="c"))
            await wrote(stores, session, f"text {number}")
        await stores.session_edits.update("s_1", title=None, is_pinned=True)
        assert await names(stores, SessionFilter()) == ["s_2", "s_1", "s_0"]
        assert await names(stores, SessionFilter(user_id="u_ada")) == ["s_2", "s_0"]
        assert await names(stores, SessionFilter(channel="web")) == ["s_1", "s_0"]
        assert await names(stores, SessionFilter(is_pinned=True, user_id="u_ben", channel="web")) == ["s_1"]
        assert await names(stores, SessionFilter(is_pinned=False)) == ["s_2", "s_0"]
        [newest] = await stores.session_edits.listed(SessionFilter(), limit=1)
        assert (newest.messages, newest.is_pinned, newest.forked_from) == (1, False, None)
        assert await names(stores, SessionFilter(), before=place_of(newest)) == ["s_1", "s_0"]
        assert await stores.session_edits.one("s_none") is None

    async def test_a_title_that_a_person_gave_stays(self, stores: Stores) -> None:
        session = session_of("one")
        await wrote(stores, session, "a")
        edits = stores.session_edits
        assert await edits.update(session.id, title="Mine", is_pinned=None)
        assert not await edits.update("s_none", title="Mine", is_pinned=None)
        await wrote(stores, replace(session, title="Another", updated_at=BEGAN + MINUTE), "b")
        head = await edits.head(session.id)
        assert head is not None
        assert (head[0].title, head[1]) == ("Mine", True)

    async def test_a_session_that_is_opened_is_its_key_s_unless_there_is_one(self, stores: Stores) -> None:
        first, second = session_of("one", key="k"), session_of("two", key="k")
        await asyncio.gather(stores.session_edits.open(first), stores.session_edits.open(second))
        active = await stores.sessions.active_session("k")
        assert active is not None
        assert await names(stores, SessionFilter()) == [active.id]
        await wrote(stores, session_of("three", key="k"), "a")
        await stores.session_edits.activate(active)
        assert await stores.sessions.active_session("k") == active

    @pytest.mark.parametrize("user_id", [None, "u_ada"])
    async def test_a_fork_has_copies_of_the_messages_in_their_order_which_are_found(
        self, stores: Stores, user_id: str | None
    ) -> None:
        session = session_of("one")
        await wrote(stores, session, "apple", "pear")
        await wrote(stores, session, "plum", user_id="u_ben")
        ids = await wrote(stores, session, "quince")
        await stores.sessions.save_summary(session.id, summary="apples", until=ids[0])
        edits = stores.session_edits
        new = await edits.fork(session.id, until=ids[2], title="Copy", key="f", conversation=THERE, user_id=user_id)
        assert new is not None
        copied = await stores.sessions.messages(new)
        assert [message.text for message in copied] == (
            ["apple", "pear", "plum"] if user_id is None else ["apple", "pear"]
        )
        one = await edits.one(new)
        assert one is not None
        assert (one.forked_from, one.session.title) == (session.id, "Copy")
        assert (one.session.summary, one.session.summary_until) == (
            ("apples", copied[0].id) if user_id is None else ("", 0)
        )
        found = await edits.found("pear", user_id="u_ada", before=None)
        assert [hit.session_id for hit in found] == [new, session.id]
        assert [hit.session_id for hit in await edits.found("pear", user_id=None, before=copied[0].id)] == [session.id]
        assert await edits.fork(session.id, until=10**9, title="", key="f", conversation=THERE) is None

    async def test_a_branch_has_what_was_said_before_a_message_and_knows_whose_place_it_takes(
        self, stores: Stores
    ) -> None:
        edits, first = stores.session_edits, session_of("1")
        numbers = await wrote(stores, first, "one", "two", "three")

        async def branch(name: str, until: int, turn: str) -> None:
            place = replace(THERE, conversation=name)
            made = await edits.fork(
                "s_1", until=until, title=None, key=name, conversation=place, branch_turn=turn, new_id=f"s_{name}"
            )
            assert made == f"s_{name}"

        await branch("late", numbers[2], "t_three")
        await branch("early", numbers[0], "t_one")
        await branch("late", numbers[2], "t_three")  # the same again makes no second one
        assert [one.text for one in await stores.sessions.messages("s_late")] == ["one", "two"]
        assert await stores.sessions.messages("s_early") == []
        late, early = await edits.one("s_late"), await edits.one("s_early")
        assert late is not None
        assert early is not None
        assert (late.branch_of, late.branch_turn, late.session.title) == ("s_1", "t_three", first.title)
        assert (early.branch_of, early.branch_turn, early.session.title) == ("s_1", "t_one", "")
        found = [(one.id, one.branch_turn, one.first_turn) for one in await edits.branches("s_1")]
        assert found == [("s_late", "t_three", None), ("s_early", "t_one", None)]
        await wrote(stores, replace(late.session, key="late"), "third")
        assert [one.first_turn for one in await edits.branches("s_1")] == ["t_third", None]
        assert await names(stores, SessionFilter(branch_of="s_1")) == ["s_early", "s_late"]
        assert await edits.asked("s_late") == ["t_one:s_late", "t_two:s_late", "t_third"]
        assert await edits.fork("s_1", until=99, title=None, key="k", conversation=THERE, branch_turn="t_x") is None

    async def test_a_session_is_found_by_words_of_its_title_in_small_or_large_letters(self, stores: Stores) -> None:
        for number, title in enumerate(["Ärger mit 100% Tee", "tea_plans", "Teaplans"]):
            await wrote(stores, session_of(f"{number}", title=title), "text")
        wanted = {"Ärger": ["s_0"], "0% t": ["s_0"], "TEA_P": ["s_1"], "tea": ["s_2", "s_1"], "%": ["s_0"], "!": []}
        for words, found in wanted.items():
            assert await names(stores, SessionFilter(title=words)) == found, words

    async def test_messages_are_read_forwards_backwards_and_by_turns(self, stores: Stores) -> None:
        session = session_of("one")
        ids = await wrote(stores, session, "a", "b", "c")
        edits = stores.session_edits
        assert [each.text for each in await edits.messages(session.id, after=ids[0], limit=1)] == ["b"]
        assert await edits.messages(session.id, after=0, limit=9, user_id="u_ben") == []
        assert [each.text for each in await edits.passage(session.id, before=None, limit=2)] == ["b", "c"]
        assert [each.text for each in await edits.of_turns(["t_a", "t_c"])] == ["a", "c"]
        assert await edits.person_ids("u_ada") == {"u_ada"}

    async def test_a_deleted_session_is_gone_with_all_that_was_said_in_it(self, stores: Stores) -> None:
        session = session_of("one")
        await wrote(stores, session, "apple")
        assert await stores.session_edits.delete(session.id)
        assert not await stores.session_edits.delete(session.id)
        assert await stores.sessions.active_session("one") is None
        assert await stores.sessions.search_messages("apple", user_id=None) == []

    async def test_a_session_that_is_deleted_while_a_turn_is_committed_is_gone_or_begins_again(
        self, stores: Stores
    ) -> None:
        session = session_of("one")
        await wrote(stores, session, "before")
        said, go_on = threading.Event(), threading.Event()

        def work(connection: Connection) -> None:
            save_session(connection, session)
            save_message(connection, written(session, "t", "meanwhile"))
            said.set()
            go_on.wait(60)

        turn = asyncio.create_task(stores.engine.write(work))
        await asyncio.to_thread(said.wait, 60)
        deleting = asyncio.create_task(stores.session_edits.delete(session.id))
        go_on.set()
        await turn
        assert await deleting
        assert await stores.sessions.messages(session.id) == []

    async def test_keys_and_sign_ins_are_kept_used_and_ended(self, stores: Stores) -> None:
        key = ApiKey(
            id="0123456789ab", name="backup", hash=b"\0\xff", scopes=("memory:read", "chat"), user_id=None,
            created_at=BEGAN, last_used_at=None, revoked_at=None,
        )  # fmt: skip
        keys = stores.api_keys
        await keys.add(key)
        await keys.note_use(key.id, BEGAN + MINUTE)
        await keys.note_use(key.id, BEGAN)
        assert await keys.keys() == [replace(key, last_used_at=BEGAN + MINUTE)]
        assert [await keys.revoke(key.id, BEGAN) for _ in range(2)] == [True, False]
        signed_in = SignIn(id="ab", hash=b"\0\xff", browser="Firefox", created_at=BEGAN, last_seen_at=BEGAN)
        sign_ins = stores.sign_ins
        await sign_ins.add(signed_in)
        await sign_ins.note_seen("ab", BEGAN + MINUTE)
        assert await sign_ins.sign_ins() == [replace(signed_in, last_seen_at=BEGAN + MINUTE)]
        await sign_ins.end_begun_before(BEGAN)
        assert [await sign_ins.end("ab") for _ in range(2)] == [True, False]

    async def test_a_write_that_is_asked_for_many_times_at_once_is_begun_once(self, stores: Stores) -> None:
        store = SqlIdempotency(stores.engine.of("idempotency"), owner="here")
        states = await asyncio.gather(*(store.begin("", "k", b"hash") for _ in range(8)))
        assert sorted(map(str, states)) == ["new", *["running"] * 7]
        answer = StoredAnswer(status=200, headers="[]", body=b"\0")
        await store.end("", "k", answer)
        assert await store.begin("", "k", b"hash") == answer

    async def test_an_empty_store_has_no_backlog(self, stores: Stores) -> None:
        assert list(await stores.facts.backlog()) == []
        assert await stores.facts.unsettled_turns() == 0
