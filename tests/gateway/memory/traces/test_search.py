"""How traces are found: any of the words, in every script, with what stands beside them; never an error."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.memory.traces.brain import Brain
from gateway.memory.traces.search import Wanted
from tests.gateway.memory.traces.people import ADA, BEN, NOBODY, Clock, of


async def keep(brain: Brain, *contents: str) -> None:
    for content in contents:
        await brain.add(ADA, of(ADA, content))


async def found(brain: Brain, query: str, **wanted: object) -> list[str]:
    hits = await brain.search(ADA, Wanted(query=query, **wanted))  # type: ignore[arg-type]
    return [hit.trace.content for hit in hits]


async def test_a_question_finds_what_holds_any_of_its_telling_words(brain: Brain) -> None:
    await keep(brain, "Ada's bicycle is blue", "The harbour froze in February", "He had it with them")
    assert await found(brain, "What colour was the bicycle that I had?") == ["Ada's bicycle is blue"]
    assert await found(brain, "Did the harbour or the lake freeze?") == ["The harbour froze in February"]


async def test_words_are_found_by_their_stem(brain: Brain) -> None:
    await keep(brain, "She runs marathons and keeps running shoes by the door")
    assert await found(brain, "run")
    assert await found(brain, "marathon")
    assert await found(brain, "shoe keeping")


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
async def test_operators_phrases_and_prefixes_mean_what_they_say(brain: Brain, query: str, expected: list[str]) -> None:
    await keep(brain, "green tea at noon", "black tea", "tea, and green cups", "water")
    assert sorted(await found(brain, query)) == sorted(expected)


async def test_a_prefix_finds_a_word_whose_ending_the_index_does_not_hold(brain: Brain) -> None:
    await keep(brain, "He was running late")
    assert await found(brain, "runni*") == ["He was running late"]


@pytest.mark.parametrize(
    "query",
    ["AND", "NOT tea", "tea AND", "(tea", "tea)", '"', '"" OR', "* * *", "a:b", "scope : 1", "^", "", "?!", "\0"],
)
async def test_no_input_is_a_syntax_error(brain: Brain, query: str) -> None:
    await keep(brain, "green tea")
    hits = await found(brain, query)
    assert hits == (["green tea"] if "tea" in query else [])


@given(query=st.text(max_size=60))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_whatever_is_typed_gives_an_answer(brain: Brain, query: str) -> None:
    assert isinstance(await found(brain, query), list)


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
async def test_words_of_every_script_are_found(brain: Brain, content: str, query: str) -> None:
    await keep(brain, content, "Something else in English")
    assert (await found(brain, query))[0] == content


async def test_speaker_and_date_are_searched_too(brain: Brain, clock: Clock) -> None:
    await brain.add(ADA, of(ADA, "we went sailing", speaker="Caroline", created_at=clock.now))
    await brain.add(ADA, of(ADA, "we went skating", speaker="Melanie", created_at=clock.now))
    assert (await found(brain, "Where did Caroline go?"))[0] == "we went sailing"
    assert set(await found(brain, "november")) == {"we went sailing", "we went skating"}
    assert not await found(brain, "october")


async def test_a_named_speaker_is_preferred(brain: Brain) -> None:
    await brain.add(ADA, of(ADA, "Melanie, I paint a lake near the house", speaker="Caroline"))
    await brain.add(ADA, of(ADA, "I paint a lake near the house", speaker="Melanie"))
    hits = await brain.search(ADA, Wanted(query="What lake does Melanie paint?"))
    named = next(hit for hit in hits if hit.trace.speaker == "Melanie")
    assert named.factors["named"] > 1
    other = next(hit for hit in hits if hit.trace.speaker == "Caroline")
    assert "named" not in other.factors


async def test_the_answer_beside_the_question_is_found_though_it_shares_no_word(brain: Brain) -> None:
    for position, content in enumerate(
        ["Which instrument do you play at weekends?", "The violoncello, since childhood", "Lovely!"]
    ):
        await brain.add(ADA, of(ADA, content, conversation="c1", position=position))
    await brain.add(ADA, of(ADA, "I play chess", conversation="c2", position=0))
    hits = await brain.search(ADA, Wanted(query="instrument weekends"))
    assert "The violoncello, since childhood" in [hit.trace.content for hit in hits]
    answer = next(hit for hit in hits if hit.trace.content.startswith("The violoncello"))
    assert set(answer.parts) == {"beside", "conversation"}


async def test_type_and_scope_limit_the_answer_and_the_limit_its_length(brain: Brain) -> None:
    for number in range(120):
        await brain.add(ADA, of(ADA, f"tea number{number}", type="semantic" if number % 2 else "episodic"))
    await brain.add(ADA, of(ADA, "tea of all", "organization"))
    assert len(await found(brain, "tea")) == 10
    assert len(await found(brain, "tea", limit=1_000)) == 100
    assert await found(brain, "tea", limit=0) == []
    assert await found(brain, "tea", scope="organization") == ["tea of all"]
    hits = await brain.search(ADA, Wanted(query="tea", type="semantic", limit=100))
    assert {hit.trace.type for hit in hits} == {"semantic"}
    assert len(hits) == 60


async def test_nobody_finds_what_is_somebody_elses(brain: Brain) -> None:
    await keep(brain, "the canary sings at four")
    await brain.add(ADA, of(ADA, "the shared canary", "organization"))
    for viewer in (BEN, NOBODY):
        hits = await brain.search(viewer, Wanted(query="canary OR sings"))
        assert [hit.trace.content for hit in hits] == ["the shared canary"]


async def test_neighbours_in_a_conversation_of_the_same_name_stay_apart(brain: Brain) -> None:
    await brain.add(ADA, of(ADA, "Where is the treasure buried?", conversation="c", position=0))
    await brain.add(BEN, of(BEN, "Under the old oak", conversation="c", position=1))
    assert await found(brain, "treasure buried") == ["Where is the treasure buried?"]


async def test_strength_now_is_told_and_weighs_a_little(brain: Brain, clock: Clock) -> None:
    await keep(brain, "green tea in the old kettle")
    clock.move(days=30)
    await keep(brain, "green tea in the new kettle")
    fresh, old = await brain.search(ADA, Wanted(query="green tea kettle"))
    assert fresh.trace.content.endswith("new kettle")
    assert old.strength < fresh.strength <= 1
    assert old.score < fresh.score
