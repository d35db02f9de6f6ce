"""The memory that the configuration names, or that Python gives, is the one that turns read and write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.config import Config
from gateway.config.file import load_config
from gateway.errors import ConfigError
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.dictionary_memory import Notes
from tests.scripted_model import ScriptedModel, call

KIND = "tests.gateway.way.dictionary_memory"
REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
OTHER = {"kind": KIND, "erasure": "by_hand"}


async def test_a_memory_of_somebody_else_is_named_by_a_dotted_name(house: House) -> None:
    provider = {"kind": KIND, "heading": "WHAT I KNOW", "erasure": "by_hand"}
    model = ScriptedModel([REMEMBER], "Noted.", "You like tea.")
    async with house.gateway(model, memory={"provider": provider}) as (gateway, channel):
        notes: Any = gateway.memory_provider
        await channel.ask("I like tea", user="ada", conversation="c1")
        await settled(gateway)
        await channel.ask("what do I like?", user="ada", conversation="c1")
        assert [line for lines in notes.lines.values() for line in lines] == ["Likes tea."]
        assert "WHAT I KNOW\nLikes tea." in model.requests[-1].system
    assert notes.life == ["opened", "checked", "closed"]
    assert not [*house.home.rglob("USER.md"), *house.home.glob("personalities/*/MEMORY.md")]


async def test_a_memory_is_one_argument_from_python(tmp_path: Path) -> None:
    notes = Notes()
    config = Config.model_validate({"memory": {"provider": {"erasure": "by_hand"}}})
    async with Gateway(tmp_path / "home", config, is_served=False, memory=notes) as gateway:
        assert gateway.memory_provider is notes
    assert notes.life == ["opened", "closed"]


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ({"kind": KIND}, r"Notes cannot erase a person; expected one that has `erase`, or `erasure: by_hand`"),
        ({"kind": KIND, "erasure": "by_hand", "is_broken": True}, r"cannot be made \(RuntimeError: no such table\)"),
        ({"kind": KIND, "is_broken": True, "url": "db://:canary@h"}, r"\(RuntimeError: no such table\*\*\*\)"),
    ],
)
async def test_a_memory_that_cannot_be_used_is_refused_at_the_start(
    house: House, provider: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        async with house.gateway(memory={"provider": provider}):
            pass


async def test_what_is_no_memory_is_refused_at_the_start(tmp_path: Path) -> None:
    not_a_memory: Any = object()
    with pytest.raises(ConfigError, match="object is no memory; expected `prefetch` and `sync`"):
        async with Gateway(tmp_path / "home", load_config(home=tmp_path).config, memory=not_a_memory):
            pass


async def told(channel: FakeChannel, name: str) -> None:
    """Say something under a name of its own, in a channel that was there before; returns with the answer."""
    message = channel.message("note it", id=name, event_id=name)
    await channel.deliver(message)
    await channel.answers_to(message)


@pytest.mark.parametrize("kinds", [[OTHER, "markdown"], ["markdown", OTHER, "markdown"]])
async def test_files_take_updates_after_a_memory_of_another_kind_was_used(house: House, kinds: list[Any]) -> None:
    """The journal has the updates of both, but only those of the files are their history."""
    for number, provider in enumerate(kinds):
        note = f'{{"action": "add", "store": "user", "content": "{number}"}}'
        model = ScriptedModel([call("update_memory", note)], "Noted.")
        async with house.gateway(model, memory={"provider": provider}) as (gateway, channel):
            await told(channel, f"turn {number}")
            await settled(gateway)
            assert gateway.memory.late == 0
    [file] = house.home.rglob("USER.md")
    file.write_text(f"{file.read_text()}\nby hand\n")
    async with house.gateway(ScriptedModel([REMEMBER], "Noted.")) as (gateway, channel):
        await told(channel, "last turn")
        await settled(gateway)
        log = await gateway.store.journal.entries(None, 50)
    own = [str(number) for number, kind in enumerate(kinds) if kind == "markdown"]
    assert file.read_text().split() == [*own, "by", "hand", "Likes", "tea."]
    assert [entry.request.content for entry in reversed(log) if entry.request.action == "add"] == [*own, "Likes tea."]
