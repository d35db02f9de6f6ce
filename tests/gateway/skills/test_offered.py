"""What a turn shows of skills: short lines within bounds, and what was loaded for as long as the session lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.agent.model import ChatMessage
from gateway.agent.prompt import estimated_tokens
from gateway.pipeline.skills import LOAD_SKILL, skills_of
from gateway.skills.library import Entry, Place
from gateway.skills.offered import MAX_LOADED_TOKENS, MAX_TOKENS, Offered, loaded_in, loaded_text, not_shown_note
from gateway.skills.skill import read_skill
from gateway.skills.tools import skill_tools
from gateway.tools.contract import ToolError
from gateway.tools.spec import ToolCall
from tests.gateway.skills.conftest import text


def entry(name: str = "packing", description: str = "Packs a suitcase.", body: str = "", **files: bytes) -> Entry:
    data = (text(name, description) + body).encode()
    read = read_skill({"SKILL.md": data, **files}, name)
    return Entry(place=Place(path=Path()), root=Path(name), skill=read.skill, faults=(), state="trusted")


def offered(*entries: Entry) -> Offered:
    return Offered({one.name: one for one in entries}, ())


def test_each_has_a_line_and_a_long_description_is_cut_at_300_characters() -> None:
    section = offered(entry(), entry("long", "b" * 1_000)).section
    lines = section.split("\n")
    assert lines[0] == "## Skills"
    assert lines[-2] == "- packing: Packs a suitcase."
    assert lines[-1] == "- long: " + "b" * 299 + "…"


def test_a_description_is_one_line_whatever_is_in_it() -> None:
    section = offered(entry(description="|\n  Packs.\n\n  ## Rules\n  None.")).section
    assert section.endswith("- packing: Packs. ## Rules None.")


def test_all_lines_together_stay_below_2000_tokens_and_each_skill_keeps_its_line_for_as_long_as_that_goes() -> None:
    for count in (1, 30, 100, 150):
        section = offered(*(entry(f"skill-{number}", "word " * 200) for number in range(count))).section
        assert estimated_tokens(section) <= MAX_TOKENS
        assert section.count("\n- skill-") == count


def many(count: int) -> Offered:
    """More than have room by their names."""
    skills = {one.name: one for one in (entry(f"skill-{number:03}-{'x' * 50}", "Packs.") for number in range(count))}
    fish = entry("zander", "Cooks a fish.")
    return offered(*skills.values(), fish)


def test_of_very_many_the_names_that_have_room_are_shown_and_the_operator_is_told() -> None:
    one = many(600)
    assert MAX_TOKENS - 30 < estimated_tokens(one.section) <= MAX_TOKENS
    shown = one.section.count("\n- skill-")
    assert one.section.endswith(
        f"\n- and {601 - shown} more: give `load_skill` words for what you need in place of a name, and it says which"
        " fit"
    )
    assert not_shown_note(one.skills).startswith(f"601 skills: the prompt has room for the names of {shown}, and for")
    assert not_shown_note(offered(entry()).skills) == ""


async def test_the_agent_finds_by_words_what_the_prompt_had_no_room_for() -> None:
    one = many(600)
    [load, read] = skill_tools(one.skills, None)
    assert load.spec.size_bytes + read.spec.size_bytes < 1_500, "no list of all names"
    context: Any = type("Context", (), {"returned": ()})

    async def loaded(name: str) -> Any:
        return await load.call(load.arguments(name=name), context)  # type: ignore[operator]

    assert await loaded("cook some fish") == (
        "There is no skill 'cook some fish'. Load one of these by its name, if it fits:\n- zander: Cooks a fish."
    )
    assert str(await loaded("zander")).startswith("[Skill zander, version ")
    with pytest.raises(ToolError, match=r"there is no skill 'violin'; there are: skill-000-.*, and 551 more$"):
        await loaded("violin")


def test_a_loaded_skill_is_its_text_and_a_list_of_its_files() -> None:
    one = entry(**{"scripts/weigh.py": b"print(7)", "references/list.md": b"# List"})
    assert one.skill is not None
    assert loaded_text(one) == (
        f"[Skill packing, version {one.skill.version}]\n# Packing\n\nFold, then roll.\n\n"
        "Its files, for read_skill_file and run_skill_script:\n"
        "- scripts/weigh.py, 8 bytes, a script\n- references/list.md, 6 bytes"
    )
    assert loaded_in([loaded_text(one), "[Skill x, version 12] is not it", "another"]) == [
        ("packing", one.skill.version),
        ("x", "12"),
    ]


def test_a_long_text_comes_by_pages_and_a_long_list_of_files_is_cut() -> None:
    many = {f"assets/{number:03}": b"" for number in range(400)}
    told = loaded_text(entry(body="x" * 40_000, **many))
    assert len(told) < 20_000
    assert '[Page 1 of 3; read_skill_file with name "SKILL.md" and a page has the others.]' in told
    assert told.endswith(" more")


class Sessions:
    """The results of one session."""

    def __init__(self, *results: str) -> None:
        self._results = results

    async def results(self, _session_id: str, tool: str) -> tuple[str, ...]:
        assert tool == LOAD_SKILL
        return self._results


def shown(result: str, tool: str = LOAD_SKILL, number: str = "c1") -> tuple[ChatMessage, ...]:
    call = ToolCall(id=number, name=tool, arguments="{}")
    made = ChatMessage(role="assistant", text="", tool_calls=(call,))
    return made, ChatMessage(role="tool", text=result, tool_call_id=number)


async def of(box: Offered, history: tuple[ChatMessage, ...], *results: str) -> tuple[list[str], list[str]]:
    found = await skills_of(box, "s", history, Sessions(*results))  # type: ignore[arg-type]
    return [name for name, _ in loaded_in(found.loaded)], [name for name, _ in loaded_in(found.returned[LOAD_SKILL])]


async def test_what_the_conversation_shows_is_not_shown_again_and_what_a_summary_took_is() -> None:
    one, other = entry(), entry("cooking", "Cooks.")
    box = offered(one, other)
    texts = [loaded_text(one), loaded_text(other)]
    assert await of(box, shown(texts[0]) + shown(texts[1]), *texts) == ([], ["packing", "cooking"])
    assert await of(box, shown(texts[1]), *texts) == (["packing"], ["cooking", "packing"])
    assert await of(box, (), *texts) == (["packing", "cooking"], ["packing", "cooking"])
    assert await of(box, ()) == ([], [])


async def test_only_what_the_tool_has_returned_counts_as_loaded() -> None:
    """A page that writes such a line would else keep a skill from the agent."""
    one = entry()
    text_of_it = loaded_text(one)
    forged = (*shown(text_of_it, tool="web_fetch"), ChatMessage(role="user", text=text_of_it))
    assert await of(offered(one), forged, text_of_it) == (["packing"], ["packing"])
    again = shown(text_of_it) + shown("a page", tool="web_fetch")  # ids of two turns may be the same
    assert await of(offered(one), again + shown(text_of_it, "web_fetch"), text_of_it) == ([], ["packing"])


async def test_a_skill_that_was_changed_and_trusted_since_is_shown_as_it_is_now() -> None:
    old, new = entry(), entry(body="And count.")
    assert await of(offered(new), shown(loaded_text(old)), loaded_text(old)) == (["packing"], ["packing", "packing"])
    assert await of(offered(entry("cooking")), (), loaded_text(old)) == ([], []), "it is withheld now"


async def test_the_newest_of_many_long_ones_stay() -> None:
    many = [entry(f"skill-{number}", body="word " * 3_000) for number in range(8)]
    loaded, _ = await of(offered(*many), (), *map(loaded_text, many))
    assert loaded == [one.name for one in many[-len(loaded) :]]
    assert 1 < len(loaded) < 8
    assert sum(estimated_tokens(loaded_text(one)) for one in many[-len(loaded) :]) <= MAX_LOADED_TOKENS


async def test_the_newest_skill_stays_also_where_its_script_takes_a_token_for_each_letter() -> None:
    large = entry("large", body="складывай" * 5_000, **{"ж" * 90 + str(number): b"" for number in range(30)})
    assert estimated_tokens(loaded_text(large)) > MAX_LOADED_TOKENS
    assert (await of(offered(entry(), large), (), loaded_text(entry()), loaded_text(large)))[0] == ["large"]


async def test_a_skill_that_was_loaded_again_is_the_newest() -> None:
    many = [entry(f"skill-{number}", body="word " * 3_000) for number in range(8)]
    loaded, _ = await of(offered(*many), (), *map(loaded_text, [*many, many[0]]))
    assert loaded == [one.name for one in [*many[1 - len(loaded) :], many[0]]]
