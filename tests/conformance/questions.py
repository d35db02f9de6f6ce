"""What every store of open questions must do: they come, change and go with the commit of a turn, as do secrets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.pipeline.server_questions import QuestionStore
from gateway.store.questions import SqlQuestions
from gateway.tools.forms import OpenQuestion, Point, Wanted
from gateway.tools.journal import CallKey
from tests.conformance.stores import House, call_row, claimed, ended, said

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
POINTS = (
    Point(request="a", name="n", words="How many?", schema={"type": "integer"}),
    Point(request="a", name="b", words="Sure?", schema={}, is_required=False, choices=(("Yes", True), ("No", False))),
)
WANTED = Wanted(server="s", tool="s__a", pin="p", arguments='{"to": "\N{SNOWMAN}"}', points=POINTS, state="sealed")


def questions(house: House) -> QuestionStore:
    store: Any = house.store
    return SqlQuestions(store.engine)


class QuestionSuite:
    """The suite."""

    async def test_a_question_comes_changes_and_goes_with_a_turn(self, house: House) -> None:
        store, turns = questions(house), house.store.turns
        for turn_id in ("t_a", "t_b", "t_c"):
            await house.store.inbox.add(said(turn_id), turn_id)
        row = await claimed(house.store)
        asked = OpenQuestion(
            lane=row.lane, user_id="u_ada", turn_id="t_a", wanted=WANTED, asked_at=NOW, expires_at=NOW + timedelta(1e4)
        )
        assert await store.question(row.lane) is None
        await turns.commit_turn(replace(ended(row), asks=asked))
        assert await store.question(row.lane) == asked
        answered = replace(asked, turn_id="t_b", answers=(1,))
        await turns.commit_turn(replace(ended(await claimed(house.store)), asks=answered))
        assert await store.question(row.lane) == answered
        await turns.commit_turn(replace(ended(await claimed(house.store)), ends_question=True))
        assert await store.question(row.lane) is None

    async def test_the_words_of_an_answer_go_with_its_turn(self, house: House) -> None:
        store: Any = house.store
        for turn_id in ("t_a", "t_b"):
            await house.store.inbox.add(said(turn_id), turn_id)
        row = await claimed(house.store)
        assert row.message.text
        await house.store.turns.commit_turn(replace(ended(row), secret=row.message))
        texts = [one["payload"] for one in await store.engine.rows("SELECT payload FROM inbox ORDER BY seq")]
        assert row.message.text not in texts[0]
        assert '"is_emptied":true' in texts[0]
        assert said("t_b").text in texts[1]

    async def test_a_call_that_waits_for_an_answer_keeps_what_it_wants_until_its_turn_ends(self, house: House) -> None:
        turns = house.store.turns
        await house.store.inbox.add(said("a"), "t_a")
        row, key = await claimed(house.store), CallKey(turn_id="t_a", call_id="c1")
        assert await turns.begin_call(call_row("t_a", "c1"))
        await turns.end_call(key, "waiting", WANTED.dump())
        kept = await turns.kept_call(key)
        assert kept is not None
        assert kept.outcome == "waiting"
        assert Wanted.load(kept.result or "") == WANTED
        await turns.commit_turn(ended(row))
        kept = await turns.kept_call(key)
        assert kept is not None
        assert (kept.outcome, kept.result) == ("waiting", None)
