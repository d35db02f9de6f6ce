"""What every store of sessions must do, search and usage included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.sessions import Session
from tests.conformance.stores import BEGAN, HERE, MINUTE, House, session_of, turn, written

ADA = "u_ada"
BEN = "u_ben"


async def wrote(house: House, session: Session, *texts: str, **changes: Any) -> str:
    """A turn that writes the texts; its id."""
    turn_id = f"t_{session.id}_{len(await house.store.sessions.messages(session.id))}"
    messages = tuple(written(session, turn_id, text, **changes) for text in texts)
    await turn(house.store, HERE, session=session, messages=messages)
    return turn_id


class SessionSuite:
    async def test_a_key_has_one_active_session_the_one_of_the_latest_turn(self, house: House) -> None:
        first = session_of("one", key="k")
        second = session_of("two", key="k")
        await wrote(house, first, "a")
        await wrote(house, second, "b")
        await house.reopen()
        assert await house.store.sessions.active_session("k") == second
        assert await house.store.sessions.session(first.id) == first
        assert await house.store.sessions.active_session("other") is None
        assert await house.store.sessions.session("s_none") is None

    async def test_a_session_is_stored_as_the_turn_left_it(self, house: House) -> None:
        session = session_of("one")
        await wrote(house, session, "a")
        changed = replace(session, personality_id="engineer", title="Tïtle", updated_at=BEGAN + MINUTE)
        await wrote(house, changed, "b")
        assert await house.store.sessions.session(session.id) == changed

    async def test_a_session_with_words_of_others_in_it_stays_so_and_its_messages_say_it_when_they_are_found(
        self, house: House
    ) -> None:
        session = session_of("one")
        await wrote(house, session_of("clean"), "blue")
        await wrote(house, replace(session, is_tainted=True), "blue", author="Ada", is_tainted=True)
        await wrote(house, session, "green")
        stored = await house.store.sessions.session(session.id)
        assert stored is not None
        assert stored.is_tainted
        hits = await house.store.sessions.search_messages("blue", user_id=ADA)
        assert {hit.session_id: hit.is_tainted for hit in hits} == {"s_one": True, "s_clean": False}
        assert [said.author for said in await house.store.sessions.messages(session.id)] == ["Ada", ""]

    async def test_sessions_are_listed_newest_first_in_pages_of_one_person_or_of_all(self, house: House) -> None:
        for i, user_id in enumerate([ADA, BEN, ADA, ADA]):
            await wrote(house, session_of(f"{i}", user_id, updated_at=BEGAN + i * MINUTE), "x")
        sessions = house.store.sessions
        assert [session.id for session in await sessions.list_sessions()] == ["s_3", "s_2", "s_1", "s_0"]
        page = await sessions.list_sessions(user_id=ADA, limit=2)
        assert [session.id for session in page] == ["s_3", "s_2"]
        rest = await sessions.list_sessions(user_id=ADA, before=page[-1])
        assert [session.id for session in rest] == ["s_0"]

    async def test_of_sessions_of_one_moment_the_newest_is_listed_first(self, house: House) -> None:
        for name in ("one", "two", "three"):
            await wrote(house, session_of(name), "x")
        await wrote(house, session_of("one"), "again")
        listed = await house.store.sessions.list_sessions()
        assert [session.id for session in listed] == ["s_three", "s_two", "s_one"]

    async def test_a_page_that_ends_within_one_moment_skips_nothing_of_it(self, house: House) -> None:
        """Also when the last session of a page was spoken in again before the next page is read."""
        for name in ("0", "1", "2", "3", "4"):
            await wrote(house, session_of(name, updated_at=BEGAN + MINUTE * (name == "4")), "x")
        for user_id in (None, ADA):
            seen: list[str] = []
            edge: Session | None = None
            while page := await house.store.sessions.list_sessions(user_id=user_id, limit=2, before=edge):
                seen += [session.id for session in page]
                edge = page[-1]
            assert seen == ["s_4", "s_3", "s_2", "s_1", "s_0"]
        page = await house.store.sessions.list_sessions(limit=2)
        await wrote(house, session_of("3", updated_at=BEGAN + 2 * MINUTE), "again")
        rest = await house.store.sessions.list_sessions(before=page[-1])
        assert [session.id for session in rest] == ["s_2", "s_1", "s_0"]

    async def test_messages_come_back_whole_and_in_order(self, house: House) -> None:
        session = session_of("one")
        messages = (
            written(session, "t", "a\nb\t\u00e9 \U0001f642"),
            written(session, "t", '{"x": 1}', role="tool_call", tool_name="add", tool_call_id="c1"),
            written(session, "t", "2", role="tool_result", tool_name="add", tool_call_id="c1", user_id=BEN),
            written(session, "t", "", role="assistant", personality_id="engineer", created_at=BEGAN + MINUTE),
        )
        await turn(house.store, session=session, messages=messages)
        stored = await house.store.sessions.messages(session.id)
        assert [replace(message, id=0) for message in stored] == list(messages)
        assert [message.id for message in stored] == sorted({message.id for message in stored})
        assert all(message.id > 0 for message in stored)
        assert await house.store.sessions.messages(session.id, limit=2) == stored[-2:]

    async def test_a_lone_surrogate_in_a_text_does_not_stop_the_turn(self, house: House) -> None:
        session = session_of("one")
        await wrote(house, session, "before \ud83d after")
        [message] = await house.store.sessions.messages(session.id)
        assert message.text.startswith("before ")
        assert message.text.endswith(" after")

    async def test_the_window_is_the_newest_whole_turns_that_fit(self, house: House) -> None:
        session = session_of("one")
        for texts in (("aaaa", "bbbb"), ("cccc", "dddd"), ("ee", "ff")):
            await wrote(house, session, *texts)
        first = (await house.store.sessions.messages(session.id))[0].id

        async def window(after: int, max_chars: int) -> str:
            found = await house.store.sessions.window(session.id, after=after, max_chars=max_chars)
            return " ".join(message.text for message in found)

        assert await window(0, 100) == "aaaa bbbb cccc dddd ee ff"
        assert await window(0, 20) == "aaaa bbbb cccc dddd ee ff"
        assert await window(0, 19) == "cccc dddd ee ff"
        assert await window(0, 11) == "ee ff"
        assert await window(0, 3) == ""
        assert await window(first + 1, 100) == "cccc dddd ee ff"

    async def test_an_answer_that_was_replaced_is_kept_but_no_longer_put_in_front_of_the_model(
        self, house: House
    ) -> None:
        session = session_of("one")
        old = await wrote(house, session, "question", "bad answer")
        messages = (written(session, "t_new", "question"), written(session, "t_new", "good answer", role="assistant"))
        await turn(house.store, session=session, messages=messages, supersedes=old)
        sessions = house.store.sessions
        everything = await sessions.messages(session.id)
        assert [message.is_superseded for message in everything] == [True, True, False, False]
        shown = await sessions.window(session.id, after=0, max_chars=100)
        assert [message.text for message in shown] == ["question", "good answer"]
        older = await sessions.older_than(session.id, after=0, before=1 << 60)
        assert [message.text for message in older] == ["question", "good answer"]

    async def test_older_messages_are_those_between_two_ids(self, house: House) -> None:
        session = session_of("one")
        for text in "abcde":
            await wrote(house, session, text)
        ids = [message.id for message in await house.store.sessions.messages(session.id)]
        found = await house.store.sessions.older_than(session.id, after=ids[0], before=ids[3])
        assert [message.text for message in found] == ["b", "c"]

    async def test_a_summary_is_never_taken_back_by_an_older_one_nor_by_a_turn_that_began_before_it(
        self, house: House
    ) -> None:
        session = session_of("one")
        await wrote(house, session, "a")
        sessions = house.store.sessions
        await sessions.save_summary(session.id, summary="new", until=7)
        await sessions.save_summary(session.id, summary="old", until=5)
        await wrote(house, replace(session, title="T"), "b")
        stored = await sessions.session(session.id)
        assert stored == replace(session, title="T", summary="new", summary_until=7)
        await wrote(house, replace(session, summary="newest", summary_until=9), "c")
        assert (await sessions.active_session("one")) == replace(session, summary="newest", summary_until=9)


class SearchSuite:
    async def _found(self, house: House, query: str, user_id: str | None = ADA) -> list[str]:
        hits = await house.store.sessions.search_messages(query, user_id=user_id)
        return [hit.snippet for hit in hits]

    @pytest.mark.parametrize(
        ("text", "query", "snippet"),
        [
            ("The quick brown fox", "fox quick", "The [quick] brown [fox]"),
            ("The quick brown fox", "QUICK", "The [quick] brown fox"),
            ("The quick brown fox", '"brown fox"', "The quick [brown fox]"),
            ("The quick brown fox", "bro* qu*", "The [quick] [brown] fox"),
            ("The quick brown fox", '"quick bro"*', "The [quick brown] fox"),
            ("Café crème à Zürich", "cafe creme zurich", "[Café] [crème] à [Zürich]"),
            ("Die Straße nach Köln", "straße KÖLN", "Die [Straße] nach [Köln]"),
            ("Привет, мир! Как дела?", "мир привет", "[Привет], [мир]! Как дела?"),
            ("Καλημέρα κόσμε", "ΚΌΣΜΕ", "Καλημέρα [κόσμε]"),
            ("مرحبا بالعالم الجديد", "الجديد", "مرحبا بالعالم [الجديد]"),
            ("שלום עולם", "עולם", "שלום [עולם]"),
            ("मुझे हिन्दी पसंद है", "हिन्दी", "मुझे [हिन्दी] पसंद है"),
            ("我们在北京吃烤鸭", "北京", "我们在[北京]吃烤鸭"),
            ("我们在北京吃烤鸭", "鸭", "我们在北京吃烤[鸭]"),
            ("我们在北京吃烤鸭", "烤鸭 北京", "我们在[北京]吃[烤鸭]"),
            ("我们在北京吃烤鸭", "北京*", "我们在[北京]吃烤鸭"),
            ("東京タワーとPython入門", "python 東京", "[東京]タワーと[Python]入門"),
            ("東京タワーとPython入門", "タワー", "東京[タワー]とPython入門"),
            ("ฉันชอบกินส้มตำมาก", "ส้มตำ", "ฉันชอบกิน[ส้มตำ]มาก"),
            ("ຂ້ອຍມັກລາວ", "ລາວ", "ຂ້ອຍມັກ[ລາວ]"),
            ("ខ្ញុំស្រឡាញ់ភាសាខ្មែរ", "ភាសា", "ខ្ញុំស្រឡាញ់[ភាសា]ខ្មែរ"),
            ("မြန်မာစာ", "မာစာ", "မြန်[မာစာ]"),
            ("학교에서 만나요", "학교", "[학교]에서 만나요"),
            ("Tiếng Việt rất hay", "tieng viet", "[Tiếng] [Việt] rất hay"),
            ("foo-bar_baz.py", "bar_baz", "foo-[bar_baz].py"),
            ("version 3.11 costs 20€", '"3.11" 20', "version [3.11] costs [20]€"),
            ("𠮷野家で食べる", "𠮷野", "[𠮷野]家で食べる"),
        ],
    )
    async def test_words_are_found_in_every_script(self, house: House, text: str, query: str, snippet: str) -> None:
        await wrote(house, session_of("one"), "something else 別 другое", text, "and more")
        assert await self._found(house, query) == [snippet]

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("The quick brown fox", "fox hound"),
            ("The quick brown fox", '"fox brown"'),
            ("The quick brown fox", "qui"),
            ("The quick brown fox", '"brown qu"*'),
            ("北京", "京北"),
            ("ม้า", "มา"),
            ("text", "NOT text OR nothing"),
            ("text", "user:text2"),
        ],
    )
    async def test_what_does_not_have_all_the_words_is_not_found(self, house: House, text: str, query: str) -> None:
        await wrote(house, session_of("one"), text)
        assert await self._found(house, query) == []

    @pytest.mark.parametrize("query", ["", "   ", '"', '""', "*", "***", "-", "!?", "🙂", "\0", "\ud800", '"*"', "()"])
    async def test_a_query_without_words_finds_nothing_and_is_no_error(self, house: House, query: str) -> None:
        await wrote(house, session_of("one"), "text * 🙂")
        assert await self._found(house, query) == []

    async def test_what_a_tool_returned_in_a_session_is_read_in_order(self, house: House) -> None:
        session, other = session_of("a"), session_of("b")
        said = [
            written(one, name, name, role="tool_result", tool_name=tool, tool_call_id="c")
            for one, name, tool in [
                (session, "t1", "find"), (session, "t2", "look"), (other, "t3", "find"), (session, "t4", "find"),
            ]
        ]  # fmt: skip
        for message in said:
            await turn(house.store, session=session if message.session_id == session.id else other, messages=(message,))
        assert await house.store.sessions.results(session.id, "find") == ["t1", "t4"]
        assert await house.store.sessions.results("s_none", "find") == []

    @settings(
        max_examples=150,
        deadline=None,
        # one store for all examples, and one suite for all stores, is what is meant
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(
        query=st.one_of(
            st.text(),
            st.text(alphabet="ab \"*^:(){}-+\\'ANDORTEXNr,.\0\ud800中ก", max_size=40),
            st.lists(st.sampled_from(["AND", "OR", "NOT", "NEAR(", "a", '"', "*", "scope:", "^", "{", ")"])).map(
                " ".join
            ),
        )
    )
    async def test_no_query_is_an_error(self, house: House, query: str) -> None:
        await house.store.sessions.search_messages(query, user_id=ADA)
        await house.store.sessions.search_messages(query, user_id=None)

    async def test_nobody_finds_what_another_person_wrote(self, house: House) -> None:
        await wrote(house, session_of("a", ADA), "secret of Ada")
        await wrote(house, session_of("b", BEN), "secret of Ben")
        assert await self._found(house, "secret", ADA) == ["[secret] of Ada"]
        assert await self._found(house, "secret", BEN) == ["[secret] of Ben"]
        assert await self._found(house, "secret", "u_a") == []
        assert await self._found(house, 'secret" OR scope:"755f62656e', ADA) == []
        assert len(await self._found(house, "secret", None)) == 2

    async def test_a_person_is_not_found_as_a_word(self, house: House) -> None:
        await wrote(house, session_of("a", ADA), "text")
        assert await self._found(house, ADA.encode().hex(), None) == []

    async def test_what_says_more_in_fewer_words_comes_first(self, house: House) -> None:
        long = "whale " + "water " * 60
        await wrote(house, session_of("one"), "whale, whale and whale", long, "a whale here")
        hits = await house.store.sessions.search_messages("whale", user_id=ADA)
        texts = {message.id: message.text for message in await house.store.sessions.messages("s_one")}
        assert [texts[hit.message_id] for hit in hits] == ["whale, whale and whale", "a whale here", long]
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    async def test_of_equals_the_newest_comes_first_and_the_limit_is_kept(self, house: House) -> None:
        for i in range(5):
            await wrote(house, session_of("one"), f"same {i}")
        hits = await house.store.sessions.search_messages("same", user_id=ADA, limit=3)
        assert [hit.snippet for hit in hits] == ["[same] 4", "[same] 3", "[same] 2"]

    async def test_a_hit_says_where_it_stands(self, house: House) -> None:
        session = session_of("one")
        await wrote(house, session, "needle", role="assistant", personality_id="engineer")
        [hit] = await house.store.sessions.search_messages("needle", user_id=ADA)
        [message] = await house.store.sessions.messages(session.id)
        assert (hit.message_id, hit.session_id, hit.role) == (message.id, session.id, "assistant")
        assert (hit.personality_id, hit.created_at) == ("engineer", BEGAN)

    async def test_a_snippet_of_a_long_text_shows_the_match_on_one_line(self, house: House) -> None:
        await wrote(house, session_of("one"), "before\n" * 500 + "the needle\nis here " + "after " * 500)
        [snippet] = await self._found(house, "needle")
        assert "the [needle] is here" in snippet
        assert snippet.startswith("…")
        assert snippet.endswith("…")
        assert len(snippet) < 200

    async def test_what_tools_said_is_not_searched(self, house: House) -> None:
        await wrote(house, session_of("one"), '{"needle": 1}', role="tool_call", tool_name="t", tool_call_id="1")
        await wrote(house, session_of("one"), "needle", role="tool_result", tool_name="t", tool_call_id="1")
        assert await self._found(house, "needle") == []

    async def test_a_message_is_found_as_soon_as_its_turn_is_committed_and_after_a_restart(self, house: House) -> None:
        for i in range(150):
            await wrote(house, session_of(f"{i}"), f"number{i} word")
        assert await self._found(house, "number149") == ["[number149] word"]
        await house.reopen()
        assert await self._found(house, "number0") == ["[number0] word"]
