"""How traces are found: any of the words, in every script, with what stands beside them; never an error."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.traces.search import Closeness, TraceQuery, search
from gateway.traces.search_words import register_functions
from gateway.traces.trace_store import TraceStore
from gateway.traces.vectors import QueryVector
from tests.gateway.memory.traces.people import ADA, BEN, NOBODY, Clock, of
from tests.gateway.memory.traces.shared import about_files

ON_BOTH = True


async def keep(trace_store: TraceStore, *contents: str) -> None:
    for content in contents:
        await trace_store.add(ADA, of(ADA, content))


async def found(trace_store: TraceStore, query: str, **wanted: object) -> list[str]:
    hits = await trace_store.search(ADA, TraceQuery(query=query, **wanted))  # type: ignore[arg-type]
    return [hit.trace.content for hit in hits]


async def test_a_question_finds_what_holds_any_of_its_telling_words(trace_store: TraceStore) -> None:
    await keep(trace_store, "Ada's bicycle is blue", "The harbour froze in February", "He had it with them")
    assert await found(trace_store, "What colour was the bicycle that I had?") == ["Ada's bicycle is blue"]
    assert await found(trace_store, "Did the harbour or the lake freeze?") == ["The harbour froze in February"]


async def test_words_are_found_by_their_stem(trace_store: TraceStore) -> None:
    await keep(trace_store, "She runs marathons and keeps running shoes by the door")
    assert await found(trace_store, "run")
    assert await found(trace_store, "marathon")
    assert await found(trace_store, "shoe keeping")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"green tea"', ["green tea at noon"]),
        ("tea AND noon", ["green tea at noon"]),
        ("tea NOT green", ["black tea"]),
        ("green OR black", ["green tea at noon", "black tea", "tea, and green cups"]),
        ("(green OR black) AND noon", ["green tea at noon"]),
        ("bla*", ["black tea"]),
        ("tea NOT (green OR noon)", ["black tea"]),
    ],
)
async def test_operators_phrases_and_prefixes_mean_what_they_say(
    trace_store: TraceStore, query: str, expected: list[str]
) -> None:
    await keep(trace_store, "green tea at noon", "black tea", "tea, and green cups", "water")
    assert sorted(await found(trace_store, query)) == sorted(expected)


async def test_a_prefix_finds_a_word_whose_ending_the_index_does_not_hold(trace_store: TraceStore) -> None:
    await keep(trace_store, "He was running late")
    assert await found(trace_store, "runni*") == ["He was running late"]


@pytest.mark.parametrize(
    "query",
    ["AND", "NOT tea", "tea AND", "(tea", "tea)", '"', '"" OR', "* * *", "a:b", "scope : 1", "^", "", "?!", "\0"],
)
async def test_no_input_is_a_syntax_error(trace_store: TraceStore, query: str) -> None:
    await keep(trace_store, "green tea")
    hits = await found(trace_store, query)
    assert hits == (["green tea"] if "tea" in query else [])


@given(query=st.text(max_size=60))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_whatever_is_typed_gives_an_answer(trace_store: TraceStore, query: str) -> None:
    assert isinstance(await found(trace_store, query), list)


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("我喜欢喝绿茶不加糖", "我喜欢喝什么茶绿茶吗"),
        ("彼女は東京で働いています", "東京のどこで働いていますか"),
        ("Она живёт в Москве над рекой", "где в москве"),
        ("هو يحب القهوة كثيرا", "القهوة"),
        ("น้ำส้มอยู่ในตู้เย็น", "น้ำส้ม"),
        ("Šárka má ráda švestky", "svestky"),
    ],
)
async def test_words_of_every_script_are_found(trace_store: TraceStore, content: str, query: str) -> None:
    await keep(trace_store, content, "Something else in English")
    assert (await found(trace_store, query))[0] == content


async def test_speaker_and_date_are_searched_too(trace_store: TraceStore, clock: Clock) -> None:
    await trace_store.add(ADA, of(ADA, "we went sailing", speaker="Caroline", created_at=clock.now))
    await trace_store.add(ADA, of(ADA, "we went skating", speaker="Melanie", created_at=clock.now))
    assert (await found(trace_store, "Where did Caroline go?"))[0] == "we went sailing"
    assert set(await found(trace_store, "november")) == {"we went sailing", "we went skating"}
    assert not await found(trace_store, "october")


async def test_a_named_speaker_is_preferred(trace_store: TraceStore) -> None:
    await trace_store.add(ADA, of(ADA, "Melanie, I paint a lake near the house", speaker="Caroline"))
    await trace_store.add(ADA, of(ADA, "I paint a lake near the house", speaker="Melanie"))
    hits = await trace_store.search(ADA, TraceQuery(query="What lake does Melanie paint?"))
    named = next(hit for hit in hits if hit.trace.speaker == "Melanie")
    assert named.factors["named"] > 1
    other = next(hit for hit in hits if hit.trace.speaker == "Caroline")
    assert "named" not in other.factors


async def test_the_answer_beside_the_question_is_found_though_it_shares_no_word(trace_store: TraceStore) -> None:
    for position, content in enumerate(
        ["Which instrument do you play at weekends?", "The violoncello, since childhood", "Lovely!"]
    ):
        await trace_store.add(ADA, of(ADA, content, conversation="c1", position=position))
    await trace_store.add(ADA, of(ADA, "I play chess", conversation="c2", position=0))
    hits = await trace_store.search(ADA, TraceQuery(query="instrument weekends"))
    assert "The violoncello, since childhood" in [hit.trace.content for hit in hits]
    answer = next(hit for hit in hits if hit.trace.content.startswith("The violoncello"))
    assert set(answer.parts) == {"beside", "conversation"}


async def test_what_is_of_the_day_that_is_asked_for_is_found_without_a_word_in_common(
    trace_store: TraceStore, clock: Clock
) -> None:
    day = timedelta(days=1)
    for far, content in ((0, "It rains"), (7, "Planted twelve saplings"), (30, "Planted roses"), (30, "In the garden")):
        await trace_store.add(ADA, of(ADA, content, created_at=clock.now - far * day))
    await trace_store.add(BEN, of(BEN, "Planted nothing", created_at=clock.now - 7 * day))
    hits = await trace_store.search(ADA, TraceQuery(query="What did I do in the garden a week ago?"))
    assert [hit.trace.content for hit in hits] == ["In the garden", "Planted twelve saplings"]
    assert set(hits[1].parts) == {"day"}
    assert await found(trace_store, '"a week ago"') == []
    assert await found(trace_store, "a week ago", type="semantic") == []


async def test_a_match_on_a_busy_day_comes_before_what_is_newer_and_only_of_that_day(
    trace_store: TraceStore, clock: Clock
) -> None:
    yesterday = clock.now - timedelta(days=1)
    await trace_store.add(ADA, of(ADA, "Lunch with Rachel", created_at=yesterday))
    for number in range(150):
        await trace_store.add(
            ADA, of(ADA, f"Something number{number}", created_at=yesterday + timedelta(minutes=number))
        )
    assert (await found(trace_store, "Lunch yesterday?"))[0] == "Lunch with Rachel"


async def test_type_and_scope_limit_the_answer_and_the_limit_its_length(trace_store: TraceStore) -> None:
    for number in range(120):
        await trace_store.add(ADA, of(ADA, f"tea number{number}", type="semantic" if number % 2 else "episodic"))
    await trace_store.add(ADA, of(ADA, "tea of all", "organization"))
    assert len(await found(trace_store, "tea")) == 10
    assert len(await found(trace_store, "tea", limit=1_000)) == 100
    assert await found(trace_store, "tea", limit=0) == []
    assert await found(trace_store, "tea", scope="organization") == ["tea of all"]
    hits = await trace_store.search(ADA, TraceQuery(query="tea", type="semantic", limit=100))
    assert {hit.trace.type for hit in hits} == {"semantic"}
    assert len(hits) == 60


async def test_nobody_finds_what_is_somebody_elses(trace_store: TraceStore) -> None:
    await keep(trace_store, "the canary sings at four")
    await trace_store.add(ADA, of(ADA, "the shared canary", "organization"))
    for viewer in (BEN, NOBODY):
        hits = await trace_store.search(viewer, TraceQuery(query="canary OR sings"))
        assert [hit.trace.content for hit in hits] == ["the shared canary"]


async def test_neighbours_in_a_conversation_of_the_same_name_stay_apart(trace_store: TraceStore) -> None:
    await trace_store.add(ADA, of(ADA, "Where is the treasure buried?", conversation="c", position=0))
    await trace_store.add(BEN, of(BEN, "Under the old oak", conversation="c", position=1))
    assert await found(trace_store, "treasure buried") == ["Where is the treasure buried?"]


async def test_strength_now_is_told_and_weighs_a_little(trace_store: TraceStore, clock: Clock) -> None:
    await keep(trace_store, "green tea in the old kettle")
    clock.move(days=30)
    await keep(trace_store, "green tea in the new kettle")
    fresh, old = await trace_store.search(ADA, TraceQuery(query="green tea kettle"))
    assert fresh.trace.content.endswith("new kettle")
    assert old.strength < fresh.strength <= 1
    assert old.score < fresh.score


async def test_the_named_persons_words_outrank_a_better_match_of_another(trace_store: TraceStore) -> None:
    await keep(trace_store, *(f"The weather of day {day} was fair" for day in range(30)))
    await trace_store.add(ADA, of(ADA, "I sail to the lake, a lake I love, to sail", speaker="Caroline"))
    await trace_store.add(
        ADA, of(ADA, "We sail in the summer on that wide water, as a rule over to the lake", speaker="Melanie")
    )
    assert (await found(trace_store, "Where does Melanie sail on a lake?"))[0].startswith("We sail in the summer")
    assert (await found(trace_store, "Where does Caroline sail on a lake?"))[0].startswith("I sail to the lake")


async def test_the_answer_to_a_question_comes_before_what_was_said_before_it(trace_store: TraceStore) -> None:
    said = [
        ("Ada", "The trains were late again"),
        ("Ben", "Which instrument do you play at weekends?"),
        ("Ada", "The violoncello, since childhood"),
        ("Ben", "Lovely!"),
    ]
    for position, (speaker, content) in enumerate(said):
        await trace_store.add(ADA, of(ADA, content, speaker=speaker, conversation="c1", position=position))
    question, answer, *_ = await found(trace_store, "instrument weekends")
    assert (question, answer) == (said[1][1], said[2][1])


@pytest.mark.parametrize(
    ("question", "speaker"),
    [
        ("What is my favourite tea?", "user"),
        ("Which tea did you recommend as a favourite?", "assistant"),
        ("Which favourite tea had you just mentioned?", "assistant"),
    ],
)
async def test_a_question_says_whether_the_persons_words_count_or_the_assistants(
    trace_store: TraceStore, question: str, speaker: str
) -> None:
    await trace_store.add(ADA, of(ADA, "Mint is the favourite tea", speaker="assistant"))
    await trace_store.add(ADA, of(ADA, "Mint is the favourite tea!", speaker="user"))
    hits = await trace_store.search(ADA, TraceQuery(query=question))
    assert hits[0].trace.speaker == speaker


async def test_a_score_says_something_in_a_memory_of_a_few_facts_too(trace_store: TraceStore) -> None:
    await keep(trace_store, "Rex is a dog")
    (hit,) = await trace_store.search(ADA, TraceQuery(query="dog"))
    assert hit.parts == {"words": 1.0}
    await keep(trace_store, "Tom is a cat")
    assert [round(hit.score, 3) for hit in await trace_store.search(ADA, TraceQuery(query="dog cat"))] == [1.0, 1.0]


def pair(question: str, answer: str) -> str:
    return f"[user]: {question}\n[assistant]: {answer}"


async def test_a_long_answer_does_not_hide_the_question_it_goes_with(trace_store: TraceStore) -> None:
    """As an import of conversations makes them: an answer holds words of everything."""
    await keep(trace_store, *(f"The weather of day {day} was fair" for day in range(30)))
    asked = pair("I keep my violin in the attic, is that too dry for it?", "Wood needs moisture. " * 60)
    other = pair(
        "Ideas for a party?", f"{'Balloons and cake and games for all. ' * 20} A violin, an attic, a violin. " * 3
    )
    await keep(trace_store, other, asked)
    assert (await found(trace_store, "Where do I keep my violin?"))[0] == asked
    assert (await found(trace_store, "attic violin"))[0] == asked


async def test_the_beginning_of_an_answer_is_searched_and_its_end_is_not(trace_store: TraceStore) -> None:
    await keep(
        trace_store,
        pair("Which museum do you advise?", f"The Kunsthalle. {'It has many rooms. ' * 60} Bring an umbrella."),
    )
    assert await found(trace_store, "Kunsthalle")
    assert not await found(trace_store, "umbrella")


async def test_a_pair_that_changes_is_found_by_what_it_says_now(trace_store: TraceStore) -> None:
    await keep(trace_store, pair("Where is the key?", "Under the stone"))
    trace = (await trace_store.search(ADA, TraceQuery(query="key")))[0].trace
    assert await trace_store.update(ADA, trace.id, content=pair("Where is the ladder?", "In the barn"))
    assert not await found(trace_store, "key")
    assert not await found(trace_store, "stone")
    assert await found(trace_store, "barn")
    assert await trace_store.delete(ADA, trace.id)
    assert not await found(trace_store, "ladder")


@about_files
async def test_a_search_asks_few_things_however_much_it_finds(trace_store: TraceStore) -> None:
    async def statements() -> int:
        asked: list[str] = []

        def work(connection: sqlite3.Connection) -> None:
            connection.set_trace_callback(asked.append)
            assert search(connection, ADA, TraceQuery(query="tea kettle"), trace_store.now())
            connection.set_trace_callback(None)

        await trace_store.database.read(work)
        return len([each for each in asked if not each.startswith("--")])

    for number in range(60):
        fact = f"tea from kettle number{number}"
        await trace_store.add(ADA, of(ADA, fact, conversation=f"c{number % 20}", position=number))
    assert await statements() <= 16  # the index's own among them


@about_files
@pytest.mark.parametrize("change", ["DELETE FROM traces", "UPDATE traces SET deleted_at = 1"])
async def test_what_is_deleted_while_a_search_runs_is_left_out(trace_store: TraceStore, change: str) -> None:
    await keep(trace_store, "green tea", "green tea in the old kettle")

    def work(connection: sqlite3.Connection) -> list[str]:
        class Deleting(QueryVector):
            def compare(self, *_: object) -> dict[int, Closeness]:
                with closing(sqlite3.connect(trace_store.database.path)) as other, other:
                    register_functions(other)
                    other.execute(f"{change} WHERE content = 'green tea'")
                return {}

        vector = Deleting("m", b"", 0.0)
        found = search(connection, ADA, TraceQuery(query="tea"), trace_store.now(), vector)
        return [hit.trace.content for hit in found]

    assert await trace_store.database.read(work) == ["green tea in the old kettle"]
