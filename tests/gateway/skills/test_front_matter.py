"""What stands above the instructions of a skill is read as it is meant, and each departure from the format is named."""

from __future__ import annotations

import time

import pytest

from gateway.skills.front_matter import MAX_FRONT_MATTER_CHARS, FrontMatter, parse


def read(front: str, directory: str = "packing", body: str = "Fold.") -> tuple[FrontMatter | None, str]:
    about, faults = parse(f"---\n{front}\n---\n{body}".encode(), directory)
    return about, " | ".join(fault.text for fault in faults)


def test_all_that_the_format_has_is_read() -> None:
    about, faults = read(
        "name: packing\ndescription: Packs a suitcase.\nlicense: MIT\ncompatibility: Needs git\n"
        'allowed-tools: Bash(git:*) Read\nmetadata:\n  author: ada\n  version: "1.0"'
    )
    assert about == FrontMatter(
        name="packing",
        description="Packs a suitcase.",
        body="Fold.",
        license="MIT",
        compatibility="Needs git",
        allowed_tools="Bash(git:*) Read",
        metadata={"author": "ada", "version": "1.0"},
    )
    assert faults == ""


def test_a_value_stays_the_text_that_it_is() -> None:
    about, _ = read("name: '007'\ndescription: yes\nmetadata:\n  on: 12:30\n  version: 1.10", directory="007")
    assert about is not None
    assert (about.name, about.description, about.metadata) == ("007", "yes", {"on": "12:30", "version": "1.10"})


@pytest.mark.parametrize(
    ("front", "description"),
    [
        ("description: Use when: packing", "Use when: packing"),
        ("description: Use for: one\n  and for: another", "Use for: one and for: another"),
        ("description: [Beta] Packs", "[Beta] Packs"),
        ("description: @home packs", "@home packs"),
        ("description: `pack` it", "`pack` it"),
        ('description: Says "yes": often\\', 'Says "yes": often\\'),
    ],
)
def test_a_value_that_needs_quotes_is_mended_with_a_warning(front: str, description: str) -> None:
    about, faults = read(f"name: packing\n{front}\nlicense: MIT")
    assert about is not None
    assert (about.name, about.description, about.license) == ("packing", description, "MIT")
    assert faults == "description: a colon or a sign that needs quotes; put quotes around the whole value"


def test_a_tab_behind_a_colon_is_mended_with_a_warning() -> None:
    about, faults = read("name:\tpacking\ndescription:\tPacks.")
    assert about is not None
    assert (about.name, about.description) == ("packing", "Packs.")
    assert faults == "a tab stands behind a colon; write a space"


def test_a_wrong_name_of_the_directory_is_said_and_the_skill_works() -> None:
    about, faults = read("name: packing\ndescription: Packs.", directory="other")
    assert about is not None
    assert about.name == "packing"
    assert faults == "the directory is called 'other', and the skill 'packing'; give both one name"


@pytest.mark.parametrize(
    ("front", "what"),
    [
        ("name: Packing\ndescription: Packs.", "the name 'Packing' has capital letters"),
        ("name: -packing\ndescription: Packs.", "the name '-packing' has a hyphen at an end, or two in a row"),
        ("name: my_pack\ndescription: Packs.", "the name 'my_pack' has other characters than letters, digits and hyph"),
        (f"name: {'a' * 65}\ndescription: Packs.", f"the name '{'a' * 65}' has 65 characters, and 64 are the most"),
        ("description: Packs.", "the name is missing"),
    ],
)
def test_a_bad_name_gives_way_to_that_of_the_directory(front: str, what: str) -> None:
    about, faults = read(front)
    assert about is not None
    assert about.name == "packing"
    assert faults.startswith(what)
    assert faults.endswith("it is called 'packing', as its directory is")
    about, faults = read(front, directory="No Name")
    assert about is None
    assert faults.startswith(what)


@pytest.mark.parametrize(
    "front", ["name: packing", "name: packing\ndescription:", "name: packing\ndescription: '  '", "name: packing\nx: y"]
)
def test_a_missing_description_leaves_the_skill_out(front: str) -> None:
    about, faults = read(front)
    assert about is None
    assert "the description is missing, by which the agent knows when to use it" in faults


@pytest.mark.parametrize(
    ("front", "what"),
    [
        ("name: packing\ndescription: Packs.\ncolour: red", "'colour' is no key of the format"),
        ("name: packing\ndescription: Packs.\nname: packing", "name stands there twice; the last one counts"),
        ("name: packing\ndescription: Packs.\nallowed-tools: [Bash, Read]", "allowed-tools is not one text"),
        ("name: packing\ndescription: Packs.\nmetadata: {a: b}", "line 4 of SKILL.md: [ ] or { }"),
        ("name: packing\ndescription: Packs.\nmetadata: new", "metadata is no list of `key: value`"),
        (f"name: packing\ndescription: {'a' * 1025}", "the description has 1025 characters, and 1024 are the most"),
        ('name: packing\ndescription: "Packs.\\U000E0041\\u202E"', "the description holds 2 invisible characters"),
        (f"name: packing\ndescription: P.\ncompatibility: {'a' * 501}", "the compatibility has 501 characters, and 50"),
    ],
)
def test_a_cosmetic_fault_is_said_and_the_skill_works(front: str, what: str) -> None:
    about, faults = read(front)
    assert about is not None
    assert what in faults


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"# Packing", "SKILL.md has no front matter; it begins with a line `---`"),
        (b"---\nname: packing\ndescription: Packs.", "SKILL.md has no front matter"),
        (b"---\n- a\n---\n", "the front matter has no keys; expected name and description"),
        (b"---\n---\n", "the front matter has no keys"),
        (b"---\nname: 'packing\n---\n", "the front matter is no YAML"),
        (
            b"---\nname: packing\ndescription: Packs.\n---\nFold.\0",
            "SKILL.md holds the character NUL, so it is no text",
        ),
        (b"\xff\xfe---\n", "SKILL.md is not UTF-8 (byte 0); save it as UTF-8"),
        (b"---\nname:\n" + b"".join(b" " * n + b"-\n" for n in range(1, 100)) + b"---\n", "it is nested too deep"),
        (rb'---@description: "\UFFFFFFFF"@---@'.replace(b"@", b"\n"), "an escape in it is of no character"),
        (rb'---@description: "\U00110000"@---@'.replace(b"@", b"\n"), "an escape in it is of no character"),
        (rb'---@description: "\uD83D"@---@'.replace(b"@", b"\n"), "makes a control character, or half of one"),
        (rb'---@description: "\e[2J\0"@---@'.replace(b"@", b"\n"), "makes a control character, or half of one"),
        (b"---\nname: " + b"[" * 5_000 + b"\n---\n", "the description is missing"),
        (b"---\n" + b"a: b\n" * MAX_FRONT_MATTER_CHARS + b"---\n", "characters, and 20000 are the most"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_says_what_is_wrong(data: bytes, what: str) -> None:
    began_at = time.perf_counter()
    about, faults = parse(data, "packing")
    assert about is None
    assert any(what in fault.text for fault in faults if fault.is_fatal), faults
    assert time.perf_counter() - began_at < 5


def test_an_alias_is_a_text_and_is_not_followed() -> None:
    about, faults = read("name: packing\nlicense: &a [x, x, x]\ndescription: *a")
    assert about is not None
    assert about.description == "*a"
    assert "needs quotes" in faults


def test_line_ends_of_windows_and_a_byte_order_mark_are_no_obstacle() -> None:
    about, faults = parse(b"\xef\xbb\xbf---\r\nname: packing\r\ndescription: Packs.\r\n---\r\nFold.\r\n", "packing")
    assert about is not None
    assert (about.name, about.body) == ("packing", "Fold.")
    assert [fault.text for fault in faults] == ["SKILL.md begins with a byte order mark; save it without"]
