"""Personalities: built in, overridden, made, edited while the gateway runs, and broken."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.domain.personalities import BrokenPersonality, Personalities, Personality
from gateway.errors import FileError, InvalidId, PersonalityError

Write = Callable[..., Path]
BUILT_IN = ("assistant", "engineer", "researcher")
HEXACO = {"honesty_humility", "emotionality", "extraversion", "agreeableness", "conscientiousness", "openness"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files of a personality, old enough for no editor to be at them still."""

    def write(personality_id: str, **files: str | bytes) -> Path:
        directory = tmp_path / "personalities" / personality_id
        directory.mkdir(parents=True, exist_ok=True)
        for key, text in files.items():
            path = directory / {"soul": "SOUL.md", "settings": "personality.yaml", "memory": "MEMORY.md"}[key]
            before = path.stat().st_mtime_ns if path.exists() else 0
            path.write_bytes(text.encode() if isinstance(text, str) else text)
            os.utime(path, ns=(before + 10**9, before + 10**9))
        return directory

    return write


@pytest.fixture
def personalities(tmp_path: Path) -> Personalities:
    return Personalities(tmp_path)


# ---- the built-in ones


def test_three_are_built_in_each_with_a_voice_of_its_own(personalities: Personalities) -> None:
    found = personalities.list()
    assert tuple(personality.id for personality in found) == personalities.ids() == BUILT_IN
    for personality in found:
        assert isinstance(personality, Personality)
        assert 150 <= len(personality.prompt.split()) <= 350
        assert personality.description
        assert set(personality.traits) == HEXACO
        assert (personality.source, personality.memory_scope) == ("built-in", "per-personality")
        assert (personality.tools, personality.model, personality.steps_per_turn) == (None, None, None)
    assert len({dict(p.traits)["extraversion"] for p in found if isinstance(p, Personality)}) == 3


def test_nothing_is_made_in_the_data_directory_by_looking(personalities: Personalities, tmp_path: Path) -> None:
    personalities.get("assistant")
    personalities.list()
    assert list(tmp_path.iterdir()) == []


# ---- files


def test_a_directory_with_a_soul_is_a_personality_at_once(personalities: Personalities, write: Write) -> None:
    assert "tea_master" not in personalities.ids()
    write("tea_master", soul="\ufeffYou pour tea.\r\nSlowly.\r\n\r\n")
    found = personalities.get("tea_master")
    assert (found.name, found.prompt, found.tools) == ("Tea Master", "You pour tea.\nSlowly.", None)
    assert found.source == "personalities/tea_master"
    assert personalities.ids() == (*BUILT_IN, "tea_master")


def test_every_setting_is_read(personalities: Personalities, write: Write) -> None:
    write(
        "poet",
        soul="You rhyme.",
        settings="name: The Poet\ndescription: Rhymes.\nmodel: cloud\nmemory_scope: per-user\n"
        "tools: [update_memory, search]\nbudgets:\n  steps_per_turn: 3\n  output_tokens_per_turn: 500\n"
        "traits:\n  openness: 1\n  emotionality: 0.9\n",
    )
    poet = personalities.get("poet")
    assert (poet.name, poet.description, poet.model, poet.memory_scope) == (
        "The Poet",
        "Rhymes.",
        "cloud",
        "per-user",
    )
    assert (poet.tools, poet.steps_per_turn, poet.output_tokens) == (("update_memory", "search"), 3, 500)
    assert dict(poet.traits) == {"emotionality": 0.9, "openness": 1.0}


def test_a_built_in_one_is_overridden_file_by_file(personalities: Personalities, write: Write) -> None:
    before = personalities.get("engineer")
    write("engineer", soul="You are terse.")
    changed = personalities.get("engineer")
    assert (changed.prompt, changed.name, changed.traits) == ("You are terse.", before.name, before.traits)
    assert changed.source == "personalities/engineer"
    directory = write("engineer", settings="name: Builder\n")
    assert personalities.get("engineer").name == "Builder"
    (directory / "SOUL.md").unlink()
    assert (personalities.get("engineer").prompt, personalities.get("engineer").name) == (before.prompt, "Builder")
    (directory / "personality.yaml").unlink()
    assert personalities.get("engineer") == before


def test_a_directory_with_only_memory_is_no_personality(personalities: Personalities, write: Write) -> None:
    write("gone", memory="A fact.\n")
    (write("assistant", memory="A fact.\n") / ".memory.lock").touch()
    (write("x") / ".DS_Store").touch()
    assert personalities.ids() == BUILT_IN
    assert personalities.get("assistant").source == "built-in"
    with pytest.raises(PersonalityError, match="there is no personality gone"):
        personalities.get("gone")


def test_stray_files_beside_the_directories_are_passed_over(personalities: Personalities, tmp_path: Path) -> None:
    (tmp_path / "personalities").mkdir()
    (tmp_path / "personalities" / "README.md").touch()
    assert personalities.ids() == BUILT_IN


# ---- changes while it runs


def test_an_edit_counts_at_the_next_look_up(personalities: Personalities, write: Write) -> None:
    write("poet", soul="One.")
    assert personalities.get("poet").prompt == "One."
    write("poet", soul="Two.")
    assert personalities.get("poet").prompt == "Two."


def test_what_did_not_change_is_not_read_again(personalities: Personalities, write: Write) -> None:
    write("poet", soul="One.")
    assert personalities.get("poet") is personalities.get("poet")
    assert personalities.get("assistant") is personalities.get("assistant")


def test_a_deleted_one_is_gone(personalities: Personalities, write: Write) -> None:
    directory = write("poet", soul="One.")
    personalities.get("poet")
    (directory / "SOUL.md").unlink()
    with pytest.raises(PersonalityError, match="there is no personality poet"):
        personalities.get("poet")


def test_while_an_edit_is_broken_the_last_good_version_answers_with_one_warning(
    personalities: Personalities, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A logger keeps the settings of its first use, which may lie in another test.
    monkeypatch.setattr("gateway.domain.personalities._log", structlog.get_logger())
    write("poet", soul="One.", settings="name: Poet\n")
    good = personalities.get("poet")
    write("poet", settings="nam: Poet\n")
    with capture_logs() as logs:
        assert personalities.get("poet") is good
        assert personalities.get("poet") is good
    assert [(entry["event"], entry["log_level"], entry["serves_last_good"]) for entry in logs] == [
        ("personality_broken", "warning", True)
    ]
    assert isinstance(personalities.list()[-1], BrokenPersonality)
    write("poet", settings="name: Bard\n")
    assert personalities.get("poet").name == "Bard"


# ---- broken ones

BROKEN = {
    "an unknown key": (
        {"settings": "nam: x\n"},
        (
            "personality.yaml:1:1: nam: unknown key (did you mean `name`?); expected one of name, description, model, "
            "memory_scope, memory_writes, tools, thinking, budgets, traits"
        ),
    ),
    "an unknown trait": (
        {"settings": "traits:\n  opennes: 0.5\n"},
        (
            "personality.yaml:2:3: traits.opennes: unknown key (did you mean `openness`?); expected one of "
            "honesty_humility, emotionality, extraversion, agreeableness, conscientiousness, openness"
        ),
    ),
    "a trait out of range": (
        {"settings": "traits:\n  openness: 1.5\n"},
        "personality.yaml:2:13: traits.openness: 1.5 is too large; expected at most 1",
    ),
    "a scope that there is not": (
        {"settings": "memory_scope: mine\n"},
        (
            "personality.yaml:1:15: memory_scope: 'mine' is not a choice; expected 'per-personality', 'global' or "
            "'per-user'"
        ),
    ),
    "tools that are no list": (
        {"settings": "tools: none\n"},
        "personality.yaml:1:8: tools: 'none' is not a list; expected a list",
    ),
    "a budget of nothing": (
        {"settings": "budgets:\n  steps_per_turn: 0\n"},
        "personality.yaml:2:19: budgets.steps_per_turn: 0 is too small; expected at least 1",
    ),
    "no YAML": ({"settings": "a: b: c\n"}, "personality.yaml:1:5: a second `: ` in a line, or a wrong indent; "),
    "an empty soul": ({"soul": " \n"}, "SOUL.md:1:1: empty; expected the personality's prompt, in Markdown"),
    "a soul that is not UTF-8": ({"soul": b"Hi.\nCaf\xe9"}, "SOUL.md:2:4: byte 0xe9 is not UTF-8; expected UTF-8 text"),
    "a soul with a NUL": ({"soul": b"Hi.\n\0"}, "SOUL.md:2:1: a NUL character; expected text"),
    "a soul without end": ({"soul": "x" * (256 * 1024 + 1)}, "SOUL.md:1:1: larger than 262144 bytes; "),
}


@pytest.mark.parametrize(("files", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_one_says_where_and_the_others_still_work(
    files: dict[str, str | bytes], reason: str, personalities: Personalities, write: Write
) -> None:
    write("poet", **{"soul": "One.", **files})
    with pytest.raises(PersonalityError) as caught:
        personalities.get("poet")
    assert str(caught.value).startswith(f"personalities/poet/{reason}")
    broken = personalities.list()[-1]
    assert isinstance(broken, BrokenPersonality)
    assert (broken.id, broken.reason) == ("poet", str(caught.value))
    assert personalities.get("assistant").id == "assistant"


def test_settings_without_a_soul_are_broken(personalities: Personalities, write: Write) -> None:
    write("poet", settings="name: x\n")
    with pytest.raises(PersonalityError, match=r"SOUL.md:1:1: missing; expected"):
        personalities.get("poet")


@pytest.mark.parametrize("personality_id", ["", "a b", "a/b", "..", "a.b", "a\n", "é", "x" * 65, "a\0"])
async def test_what_is_no_id_is_refused(personality_id: str, personalities: Personalities) -> None:
    with pytest.raises(InvalidId):
        personalities.get(personality_id)
    with pytest.raises(InvalidId):
        await personalities.create(personality_id)


def test_a_directory_whose_name_is_no_id_is_listed_as_broken(personalities: Personalities, write: Write) -> None:
    write("tea master", soul="You pour tea.")
    broken = personalities.list()[-1]
    assert isinstance(broken, BrokenPersonality)
    assert "'tea master' is not valid" in broken.reason
    assert personalities.ids() == BUILT_IN


def test_an_unknown_one_is_answered_with_those_that_there_are(personalities: Personalities) -> None:
    with pytest.raises(PersonalityError) as caught:
        personalities.get("enginer")
    assert str(caught.value) == (
        "there is no personality enginer (did you mean `engineer`?); there are assistant, engineer, researcher"
    )


def test_a_link_that_leads_out_of_the_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("You leak.")
    directory = tmp_path / "home" / "personalities" / "poet"
    directory.mkdir(parents=True)
    (directory / "SOUL.md").symlink_to(tmp_path / "outside")
    with pytest.raises(PersonalityError, match="leads out of"):
        Personalities(tmp_path / "home").get("poet")


def test_a_pipe_in_place_of_a_file_does_not_hang(personalities: Personalities, write: Write) -> None:
    os.mkfifo(write("poet") / "SOUL.md")
    with pytest.raises(PersonalityError, match="not a regular file"):
        personalities.get("poet")


# ---- new ones


async def test_a_new_one_is_made_with_private_files_and_can_be_chosen_at_once(
    personalities: Personalities, tmp_path: Path
) -> None:
    await personalities.create("tea-master", description='Pours "tea": slowly')
    directory = tmp_path / "personalities" / "tea-master"
    made = personalities.get("tea-master")
    assert (made.name, made.description) == ("Tea Master", 'Pours "tea": slowly')
    assert "You are Tea Master." in made.prompt
    assert set(made.traits) == HEXACO
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir() if path.is_file()} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_a_copy_begins_with_everything_of_its_original(personalities: Personalities, write: Write) -> None:
    write(
        "poet",
        soul="You rhyme.",
        settings="description: Rhymes.\nmodel: m\nmemory_scope: global\ntools: [a]\nbudgets: {steps_per_turn: 3}\n"
        "traits: {openness: 0.25}\n",
    )
    await personalities.create("bard", name="Bard", copy_of="poet")
    poet, bard = personalities.get("poet"), personalities.get("bard")
    for key in ("prompt", "description", "model", "memory_scope", "tools", "steps_per_turn", "output_tokens"):
        assert getattr(bard, key) == getattr(poet, key)
    assert (bard.name, bard.traits["openness"]) == ("Bard", 0.25)


async def test_a_built_in_one_is_changed_by_copying_it_onto_itself(personalities: Personalities) -> None:
    with pytest.raises(PersonalityError, match="is built in; copy it onto itself"):
        await personalities.create("engineer")
    before = personalities.get("engineer")
    await personalities.create("engineer", copy_of="engineer")
    after = personalities.get("engineer")
    assert (after.prompt, after.traits, after.name) == (before.prompt, before.traits, before.name)
    assert after.source == "personalities/engineer"


async def test_one_that_is_there_is_never_overwritten_and_memory_is_kept(
    personalities: Personalities, write: Write
) -> None:
    directory = write("poet", memory="A fact.\n")
    await personalities.create("poet")
    assert (directory / "MEMORY.md").read_text() == "A fact.\n"
    soul = (directory / "SOUL.md").read_text()
    with pytest.raises(PersonalityError, match="exists already"):
        await personalities.create("poet", name="Other")
    assert (directory / "SOUL.md").read_text() == soul


async def test_a_name_that_is_none_is_refused_and_nothing_is_written(
    personalities: Personalities, tmp_path: Path
) -> None:
    with pytest.raises(PersonalityError, match=r"personality.yaml:2:7: name: .* is too long; expected"):
        await personalities.create("poet", name="x" * 101)
    with pytest.raises(PersonalityError, match="there is no personality nobody"):
        await personalities.create("poet", copy_of="nobody")
    assert not (tmp_path / "personalities").exists()


async def test_a_place_that_cannot_be_written_is_told(personalities: Personalities, tmp_path: Path) -> None:
    (tmp_path / "personalities").write_text("")
    with pytest.raises(FileError):
        await personalities.create("poet")
