"""A whole gateway whose memory is the trace memory alone: no file is written, and every surface works as with files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.config.file import load_config
from gateway.errors import ConfigError
from gateway.memory.recall import HEADING
from tests.gateway.privacy.conftest import found_in, say, user_ids
from tests.gateway.privacy.test_erasing import until_done
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_large_memory import NEEDED, write_memory
from tests.gateway.way.test_traces import Worker, fact, prompt_of, quiet, using

ALONE = {"provider": "traces", "timeout_s": 60}
TEA = "Ada likes green tea."


def remembering(text: str, store: str = "memory") -> list[object]:
    return [using("update_memory", action="add", store=store, content=text), "Noted."]


async def test_what_is_remembered_is_in_the_next_prompt_and_in_no_file(house: House) -> None:
    model = Worker(*remembering(TEA), *remembering("Ada is forty.", "user"), "Green.")  # type: ignore[arg-type]
    async with house.gateway(model, memory=ALONE) as (gateway, channel):
        for text in ("I like green tea", "I am forty", "What do I like?"):
            await channel.ask(text)
            await settled(gateway)
        assert "## About You\n\nAda is forty.\n\n## Memory\n\nAda likes green tea.\n" in f"{prompt_of(model)}\n"
        assert TEA in await channel.ask("/memory")
        assert "Ada likes green tea" in await channel.ask("/memory why green tea")
        assert "- **1** MEMORY.md" in await channel.ask("/memory log")
        assert "taken back" in await channel.ask("/memory undo 1")
        assert TEA not in await channel.ask("/memory")
    assert not [*house.home.rglob("USER.md"), *house.home.rglob("MEMORY.md")]


async def test_a_fact_stands_in_a_prompt_once(house: House) -> None:
    """The ingest takes the same sentence for a fact, and another that the memory does not have."""
    model = Worker(*remembering(f"- {TEA}"), "Green.")  # type: ignore[arg-type]
    model.facts = [[fact(TEA), fact("Ada brews her tea at noon.")]]
    async with house.gateway(model, memory=ALONE) as (gateway, channel):
        await channel.ask("I like green tea, which I brew at noon")
        await quiet(gateway)
        await channel.ask("What tea does Ada like, and when does she brew it?")
        await quiet(gateway)
    memory, _, recalled = prompt_of(model).partition(HEADING)
    assert TEA in memory
    assert TEA not in recalled
    assert "Ada brews her tea at noon." in recalled
    assert prompt_of(model).count(TEA) == 1


async def test_what_a_message_needs_of_a_long_memory_is_in_the_prompt(house: House, tmp_path: Path) -> None:
    text = write_memory(tmp_path / "elsewhere").read_text()
    model = Worker()
    async with house.gateway(model, memory=ALONE) as (gateway, channel):
        await channel.ask("Hello")
        update = using("update_memory", action="replace", store="memory", content=text)
        model.answers = [update, "Noted."]
        await channel.ask("Remember the diary")
        await settled(gateway)
        await channel.ask("What is the serial number of our boiler?")
        await settled(gateway)
    prompt = prompt_of(model)
    assert NEEDED in prompt
    assert "[...truncated]" in prompt
    assert len(prompt) < 25_000


async def test_one_person_is_handed_what_is_theirs_and_is_forgotten_and_the_other_is_not(house: House) -> None:
    async with house.gateway(memory=ALONE) as (gateway, channel):
        for person in ("ada", "ben"):
            await say(channel, f"Remember that my boat is called kanarie{person}", person)
            await quiet(gateway)
        ids = await user_ids(gateway)
        ada = ids["acct-ada-77"]
        asked = await say(channel, "/forget-me", "ada")
        code = asked.partition("`/forget-me ")[2].partition("`")[0]
        assert found_in(house.home, ["kanarieada", ada])
        await say(channel, f"/forget-me {code}", "ada")
        await until_done(gateway)
        assert found_in(house.home, ["kanarieada", ada]) == []
        assert "kanarieben" in await say(channel, "/memory", "ben")


@pytest.mark.parametrize("provider", ["traces", "{kind: traces}"])
def test_the_trace_memory_cannot_be_off_where_it_is_the_memory(tmp_path: Path, provider: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"memory:\n  provider: {provider}\n  traces:\n    enabled: false\n")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"4:14: memory\.traces\.enabled: off, but `memory\.provider` is traces"):
        load_config(path)
    path.write_text(f"memory:\n  provider: {provider}\n")
    config = load_config(path).config
    assert config.memory.has_traces
    assert json.loads(config.model_dump_json())["memory"]["provider"]["kind"] == "traces"
