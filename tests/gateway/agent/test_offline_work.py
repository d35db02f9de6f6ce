"""The offline model's work besides answers: facts by rule, gists, and no insight."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, Purpose
from gateway.agent.offline.model import OfflineModel
from gateway.memory.ingest import Said
from gateway.traces.ingest import Fact, extract
from gateway.traces.llm_prompts import gist_by, insight_by
from gateway.traces.personality_traits import IngestRules, apply_traits
from gateway.traces.trace import Owner, Trace

RULES = IngestRules()
ALL = apply_traits(RULES, {"openness": 0.9, "conscientiousness": 0.9})


async def facts_in(asked: str, rules: IngestRules = RULES) -> list[Fact]:
    said = Said(asked=asked, answered="I like answers.", at=datetime(2026, 11, 20, tzinfo=UTC))
    found = await extract(OfflineModel(), said, rules)
    return list(found)


@pytest.mark.parametrize(
    ("said", "category"),
    [
        ("I prefer trains to planes.", "user_preference"),
        ("I'm allergic to nuts", "user_preference"),
        ("Ich mag grünen Tee.", "user_preference"),
        ("My dog is called Rex.", "knowledge"),
        ("remember that I live in Turin", "knowledge"),
        ("I want to run a marathon", "goal"),
        ("Actually, my sister lives in Oslo", "correction"),
        ("We visited Rome in May", "episodic"),
        ("I have to call the bank on Friday", "action_item"),
        ("I am so happy about it", "emotional_context"),
    ],
)
async def test_a_sentence_about_oneself_is_a_fact_of_its_category(said: str, category: str) -> None:
    [fact] = await facts_in(said, ALL)
    assert fact.category == category
    assert fact.text.startswith("They say: ")
    assert fact.text.removeprefix("They say: ") in said
    assert fact.importance >= RULES.threshold


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Hello.",
        "Where do I live?",
        "what is my name",
        "forget my name",
        "use tool memory_add {}",
        "The weather is fine.",
        "My password is tulip7",
        "my PIN is 1234",
        "I like " + "tea " * 200,
    ],
)
async def test_questions_commands_small_talk_and_secrets_are_none(said: str) -> None:
    assert await facts_in(said, ALL) == []


async def test_each_sentence_is_looked_at_by_itself_and_the_agents_words_are_not() -> None:
    found = await facts_in("Hello! My dog is called Rex. What is yours called? I like tea.\nI work in Turin")
    assert [fact.text.removeprefix("They say: ") for fact in found] == [
        "My dog is called Rex.", "I like tea.", "I work in Turin",
    ]  # fmt: skip


async def test_a_gist_is_the_first_sentence_and_there_is_no_insight() -> None:
    trace = Trace(content="Ada lives in Turin. She moved there for work.", owner=Owner("user", "u"))
    assert await gist_by(OfflineModel)(trace) == "Ada lives in Turin."
    assert await insight_by(OfflineModel)([trace]) is None


@given(st.text(max_size=300), st.sampled_from(["facts", "gist", "insight"]))
async def test_whatever_it_is_given_it_answers(text: str, purpose: Purpose) -> None:
    for said in (text, json.dumps({"who": "person", "text": text}), json.dumps([text])):
        request = ModelRequest(system="", messages=(ChatMessage(role="user", text=said),), purpose=purpose)
        events = [event async for event in OfflineModel().stream(request)]
        assert isinstance(events[-1], ModelReply)
