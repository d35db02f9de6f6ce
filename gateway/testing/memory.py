"""What every memory provider must do, as pytest classes: one for the provider, and one for each further protocol.

A test module makes one class of those that its provider has, with a fixture `provider` that gives a memory with nothing
in it for each test::

    from gateway.testing.memory import EditableMemorySuite, MemoryProviderSuite

    class TestMine(MemoryProviderSuite, EditableMemorySuite):
        @pytest.fixture
        def provider(self, tmp_path):
            return MyMemory(tmp_path)

The memory comes as it was built: the tests open it and close it, if it is an `OpensMemory`. Nothing but pytest is
needed. Where that is not enough, the fixture gives a function without arguments which makes an asynchronous context
manager of a memory; with pytest-asyncio the fixture itself may be asynchronous. See docs/memory-providers.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from hashlib import sha256
from itertools import product
from typing import Any, ClassVar, Protocol

import pytest

from gateway.errors import InvalidId, MemoryConflict, MemoryStoreError
from gateway.protocols import (
    EditableMemory,
    ErasableMemory,
    ExportableMemory,
    HistoricMemory,
    MemoryContext,
    MemoryDocument,
    MemoryPlace,
    MemoryProvider,
    MemoryScope,
    MemoryStoreName,
    MemoryUpdate,
    SearchableMemory,
    SupportsUnion,
)
from gateway.testing.async_suite import AsyncSuite
from gateway.testing.opening import opened

add, replace, remove = MemoryUpdate.add, MemoryUpdate.replace, MemoryUpdate.remove
PEOPLE, PERSONALITIES = ("u_1", "u_2"), ("a", "b")
PLACES: Sequence[MemoryPlace] = ("per-personality", "global", "per-user")
BAD_IDS = ["a b", "a/b", "..", "a.b", "a\n", "é", "", "a" * 65, "/etc", "a\x00b", "\udc80"]


class EditableProvider(MemoryProvider, EditableMemory, Protocol):
    """What the suite of editing tests."""


class HistoricProvider(EditableProvider, HistoricMemory, Protocol):
    """What the suite of histories tests."""


class ErasableProvider(MemoryProvider, ErasableMemory, ExportableMemory, Protocol):
    """What the suite of privacy tests."""


class UnitableProvider(MemoryProvider, SupportsUnion, Protocol):
    """What the suite of unions tests."""


def scope(
    turn: str, *, personality: str = "assistant", user: str | None = "u_1", place: MemoryPlace = "per-personality"
) -> MemoryScope:
    """A scope of the suite's one session."""
    return MemoryScope(
        personality_id=personality, user_id=user, session_id="s", turn_id=turn, place=place, channel="local"
    )


async def text_of(provider: MemoryProvider, store: MemoryStoreName = "memory", user: str | None = "u_1") -> str:
    """What a turn is given of one store."""
    context = await provider.prefetch(scope("look", user=user)) or MemoryContext(user_memory=None, project_memory=None)
    return (context.user_memory if store == "user" else context.project_memory) or ""


def lines_of(text: str) -> list[str]:
    """The lines that say something, in order."""
    return [line for line in text.split("\n") if line.strip()]


# What there was, the updates, what there is then, and what became of each update.
RULES: Sequence[Any] = [
    pytest.param([], [add("memory", "  Fact one. ")], "Fact one.\n", ["applied"], id="add-to-nothing"),
    pytest.param(["A"], [add("memory", "B")], "A\n\nB\n", ["applied"], id="add"),
    pytest.param(["A"], [add("memory", " \n\t")], "A\n", ["no_match"], id="add-of-blank"),
    pytest.param(["A"], [add("memory", "A")], "A\n\nA\n", ["applied"], id="add-of-what-is-there"),
    pytest.param(["Old."], [replace("memory", "\n Brand new. \n")], "Brand new.\n", ["applied"], id="replace"),
    pytest.param(["Old."], [replace("memory", " \n")], "", ["applied"], id="replace-by-blank"),
    pytest.param(
        ["Keep this line.\nRemove this specific line.\nKeep this too."],
        [remove("memory", "specific")],
        "Keep this line.\nKeep this too.\n",
        ["applied"],
        id="remove",
    ),
    pytest.param(["Alpha\nbeta"], [remove("memory", "alpha")], "Alpha\nbeta\n", ["no_match"], id="remove-case"),
    pytest.param(["A\nB"], [remove("memory", " ")], "A\nB\n", ["no_match"], id="remove-of-blank"),
    pytest.param(["A\nB"], [remove("memory", "A\nB")], "A\nB\n", ["no_match"], id="remove-over-lines"),
    pytest.param([], [remove("memory", "A"), add("memory", "A")], "A\n", ["no_match", "applied"], id="remove-and-add"),
    pytest.param(
        [], [add("memory", "A\nB"), remove("memory", "B")], "A\n", ["applied", "applied"], id="add-and-remove"
    ),
    pytest.param(["A\r\nB"], [add("memory", "C\r\nD")], "A\nB\n\nC\nD\n", ["applied"], id="line-ends"),
    pytest.param(["A"], [add("memory", "x\x00y\udc80z")], "A\n\nx\ufffdy\ufffdz\n", ["applied"], id="no-characters"),
    pytest.param(["Ä\u2028ß"], [add("memory", "日本\x0b語")], "Ä\u2028ß\n\n日本\x0b語\n", ["applied"], id="scripts"),
]


class MemorySuite(AsyncSuite):
    """What the suites of memories have in common: they open the memory that the fixture `provider` gives."""

    entered: ClassVar = {"provider": opened}


# ---- who may see what -----------------------------------------------------------------------------------------------

_CANARY = re.compile(r"canary-[\w-]+")


def canary(place: str, personality: str, user: str) -> str:
    """A word that stands in one person's note, and nowhere else."""
    return f"canary-{place}-{personality}-{user}"


def canaries_in(*texts: str | None) -> set[str]:
    """Those that the texts name."""
    return {found for text in texts for found in _CANARY.findall(text or "")}


async def fill_with_canaries(provider: MemoryProvider) -> None:
    """Two people, two personalities and three places, crossed: each notes a word of its own in each."""
    for user in PEOPLE:
        await provider.sync(scope(f"t-{user}", user=user), [add("user", canary("user", "all", user))])
    for place, personality, user in product(PLACES, PERSONALITIES, PEOPLE):
        at = scope(f"t-{place}-{personality}-{user}", personality=personality, user=user, place=place)
        await provider.sync(at, [add("memory", canary(place, personality, user))])


def canaries_for(place: MemoryPlace, personality: str, user: str) -> set[str]:
    """Those that the memory of a scope holds; the user's own document has one besides."""
    return {
        canary(place, one, who)
        for one, who in product(PERSONALITIES, PEOPLE)
        if (place == "global" or one == personality) and (place != "per-user" or who == user)
    }


async def _history_is_apart(
    provider: HistoricMemory, at: MemoryScope, own: str, seen: Collection[str], others: Collection[str]
) -> None:
    changes = [await provider.log(at, "user", 1000), await provider.log(at, "memory", 1000)]
    for found, expected in zip(changes, ({own}, {*seen}), strict=True):
        assert canaries_in(*(f"{one.content} {one.diff}" for one in found)) == expected
    for line in (own, *seen):
        assert await provider.why(at, line) is not None
    for line in others:
        assert await provider.why(at, line) is None
        assert await provider.difference(at, [remove("memory", line)]) == ""
    mine = {one.id for found in changes for one in found}
    for one in await provider.log(limit=1000):
        if one.id not in mine:
            with pytest.raises(MemoryStoreError):
                await provider.undo(at, one.id)


# ---- the provider itself --------------------------------------------------------------------------------------------


class MemoryProviderSuite(MemorySuite):
    """What the gateway needs of every memory: `prefetch` and `sync`, and that what one may not see appears nowhere."""

    @pytest.mark.parametrize(("before", "updates", "after", "outcomes"), RULES)
    async def test_an_update_does_what_the_contract_says(
        self,
        provider: MemoryProvider,
        before: Sequence[str],
        updates: Sequence[MemoryUpdate],
        after: str,
        outcomes: Sequence[str],
    ) -> None:
        for text in before:
            await provider.sync(scope("before"), [add("memory", text)])
        report = await provider.sync(scope("t"), updates)
        assert [*report.outcomes] == [*outcomes]
        assert await text_of(provider) == after

    async def test_nothing_is_remembered_before_anything_was_said(self, provider: MemoryProvider) -> None:
        assert await provider.prefetch(scope("t")) is None

    async def test_a_blank_text_makes_no_context(self, provider: MemoryProvider) -> None:
        await provider.sync(scope("t"), [add("memory", "A"), replace("memory", "")])
        assert await provider.prefetch(scope("t2")) is None

    async def test_prefetch_gives_both_texts_and_none_for_the_blank_one(self, provider: MemoryProvider) -> None:
        await provider.sync(scope("t"), [add("user", "Ada"), add("memory", "Likes tea.")])
        assert await provider.prefetch(scope("t2")) == MemoryContext(user_memory="Ada\n", project_memory="Likes tea.\n")
        other = await provider.prefetch(scope("t3", user="u_2"))
        assert other == MemoryContext(user_memory=None, project_memory="Likes tea.\n")

    async def test_the_user_follows_the_person_over_personalities(self, provider: MemoryProvider) -> None:
        await provider.sync(scope("t"), [add("user", "Ada"), add("memory", "M")])
        other = await provider.prefetch(scope("t2", personality="engineer"))
        assert other == MemoryContext(user_memory="Ada\n", project_memory=None)

    @pytest.mark.parametrize(
        ("place", "seen"),
        [
            ("per-personality", {("a", "u_1"), ("a", "u_2")}),
            ("global", {("a", "u_1"), ("a", "u_2"), ("b", "u_1"), ("b", "u_2")}),
            ("per-user", {("a", "u_1")}),
        ],
    )
    async def test_the_place_says_who_shares_the_memory(
        self, provider: MemoryProvider, place: MemoryPlace, seen: Collection[tuple[str, str]]
    ) -> None:
        await provider.sync(scope("t", personality="a", user="u_1", place=place), [add("memory", "M")])
        found = set()
        for personality in "ab":
            for user in ("u_1", "u_2"):
                if await provider.prefetch(scope("x", personality=personality, user=user, place=place)):
                    found.add((personality, user))
        assert found == seen

    async def test_without_a_known_user_there_is_no_user_document(self, provider: MemoryProvider) -> None:
        report = await provider.sync(scope("t", user=None), [add("user", "x"), add("memory", "y")])
        assert report.outcomes == ("no_match", "applied")
        found = await provider.prefetch(scope("t", user=None))
        assert found == MemoryContext(user_memory=None, project_memory="y\n")

    @pytest.mark.parametrize("bad", BAD_IDS)
    async def test_a_malformed_id_is_refused_and_named(self, provider: MemoryProvider, bad: str) -> None:
        for at in (scope("t", personality=bad), scope("t", user=bad)):
            for attempt in (
                provider.prefetch(at),
                provider.sync(at, [add("memory", "x")]),
                provider.sync(at, []),
            ):
                with pytest.raises(InvalidId) as caught:
                    await attempt
                assert caught.value.value == bad
                assert repr(bad) in str(caught.value)

    async def test_an_id_of_64_characters_is_fine(self, provider: MemoryProvider) -> None:
        at = scope("t", personality="a" * 64, user="_-" * 32)
        assert (await provider.sync(at, [add("memory", "x")])).outcomes == ("applied",)

    async def test_a_turn_is_applied_once_however_often_it_comes(self, provider: MemoryProvider) -> None:
        updates = [add("memory", "A"), remove("memory", "nothing"), add("user", "U")]
        first = await provider.sync(scope("t"), updates)
        again = await provider.sync(scope("t"), updates)
        assert first.outcomes == ("applied", "no_match", "applied")
        assert again.outcomes == ("replayed", "replayed", "replayed")
        assert (await text_of(provider), await text_of(provider, "user")) == ("A\n", "U\n")

    async def test_a_longer_repetition_applies_only_what_is_new(self, provider: MemoryProvider) -> None:
        await provider.sync(scope("t"), [add("memory", "A")])
        report = await provider.sync(scope("t"), [add("memory", "A"), add("memory", "B")])
        assert report.outcomes == ("replayed", "applied")
        assert await text_of(provider) == "A\n\nB\n"

    async def test_the_same_turn_at_the_same_time_is_applied_once(self, provider: MemoryProvider) -> None:
        reports = await asyncio.gather(*(provider.sync(scope("t"), [add("memory", "A")]) for _ in range(8)))
        assert sorted(report.outcomes[0] for report in reports) == ["applied"] + ["replayed"] * 7
        assert await text_of(provider) == "A\n"

    async def test_twenty_tasks_lose_nothing_and_double_nothing(self, provider: MemoryProvider) -> None:
        facts = [f"fact {number:02}." for number in range(20)]
        await asyncio.gather(*(provider.sync(scope(f"t{fact}"), [add("memory", fact)]) for fact in facts))
        assert sorted(lines_of(await text_of(provider))) == facts

    async def test_no_updates_change_nothing(self, provider: MemoryProvider) -> None:
        assert (await provider.sync(scope("t"), [])).outcomes == ()
        assert await provider.prefetch(scope("t")) is None

    async def test_a_turn_is_given_what_its_scope_may_see_and_nothing_else(self, provider: MemoryProvider) -> None:
        await fill_with_canaries(provider)
        for place, personality, user in product(PLACES, PERSONALITIES, PEOPLE):
            found = await provider.prefetch(scope("look", personality=personality, user=user, place=place))
            assert found is not None
            assert canaries_in(found.user_memory) == {canary("user", "all", user)}
            assert canaries_in(found.project_memory) == canaries_for(place, personality, user)
        unknown = await provider.prefetch(scope("look", personality="a", user=None))
        assert unknown is not None
        assert canaries_in(unknown.user_memory) == set()

    async def test_people_read_search_and_are_told_of_what_their_scope_may_see_and_nothing_else(
        self, provider: MemoryProvider
    ) -> None:
        await fill_with_canaries(provider)
        every = {canary("user", "all", user) for user in PEOPLE}
        every |= {canary(*each) for each in product(PLACES, PERSONALITIES, PEOPLE)}
        for place, personality, user in product(PLACES, PERSONALITIES, PEOPLE):
            at = scope("look", personality=personality, user=user, place=place)
            own, seen = canary("user", "all", user), canaries_for(place, personality, user)
            others = every - {own, *seen}
            if isinstance(provider, EditableMemory):
                assert canaries_in((await provider.read(at, "user")).content) == {own}
                assert canaries_in((await provider.read(at, "memory")).content) == seen
            if isinstance(provider, HistoricMemory):
                await _history_is_apart(provider, at, own, seen, others)
            if isinstance(provider, SearchableMemory):
                for query in ("canary", *sorted(others)):
                    hits = await provider.search(at, query, 100)
                    assert not others & canaries_in(*(hit.text for hit in hits))
            if isinstance(provider, ExportableMemory):
                exported = await provider.export([user])
                private = {own, *(canary("per-user", one, user) for one in PERSONALITIES)}
                assert canaries_in(*(data.decode() for data in exported.values())) == private


class EditableMemorySuite(MemorySuite):
    """What the pages, the API and the command line need of a memory that people edit."""

    async def test_it_is_editable(self, provider: EditableProvider) -> None:
        assert isinstance(provider, EditableMemory)

    async def test_a_document_that_is_not_there_is_empty(self, provider: EditableProvider) -> None:
        document = await provider.read(scope("t"), "memory")
        assert (document.content, document.modified_at) == ("", None)
        assert document.version == sha256(b"").hexdigest()
        with pytest.raises(InvalidId):
            await provider.read(scope("t", user=None), "user")

    @pytest.mark.parametrize("text", ["", " \n\n"])
    async def test_a_paragraph_is_added_to_a_blank_text_as_to_none(self, provider: EditableProvider, text: str) -> None:
        await _put(provider, text)
        await provider.sync(scope("t"), [add("memory", "A")])
        assert (await provider.read(scope("x"), "memory")).content == "A\n"

    async def test_a_removal_trims_the_end_and_nothing_else(self, provider: EditableProvider) -> None:
        await _put(provider, "\nA\nB\n\n\n")
        await provider.sync(scope("t"), [remove("memory", "A")])
        assert (await provider.read(scope("x"), "memory")).content == "\nB\n"

    async def test_a_write_puts_the_text_as_given_and_returns_its_version(self, provider: EditableProvider) -> None:
        empty = await provider.read(scope("t"), "user")
        document = await provider.write(scope("t"), "user", "  a\r\nb\n\n", empty.version)
        assert document.content == "  a\nb\n\n"
        assert document.version == sha256(b"  a\nb\n\n").hexdigest()
        assert document == await provider.read(scope("t"), "user")
        assert document.location
        assert document.modified_at is not None
        assert not document.modified_at.utcoffset()

    async def test_one_scope_can_write_many_times(self, provider: EditableProvider) -> None:
        for text in ("one", "two", "three"):
            await _put(provider, text)
        assert (await provider.read(scope("x"), "memory")).content == "three"

    async def test_a_stale_version_is_a_conflict_that_carries_both_texts(self, provider: EditableProvider) -> None:
        before = await provider.read(scope("t"), "memory")
        await provider.sync(scope("t"), [add("memory", "other")])
        with pytest.raises(MemoryConflict) as caught:
            await provider.write(scope("t2"), "memory", "mine", before.version)
        now = await provider.read(scope("t"), "memory")
        assert (caught.value.proposed, caught.value.current) == ("mine", "other\n")
        assert caught.value.current_version == now.version
        assert now.content == "other\n"

    async def test_of_two_writes_from_one_version_one_wins(self, provider: EditableProvider) -> None:
        start = await provider.read(scope("t"), "memory")
        writes = (provider.write(scope("t"), "memory", text, start.version) for text in ("one", "two"))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["MemoryConflict", "MemoryDocument"]

    @pytest.mark.parametrize("bad", BAD_IDS)
    async def test_a_malformed_id_is_refused_and_nothing_is_read_or_written(
        self, provider: EditableProvider, bad: str
    ) -> None:
        for at in (scope("t", personality=bad), scope("t", user=bad)):
            for attempt in (provider.read(at, "memory"), provider.write(at, "memory", "x", "")):
                with pytest.raises(InvalidId):
                    await attempt


async def _put(provider: EditableProvider, text: str, store: MemoryStoreName = "memory") -> MemoryDocument:
    """Make `text` the content, as it is."""
    at = scope("setup")
    return await provider.write(at, store, text, (await provider.read(at, store)).version)


class HistoricMemorySuite(MemorySuite):
    """What `/memory log`, `why` and `undo` need."""

    async def test_it_is_historic(self, provider: HistoricProvider) -> None:
        assert isinstance(provider, HistoricMemory)

    async def test_each_change_is_logged_with_who_where_and_what_newest_first(self, provider: HistoricProvider) -> None:
        await provider.sync(scope("t1"), [add("memory", "A")])
        await provider.sync(scope("t2", user="u_2"), [add("memory", "B"), remove("memory", "A")])
        await provider.sync(scope("t3"), [add("user", "Ada")])
        log = await provider.log(scope("x"), "memory")
        assert [(one.action, one.content, one.turn_id, one.user_id) for one in log] == [
            ("remove", "A", "t2", "u_2"),
            ("add", "B", "t2", "u_2"),
            ("add", "A", "t1", "u_1"),
        ]
        assert log[0].document == "personalities/assistant/MEMORY.md"
        assert log[0].channel == "local"
        assert log[-1].diff.endswith("+A")
        assert [one.id for one in await provider.log(scope("x"), "memory", limit=1, before=log[0].id)] == [log[1].id]
        assert [one.turn_id for one in await provider.log(limit=2)] == ["t3", "t2"]
        assert await provider.change(log[0].id) == log[0]
        assert await provider.change(10**9) is None

    async def test_why_names_the_change_that_brought_a_line_in(self, provider: HistoricProvider) -> None:
        await provider.sync(scope("t1"), [add("memory", "Likes green tea.")])
        await provider.sync(scope("t2"), [add("memory", "Works at night.")])
        found = await provider.why(scope("x"), "green tea")
        assert found is not None
        assert found.turn_id == "t1"
        assert await provider.why(scope("x"), "coffee") is None

    async def test_undo_brings_back_the_bytes_and_is_a_change_itself(self, provider: HistoricProvider) -> None:
        await _put(provider, "A\r\n\n \n")
        before = await provider.read(scope("x"), "memory")
        await provider.sync(scope("t"), [add("memory", "B")])
        entry = (await provider.log(scope("x"), "memory", limit=1))[0]
        document = await provider.undo(scope("x"), entry.id)
        assert (document.content, document.version) == (before.content, before.version)
        newest = (await provider.log(scope("x"), "memory", limit=1))[0]
        assert (newest.action, newest.refers_to) == ("undo", entry.id)
        assert await provider.texts(entry.id) == (before.content.encode(), b"A\n\nB\n")

    async def test_what_has_changed_since_is_not_undone(self, provider: HistoricProvider) -> None:
        await provider.sync(scope("t1"), [add("memory", "A")])
        entry = (await provider.log(scope("x"), "memory", limit=1))[0]
        await provider.sync(scope("t2"), [add("memory", "B")])
        with pytest.raises(MemoryConflict) as caught:
            await provider.undo(scope("x"), entry.id)
        assert (caught.value.proposed, caught.value.current) == ("", "A\n\nB\n")
        with pytest.raises(MemoryStoreError):
            await provider.undo(scope("x", personality="engineer"), entry.id)
        with pytest.raises(MemoryStoreError):
            await provider.undo(scope("x"), 10**9)

    async def test_the_difference_of_updates_is_shown_and_nothing_is_changed(self, provider: HistoricProvider) -> None:
        await provider.sync(scope("t1"), [add("memory", "A")])
        shown = await provider.difference(scope("x"), [remove("memory", "A"), add("memory", "B")])
        assert [line for line in shown.split("\n") if line[:1] in "+-"] == ["-A", "+B"]
        assert await text_of(provider) == "A\n"

    async def test_bytes_are_put_back_as_they_were(self, provider: HistoricProvider) -> None:
        data = b"caf\xe9\r\n\x00end"
        empty = await provider.read(scope("x"), "memory")
        document = await provider.restore(scope("x"), "memory", data, empty.version)
        assert document.version == sha256(data).hexdigest()
        await provider.sync(scope("t"), [add("memory", "A")])
        entry = (await provider.log(scope("x"), "memory", limit=1))[0]
        assert (await provider.undo(scope("x"), entry.id)).version == document.version

    async def test_many_changes_are_all_remembered(self, provider: HistoricProvider) -> None:
        for number in range(150):
            await provider.sync(scope(f"t{number}"), [add("memory", f"line {number}")])
        log = await provider.log(scope("x"), "memory", limit=200)
        assert [one.content for one in reversed(log)] == [f"line {number}" for number in range(150)]
        before, after = await provider.texts(log[75].id)
        assert after == before + f"\nline {149 - 75}\n".encode()


class ErasableMemorySuite(MemorySuite):
    """What `/forget-me` and `/export` need."""

    async def test_it_is_erasable(self, provider: ErasableProvider) -> None:
        assert isinstance(provider, ErasableMemory)
        assert isinstance(provider, ExportableMemory)

    async def test_a_person_is_handed_what_is_theirs_alone(self, provider: ErasableProvider) -> None:
        await self._fill(provider)
        exported = await provider.export(["u_1"])
        assert exported == {
            "u_1/USER.md": b"Ada canary\n",
            "u_1/personalities/assistant/MEMORY.md": b"Private canary\n",
        }

    async def test_an_erased_person_leaves_nothing_behind_and_others_keep_what_is_theirs(
        self, provider: ErasableProvider
    ) -> None:
        await self._fill(provider)
        for _ in range(2):  # again is harmless
            await provider.erase(["u_1"], {"personalities/assistant/MEMORY.md": ["Shared canary"]})
        assert await provider.export(["u_1"]) == {}
        assert await text_of(provider, "user") == ""
        assert await text_of(provider) == "Ben's own\n"
        assert await text_of(provider, "user", user="u_2") == "Ben\n"
        if isinstance(provider, HistoricMemory):
            for one in await provider.log():
                assert "canary" not in f"{one.content} {one.diff}"
                assert one.user_id != "u_1"
        await provider.sync(scope("after"), [add("user", "New")])
        assert await text_of(provider, "user") == "New\n"

    async def _fill(self, provider: ErasableProvider) -> None:
        await provider.sync(scope("t1"), [add("user", "Ada canary"), add("memory", "Shared canary")])
        await provider.sync(scope("t2", place="per-user"), [add("memory", "Private canary")])
        await provider.sync(scope("t3", user="u_2"), [add("user", "Ben"), add("memory", "Ben's own")])


class UnionSuite(MemorySuite):
    """What the linking of one person's accounts needs."""

    async def test_it_is_unitable(self, provider: UnitableProvider) -> None:
        assert isinstance(provider, SupportsUnion)

    async def test_two_people_become_one_and_two_again(self, provider: UnitableProvider) -> None:
        await provider.sync(scope("t1"), [add("user", "Ada"), add("user", "Tea")])
        await provider.sync(scope("t2", user="u_2"), [add("user", "Tea"), add("user", "Works at night")])
        for _ in range(2):  # again is harmless
            await provider.unite("link1", "u_1", "u_2")
        assert await text_of(provider, "user") == "Ada\n\nTea\n\nWorks at night\n"
        for _ in range(2):
            assert await provider.part("link1", "u_1", "u_2", ["u_1"]) is False
        assert await text_of(provider, "user") == "Ada\n\nTea\n"
        assert await text_of(provider, "user", user="u_2") == "Tea\n\nWorks at night\n"

    async def test_what_was_noted_since_the_link_stays(self, provider: UnitableProvider) -> None:
        await provider.sync(scope("t1"), [add("user", "Ada")])
        await provider.sync(scope("t2", user="u_2"), [add("user", "Works at night")])
        await provider.unite("link1", "u_1", "u_2")
        await provider.sync(scope("t3"), [add("user", "Since")])
        assert await provider.part("link1", "u_1", "u_2", ["u_1"]) is True
        assert await text_of(provider, "user") == "Ada\n\nSince\n"
