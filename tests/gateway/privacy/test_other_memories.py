"""Erasures and exports where the memory is one of somebody else: it cannot erase, lies elsewhere, or is away."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import MemoryUnavailable
from gateway.files.home import DATABASE_NAME
from gateway.ops.privacy import memory as memory_module
from gateway.ops.privacy import worker
from gateway.ops.privacy.home import clean_restored, eraser_of, opened
from gateway.people.linking.texts import KEPT_APART
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate
from gateway.services.caller import operator
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from tests.fake_channel import FakeChannel
from tests.gateway.privacy.conftest import account, canary, found_in, quiet, say, talk, user_ids
from tests.gateway.privacy.test_erasing import until_done, words_of
from tests.gateway.privacy.test_export import contents
from tests.gateway.way.conftest import House
from tests.gateway.way.dictionary_memory import Notes

OPERATOR = operator("test")
KIND = "tests.gateway.way.dictionary_memory"
BY_HAND = {"provider": {"kind": KIND, "erasure": "by_hand"}}
LEFT = f"What the memory `{KIND}` holds of the person stays there; the operator erases it by hand."


async def test_forget_me_says_what_a_memory_keeps_that_cannot_erase_and_erases_all_else(house: House) -> None:
    async with house.gateway(memory=BY_HAND) as (gateway, channel):
        for person in ("ada", "ben"):
            await talk(channel, person)
        await quiet(gateway)
        ada = (await user_ids(gateway))[account("ada")]
        assert "what the memory" in (await say(channel, "/export", "ada")).lower()
        asked = await say(channel, "/forget-me", "ada")
        assert asked.count(LEFT) == 1
        code = re.search(r"/forget-me (\w+)", asked)
        assert code is not None
        told = await say(channel, f"/forget-me {code[1]}", "ada")
        assert "erasing everything" in told
        assert told.count(LEFT) == 1
        await until_done(gateway)
        assert not found_in(house.home, words_of("ada", ada))
        notes: Any = gateway.memory_provider
        assert canary("ada") in str(notes.lines[ada])


async def test_the_service_says_it_in_its_answers_and_nothing_where_nothing_stays(house: House) -> None:
    async with house.gateway(memory=BY_HAND) as (gateway, channel):
        await say(channel, "Hello", "ada")
        assert (await gateway.load_services()).personal.left_by_erasure == LEFT
    async with house.gateway() as (gateway, _):
        assert (await gateway.load_services()).personal.left_by_erasure is None


async def test_an_export_says_what_is_not_in_it(house: House) -> None:
    async with house.gateway(memory=BY_HAND) as (_gateway, channel):
        await say(channel, "Remember that my boat is Argo", "ada")
        await say(channel, "/export", "ada")
    (path,) = house.home.glob("exports/*/*.zip")
    files = contents(path)
    assert f"What the memory `{KIND}` holds of you is not in here" in files["README.md"]
    assert {name for name in files if name.startswith("memory/")} == {"memory/history.json", "memory/proposals.json"}


class Elsewhere(Notes):
    """Can erase and hand over, where it is not away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = self.hangs = False
        self.erased: list[tuple[set[str], dict[str, set[str]]]] = []

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        if self.is_away:
            raise MemoryUnavailable("the memory at nowhere does not answer in time")
        if self.hangs:
            await asyncio.Event().wait()
        self.erased.append((set(user_ids), {document: set(added) for document, added in lines.items() if added}))
        for user_id in user_ids:
            self.lines.pop(user_id, None)

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        return {f"{each}/notes.md": "\n".join(self.lines[each]).encode() for each in user_ids if each in self.lines}


class Elsewheres:
    """Gateways on one data directory with that memory, one after another."""

    def __init__(self, home: Path) -> None:
        self.house = House(home)
        self.memory = Elsewhere()

    def gateway(self) -> Any:
        return self.house.gateway()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewheres:
    made = Elsewheres(tmp_path / "home")

    class WithMemory(Gateway):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "memory": made.memory})

    monkeypatch.setattr("tests.gateway.way.conftest.Gateway", WithMemory)
    return made


async def both_note(gateway: Gateway, channel: FakeChannel) -> str:
    """Two people have said something to be remembered, alone and of all; Ada's user id."""
    await say(channel, "Remember that the kanarieada door is blue", "ada")
    await say(channel, "Remember that the gate is green", "ben")
    await quiet(gateway)
    return (await user_ids(gateway))[account("ada")]


async def test_a_memory_elsewhere_is_told_of_the_person_and_of_what_only_they_added(elsewhere: Elsewheres) -> None:
    async with elsewhere.gateway() as (gateway, channel):
        ada = await both_note(gateway, channel)
        await gateway.privacy.schedule_erasure(ada)
        await until_done(gateway)
        lines = {"personalities/assistant/MEMORY.md": {"the kanarieada door is blue"}}
        assert elsewhere.memory.erased == [({ada}, lines)]
        assert not found_in(elsewhere.house.home, words_of("ada", ada))


async def test_an_erasure_waits_for_a_memory_that_is_away_and_keeps_what_it_needs_to_know(
    elsewhere: Elsewheres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the gateway runs, and over a restart, which it does not hold up."""
    monkeypatch.setattr(worker, "AGAIN_S", 0.01)
    async with elsewhere.gateway() as (gateway, channel):
        ada = await both_note(gateway, channel)
        elsewhere.memory.is_away = True
        erasure = await gateway.privacy.schedule_erasure(ada)
        assert not await gateway.privacy.is_erased(erasure, wait_s=0.1)
    async with elsewhere.gateway() as (gateway, channel):
        assert await gateway.privacy.eraser().due()
        assert await say(channel, "Hello", "ben"), "others are served"
        elsewhere.memory.is_away = False
        await until_done(gateway)
    lines = {"personalities/assistant/MEMORY.md": {"the kanarieada door is blue"}}
    assert elsewhere.memory.erased == [({ada}, lines)]
    assert not found_in(elsewhere.house.home, words_of("ada", ada))


async def test_a_memory_that_hangs_holds_up_no_start(elsewhere: Elsewheres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "AGAIN_S", 0.01)
    monkeypatch.setattr(memory_module, "TIMEOUT_S", 0.01)
    async with elsewhere.gateway() as (gateway, channel):
        ada = await both_note(gateway, channel)
    elsewhere.memory.hangs = True
    async with opened(elsewhere.house.home) as store:
        await eraser_of(elsewhere.house.home, store).schedule(ada)
    async with elsewhere.gateway() as (gateway, channel):
        assert await say(channel, "Hello", "ben"), "others are served"
        elsewhere.memory.hangs = False
        await until_done(gateway)
    assert not found_in(elsewhere.house.home, words_of("ada", ada))


async def test_an_export_has_what_a_memory_elsewhere_hands_over(elsewhere: Elsewheres) -> None:
    async with elsewhere.gateway() as (gateway, channel):
        await both_note(gateway, channel)
        await say(channel, "/export", "ada")
    (path,) = elsewhere.house.home.glob("exports/*/*.zip")
    files = contents(path)
    assert files["memory/notes.md"] == "the kanarieada door is blue"
    assert "is not in here" not in files["README.md"]


async def test_what_is_unpacked_from_an_export_lies_in_its_directory(elsewhere: Elsewheres) -> None:
    """A name comes from the server of the memory, and so from whoever may write there."""

    async def export(user_ids: Collection[str]) -> Mapping[str, bytes]:
        (user_id,) = user_ids
        return {f"{user_id}/../../../.bashrc": b"1", f"{user_id}/..\\..\\run.bat": b"2", f"/{user_id}/./a.md": b"3"}

    elsewhere.memory.export = export  # type: ignore[method-assign]
    async with elsewhere.gateway() as (gateway, channel):
        ada = await both_note(gateway, channel)
        await say(channel, "/export", "ada")
    (path,) = elsewhere.house.home.glob("exports/*/*.zip")
    files = contents(path)
    named = {name: files[name] for name in files if name.startswith("memory/") and not name.endswith(".json")}
    assert named == {"memory/.bashrc": "1", "memory/run.bat": "2", f"memory/{ada}/a.md": "3"}


async def test_files_of_a_memory_that_was_chosen_earlier_are_cleaned_too(elsewhere: Elsewheres) -> None:
    """Of the Markdown memory, of one in the traces, and of one on a server, whose mirror and notes lie here."""
    home = elsewhere.house.home
    async with elsewhere.gateway() as (gateway, channel):
        ada = await both_note(gateway, channel)
        shared, kept = "personalities/assistant/MEMORY.md", "the kanarieada door is blue\n\nthe gate is green\n"
        for root in (home, home / "memory/webdav"):
            for name in (f"users/{ada}/USER.md", shared):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(kept)
        async with open_trace_store(home / TRACES_NAME) as trace_store:
            at = MemoryScope(personality_id="assistant", user_id=ada, session_id=None, turn_id="t")
            memory = TraceMemoryProvider(trace_store)
            await memory.sync(at, [MemoryUpdate.add("user", "kanarieada"), MemoryUpdate.add("memory", "kanarieada")])
            of_ben = replace(at, user_id="u_ben", turn_id="t2")
            await memory.sync(of_ben, [MemoryUpdate.add("memory", "the gate is green")])
        copies = home / "memory/webdav/.copies"
        copies.mkdir()
        (copies / f"users%2F{ada}%2FUSER.md").write_text('{"etag": "1"}\nkanarieada')
        (copies / "personalities%2Fassistant%2FMEMORY.md").write_text(f'{{"etag": "1"}}\n{kept}')
        await gateway.privacy.schedule_erasure(ada)
        await until_done(gateway)
    assert not found_in(home, words_of("ada", ada))
    assert not [path for path in home.rglob("*") if ada in path.name]
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        found = await TraceMemoryProvider(trace_store).prefetch(at)
        assert found == MemoryContext(user_memory=None, project_memory="the gate is green\n")
    for root in (home, home / "memory/webdav"):
        assert (root / shared).read_text() == "the gate is green\n"


async def test_a_restored_backup_leaves_a_memory_elsewhere_to_the_next_start(house: House, tmp_path: Path) -> None:
    async with house.gateway() as (gateway, channel):
        await say(channel, "Hello", "ada")
        ada = (await user_ids(gateway))[account("ada")]
    async with opened(house.home) as store:
        await eraser_of(house.home, store).schedule(ada)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    (unpacked / DATABASE_NAME).write_bytes((house.home / DATABASE_NAME).read_bytes())
    (unpacked / "config.yaml").write_text(json.dumps({"memory": BY_HAND}))
    assert load_config(home=unpacked).config.memory.provider.kind == KIND
    done = await asyncio.to_thread(clean_restored, unpacked, house.home)
    assert done == ("The next start of the gateway takes out again: 1 person erased since the backup was made.",)
    async with opened(unpacked) as store:
        assert len(await eraser_of(unpacked, store).due()) == 1


async def test_the_api_says_what_stays_in_a_memory_that_cannot_erase_or_unite(house: House) -> None:
    async with house.gateway(memory=BY_HAND) as (gateway, channel):
        for person in ("ada", "ben", "cem"):
            await say(channel, "Hello", person)
        known = await user_ids(gateway)
        ids = [known[account(person)] for person in ("ada", "ben", "cem")]
        services = await gateway.load_services()
        linked = await services.people.link(OPERATOR, ids[0], ids[1])
        assert linked.kept_apart == KEPT_APART
        plan = await services.personal.erasure_plan(OPERATOR, ids[2])
        erased = await services.personal.erase(OPERATOR, ids[2], confirmed=ids[2])
        assert (plan.left, erased.left) == (LEFT, LEFT)
    async with house.gateway() as (gateway, _):
        services = await gateway.load_services()
        assert services.people.kept_apart is None
        assert (await services.personal.erasure_plan(OPERATOR, ids[0])).left is None
