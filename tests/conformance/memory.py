"""What every memory provider must do, with the examples of the contract.

Use it by subclassing: `class TestMine(MemoryConformance):` with a fixture `provider`, and for a provider with files and
a journal also `class TestMine(MemoryConformance)` with `PERSISTS = True` and a fixture `reopen`.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Protocol

import pytest

from gateway.errors import InvalidId, MemoryConflict
from gateway.protocols import EditableMemory, MemoryProvider, MemoryScope, MemoryUpdate

add, replace, remove = MemoryUpdate.add, MemoryUpdate.replace, MemoryUpdate.remove
BAD_IDS = ["a b", "a/b", "..", "a.b", "a\n", "é", "", "a" * 65, "/etc", "a\x00b", "\udc80"]


class Provider(MemoryProvider, EditableMemory, Protocol):
    """What is tested."""


def scope(turn: str, *, personality: str = "assistant", user: str | None = "u_1", place: str = "per-personality"):
    """A scope of the tests' one session."""
    return MemoryScope(
        personality_id=personality, user_id=user, session_id="s", turn_id=turn, place=place, channel="terminal"
    )


async def put(provider: Provider, text: str, store: str = "memory") -> None:
    """Make `text` the content, as it is."""
    at = scope("setup")
    await provider.write(at, store, text, (await provider.read(at, store)).version)


RULES = [
    pytest.param(None, [add("memory", "  Fact one. ")], "Fact one.\n", ["applied"], id="add-to-nothing"),
    pytest.param("", [add("memory", "A")], "A\n", ["applied"], id="add-to-empty"),
    pytest.param(" \n\n", [add("memory", "A")], "A\n", ["applied"], id="add-to-blank"),
    pytest.param(
        "Existing fact.\n\n\n", [add("memory", "New fact.")], "Existing fact.\n\nNew fact.\n", ["applied"], id="add"
    ),
    pytest.param("A\n", [add("memory", " \n\t")], "A\n", ["no_match"], id="add-of-blank"),
    pytest.param("A\n", [add("memory", "A")], "A\n\nA\n", ["applied"], id="add-of-what-is-there"),
    pytest.param("Old.\n", [replace("memory", "\n Brand new. \n")], "Brand new.\n", ["applied"], id="replace"),
    pytest.param("Old.\n", [replace("memory", " \n")], "", ["applied"], id="replace-by-blank"),
    pytest.param(
        "Keep this line.\nRemove this specific line.\nKeep this too.\n",
        [remove("memory", "specific")],
        "Keep this line.\nKeep this too.\n",
        ["applied"],
        id="remove",
    ),
    pytest.param("Alpha\nbeta\n", [remove("memory", "alpha")], "Alpha\nbeta\n", ["no_match"], id="remove-case"),
    pytest.param("A\nB\n", [remove("memory", " ")], "A\nB\n", ["no_match"], id="remove-of-blank"),
    pytest.param("A\nB\n", [remove("memory", "A\nB")], "A\nB\n", ["no_match"], id="remove-over-lines"),
    pytest.param("A\nB\n\n\n", [remove("memory", "A")], "B\n", ["applied"], id="remove-trims-the-end"),
    pytest.param(
        "A\n",
        [add("memory", "B"), remove("memory", "A"), add("memory", "C")],
        "\nB\n\nC\n",
        ["applied", "applied", "applied"],
        id="several-in-order",
    ),
    pytest.param(
        None,
        [add("memory", "A\nB"), remove("memory", "B")],
        "A\n",
        ["applied", "applied"],
        id="add-and-remove-in-nothing",
    ),
    pytest.param(
        None, [remove("memory", "A"), add("memory", "A")], "A\n", ["no_match", "applied"], id="remove-and-add"
    ),
    pytest.param("A\r\nB\r\n", [add("memory", "C\r\nD")], "A\nB\n\nC\nD\n", ["applied"], id="line-ends"),
    pytest.param("A\n", [add("memory", "x\x00y\udc80z")], "A\n\nx\ufffdy\ufffdz\n", ["applied"], id="no-characters"),
    pytest.param("Ä\u2028ß\n", [add("memory", "日本\x0b語")], "Ä\u2028ß\n\n日本\x0b語\n", ["applied"], id="scripts"),
]


class MemoryConformance:
    """The suite."""

    @pytest.mark.parametrize(("before", "updates", "after", "outcomes"), RULES)
    async def test_an_update_does_what_the_contract_says(self, provider, before, updates, after, outcomes):
        if before is not None:
            await put(provider, before)
        report = await provider.sync(scope("t"), updates)
        assert list(report.outcomes) == outcomes
        assert (await provider.read(scope("x"), "memory")).content == after

    async def test_nothing_is_remembered_before_anything_was_said(self, provider):
        assert await provider.prefetch(scope("t")) is None
        document = await provider.read(scope("t"), "memory")
        assert (document.content, document.modified_at) == ("", None)
        assert document.version == sha256(b"").hexdigest()

    async def test_blank_texts_make_no_context(self, provider):
        await put(provider, " \n")
        await put(provider, "\n", "user")
        assert await provider.prefetch(scope("t")) is None

    async def test_prefetch_gives_both_texts_and_none_for_the_blank_one(self, provider):
        await provider.sync(scope("t"), [add("user", "Ada"), add("memory", "Likes tea.")])
        context = await provider.prefetch(scope("t2"))
        assert (context.user_memory, context.project_memory) == ("Ada\n", "Likes tea.\n")
        context = await provider.prefetch(scope("t3", user="u_2"))
        assert (context.user_memory, context.project_memory) == (None, "Likes tea.\n")

    async def test_the_user_follows_the_person_over_personalities_and_memory_the_personality_over_people(
        self, provider
    ):
        await provider.sync(scope("t"), [add("user", "Ada"), add("memory", "M")])
        other = await provider.prefetch(scope("t2", personality="engineer"))
        assert (other.user_memory, other.project_memory) == ("Ada\n", None)

    @pytest.mark.parametrize(
        ("place", "seen"),
        [
            ("per-personality", {("a", "u_1"), ("a", "u_2")}),
            ("global", {("a", "u_1"), ("a", "u_2"), ("b", "u_1"), ("b", "u_2")}),
            ("per-user", {("a", "u_1")}),
        ],
    )
    async def test_the_place_says_who_shares_the_memory(self, provider, place, seen):
        await provider.sync(scope("t", personality="a", user="u_1", place=place), [add("memory", "M")])
        found = set()
        for personality in "ab":
            for user in ("u_1", "u_2"):
                if await provider.prefetch(scope("x", personality=personality, user=user, place=place)):
                    found.add((personality, user))
        assert found == seen

    async def test_without_a_known_user_there_is_no_user_document(self, provider):
        report = await provider.sync(scope("t", user=None), [add("user", "x"), add("memory", "y")])
        assert report.outcomes == ("no_match", "applied")
        with pytest.raises(InvalidId):
            await provider.read(scope("t", user=None), "user")
        assert (await provider.prefetch(scope("t", user=None))).user_memory is None

    @pytest.mark.parametrize("bad", BAD_IDS)
    async def test_a_malformed_id_is_refused_and_named(self, provider, bad):
        for at in (scope("t", personality=bad), scope("t", user=bad)):
            for attempt in (
                lambda at=at: provider.prefetch(at),
                lambda at=at: provider.sync(at, [add("memory", "x")]),
                lambda at=at: provider.sync(at, []),
                lambda at=at: provider.read(at, "memory"),
                lambda at=at: provider.write(at, "memory", "x", ""),
            ):
                with pytest.raises(InvalidId) as caught:
                    await attempt()
                assert caught.value.value == bad
                assert repr(bad) in str(caught.value)

    async def test_an_id_of_64_characters_is_fine(self, provider):
        at = scope("t", personality="a" * 64, user="_-" * 32)
        assert (await provider.sync(at, [add("memory", "x")])).outcomes == ("applied",)

    async def test_a_turn_is_applied_once_however_often_it_comes(self, provider):
        updates = [add("memory", "A"), remove("memory", "nothing"), add("user", "U")]
        first = await provider.sync(scope("t"), updates)
        again = await provider.sync(scope("t"), updates)
        assert first.outcomes == ("applied", "no_match", "applied")
        assert again.outcomes == ("replayed", "replayed", "replayed")
        assert (await provider.read(scope("x"), "memory")).content == "A\n"
        assert (await provider.read(scope("x"), "user")).content == "U\n"

    async def test_a_longer_repetition_applies_only_what_is_new(self, provider):
        await provider.sync(scope("t"), [add("memory", "A")])
        report = await provider.sync(scope("t"), [add("memory", "A"), add("memory", "B")])
        assert report.outcomes == ("replayed", "applied")
        assert (await provider.read(scope("x"), "memory")).content == "A\n\nB\n"

    async def test_the_same_turn_at_the_same_time_is_applied_once(self, provider):
        reports = await asyncio.gather(*(provider.sync(scope("t"), [add("memory", "A")]) for _ in range(8)))
        assert sorted(report.outcomes[0] for report in reports) == ["applied"] + ["replayed"] * 7
        assert (await provider.read(scope("x"), "memory")).content == "A\n"

    async def test_twenty_tasks_lose_nothing_and_double_nothing(self, provider):
        facts = [f"fact {number:02}." for number in range(20)]
        await asyncio.gather(*(provider.sync(scope(f"t{fact}"), [add("memory", fact)]) for fact in facts))
        lines = (await provider.read(scope("x"), "memory")).content.split("\n")
        assert sorted(line for line in lines if line) == facts

    async def test_no_updates_change_nothing(self, provider):
        assert (await provider.sync(scope("t"), [])).outcomes == ()
        assert (await provider.read(scope("t"), "memory")).modified_at is None

    async def test_a_write_puts_the_text_as_given_and_returns_its_version(self, provider):
        empty = await provider.read(scope("t"), "user")
        document = await provider.write(scope("t"), "user", "  a\r\nb\n\n", empty.version)
        assert document.content == "  a\nb\n\n"
        assert document.version == sha256(b"  a\nb\n\n").hexdigest()
        assert document == await provider.read(scope("t"), "user")
        assert document.modified_at is not None
        assert document.modified_at.utcoffset().total_seconds() == 0

    async def test_one_scope_can_write_many_times(self, provider):
        for text in ("one", "two", "three"):
            await put(provider, text)
        assert (await provider.read(scope("x"), "memory")).content == "three"

    async def test_a_stale_version_is_a_conflict_that_carries_both_texts(self, provider):
        before = await provider.read(scope("t"), "memory")
        await provider.sync(scope("t"), [add("memory", "theirs")])
        with pytest.raises(MemoryConflict) as caught:
            await provider.write(scope("t2"), "memory", "mine", before.version)
        now = await provider.read(scope("t"), "memory")
        assert (caught.value.proposed, caught.value.current) == ("mine", "theirs\n")
        assert caught.value.current_version == now.version
        assert now.content == "theirs\n"

    async def test_of_two_writes_from_one_version_one_wins(self, provider):
        start = await provider.read(scope("t"), "memory")
        writes = (provider.write(scope("t"), "memory", text, start.version) for text in ("one", "two"))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["MemoryConflict", "MemoryDocument"]
