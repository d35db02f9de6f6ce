"""What the pages say is so: links lead somewhere, commands and targets exist, configurations load."""

from __future__ import annotations

import itertools
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.file import load_config
from gateway.people.identity import IdentityMap
from gateway.web.dashboard.page import all_pages

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted(
        [
            *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "gateway" / "DESIGN.md",
            ROOT / "adapters" / "ADDING_AN_ADAPTER.md",
        ]
    )
}  # fmt: skip
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "a",
    "OPENAI_API_KEY": "o",
    "OPENROUTER_API_KEY": "r",
    "TELEGRAM_BOT_TOKEN": "1:t",
    "SLACK_BOT_TOKEN": "xoxb-s",
    "SLACK_APP_TOKEN": "xapp-s",
    "DISCORD_TOKEN": "d",
    "MAIL_PASSWORD": "m",
}

ETHOS: Any = get_command(app)

_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[(?:[^\]]|\]\()*?\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_SHELLS = {"", "sh", "console", "bash"}


def without_fences(text: str) -> str:
    return _FENCE.sub("", text)


def fences(text: str, *kinds: str) -> Iterator[str]:
    for kind, body in _FENCE.findall(text):
        if kind in kinds:
            yield body


def anchors(text: str) -> set[str]:
    """The headings' anchors, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", without_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# ---- links ----------------------------------------------------------------------------------------------------------

LINKS = [
    (page, target)
    for page, text in PAGES.items()
    for _, target in _LINK.findall(without_fences(text))
    if not target.startswith(("http://", "https://", "mailto:"))
]


@pytest.mark.parametrize(("page", "target"), LINKS, ids=lambda value: value)
def test_a_link_leads_to_a_file_of_the_repository_and_to_a_heading_in_it(page: str, target: str) -> None:
    name, _, anchor = unquote(target).partition("#")
    path = ((ROOT / page).parent / name).resolve() if name else ROOT / page
    assert path.is_relative_to(ROOT), f"{page} leads out of the repository: {target}"
    assert path.exists(), f"{page} leads to {target}, which is not there"
    if anchor:
        assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page}: no heading #{anchor} in {path.name}"


def test_every_page_is_in_the_list_of_pages() -> None:
    listed = {target for page, target in LINKS if page == "docs/index.md"}
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} - {"index.md"}
    assert pages <= listed


def test_pictures_are_of_our_own_and_load_nothing_from_elsewhere() -> None:
    shown = {
        ((ROOT / page).parent / target).resolve()
        for page, text in PAGES.items()
        for mark, target in _LINK.findall(without_fences(text))
        if mark and "/setup/" not in target  # of a platform's console: `test_setup_steps.py`
    }
    of_pages = {f"{page}-light.jpg" for page in ("channels", "memory", "people", "repairs", "sessions", "setup")}
    scenes = {"pairing.png", "linking.png", "adding.png"}
    assert {path.name for path in shown} == {"terminal.svg", "web.png"} | scenes | of_pages
    kept = set((ROOT / "docs" / "images" / "dashboard").iterdir())
    assert {path for path in (ROOT / "docs" / "images").iterdir() if path.is_file()} == shown - kept
    views = ("light", "dark", "phone")
    assert {path.name for path in kept} <= {f"{page.name}-{view}.jpg" for page in all_pages() for view in views}
    shown |= kept
    assert all(path.stat().st_size < 300_000 for path in shown)
    drawing = ROOT / "docs" / "images" / "terminal.svg"
    text = drawing.read_text(encoding="utf-8")
    assert not re.findall(r"@import|url\((?!#)|href=\"(?!#)", text)
    shown_text = "".join(ET.fromstring(text).itertext()).replace("\N{NO-BREAK SPACE}", " ")  # noqa: S314 (our own)
    assert "I will remember this: Name: Ada" in shown_text


# ---- commands -------------------------------------------------------------------------------------------------------


def lines_of_code(text: str) -> Iterator[str]:
    """What stands in code, inline or in a block of shell, without prompts and comments."""
    for body in fences(text, *_SHELLS):
        for line in body.splitlines():
            yield re.sub(r"\s{2,}#.*", "", line.removeprefix("$ ")).strip()
    yield from (span.strip() for span in _INLINE.findall(without_fences(text)))


def commands_of(text: str, name: str) -> Iterator[str]:
    """Every use of a command, behind a pipe or an `&&` too."""
    for line in lines_of_code(text):
        for part in re.split(r"\s(?:\||&&|>)\s", line):
            if part == name or part.startswith(f"{name} "):
                yield part


TARGETS = sorted({(page, use) for page, text in PAGES.items() for use in commands_of(text, "make")})
COMMANDS = sorted({(page, use) for page, text in PAGES.items() for use in commands_of(text, "ethos")})


@pytest.mark.parametrize(("page", "use"), TARGETS, ids=lambda value: value)
def test_a_target_that_is_named_is_in_the_makefile(page: str, use: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {word for word in use.split()[1:] if "=" not in word}
    assert named <= targets, f"{page}: {use}"


@pytest.mark.parametrize(("page", "use"), COMMANDS, ids=lambda value: value)
def test_a_command_that_is_named_exists_with_its_options(page: str, use: str) -> None:
    """`ethos memory show|log` names two; an option may stand with its value."""
    words = shlex.split(use)[1:]
    group = ETHOS
    while hasattr(group, "commands") and words and not words[0].startswith("-"):
        names = words.pop(0).split("|")
        missing = [name for name in names if name not in group.commands]
        assert not missing, f"{page}: `{use}`: there is no {missing[0]!r}; there are {', '.join(group.commands)}"
        group = group.commands[names[0]]
    options = {option for parameter in group.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in itertools.takewhile(lambda word: word != "--", words):  # behind it stands another program
        if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word):
            assert word.partition("=")[0] in options | {"-h", "--help"}, f"{page}: `{use}`: no option {word}"


def test_every_command_says_what_it_is_for() -> None:
    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, (*words, name))

    commands = list(walk(ETHOS, ()))
    assert len(commands) > 5
    for words in commands:
        shown = CliRunner().invoke(app, [*words, "--help"])
        assert shown.exit_code == 0, words
        assert "Usage: " in shown.output


def test_the_readme_names_the_first_two_commands_first() -> None:
    first = next(fences(PAGES["README.md"], "sh"))
    assert [line.split("#")[0].split() for line in first.splitlines()] == [["make", "run"], ["make", "test"]]


# ---- configurations -------------------------------------------------------------------------------------------------

SNIPPETS = [
    (page, number, body)
    for page in (
        "README.md",
        "docs/quickstart.md",
        "docs/models.md",
        "docs/channels/terminal.md",
        "docs/one-person-many-channels.md",
    )
    for number, body in enumerate(fences(PAGES.get(page, ""), "yaml"))
]


@pytest.mark.parametrize(
    ("page", "body"),
    [(page, body) for page, _, body in SNIPPETS],
    ids=[f"{page}:{number}" for page, number, _ in SNIPPETS],
)
def test_a_configuration_that_is_shown_can_be_used(page: str, body: str, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "anthropic.key").touch(0o600)
    (tmp_path / "secrets" / "anthropic.key").write_text("k")
    path = tmp_path / "config.yaml"
    path.write_text(body, encoding="utf-8")
    loaded = load_config(path, environment=ENVIRONMENT)
    assert not loaded.warnings, page
    assert loaded.config.model in loaded.config.models


def test_the_readme_shows_a_real_model_in_three_lines() -> None:
    snippets = [body for page, _, body in SNIPPETS if page == "README.md"]
    assert snippets
    assert all(body.count("\n") == 3 for body in snippets)


async def test_the_page_about_many_channels_makes_one_person_of_all_its_accounts(tmp_path: Path) -> None:
    """Its map can be read, and has the accounts that its configuration lets in, under the keys of their kinds."""
    page = PAGES["docs/one-person-many-channels.md"]
    [shown] = fences(page, "json")
    (tmp_path / "identity-map.json").write_text(shown, encoding="utf-8")
    [person] = await IdentityMap(tmp_path / "identity-map.json").users()
    [body] = fences(page, "yaml")
    (tmp_path / "config.yaml").write_text(body, encoding="utf-8")
    channels = load_config(tmp_path / "config.yaml", environment=ENVIRONMENT).config.channels
    let_in = {f"{channel.kind}:{account}" for channel in channels.values() for account in channel.allow}
    assert {account.key for account in person.accounts} == let_in | {"local:operator"}
    assert {channel.kind for channel in channels.values()} >= {"telegram", "slack", "discord", "email"}


# ---- numbers --------------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_readme_are_between_their_marks_and_name_programs_that_exist() -> None:
    readme = PAGES["README.md"]
    table = readme.partition("<!-- numbers:start -->")[2].partition("<!-- numbers:end -->")[0]
    programs = set(re.findall(r"python -m benchmarks\.(\w+)", table))
    assert programs
    for program in programs:
        assert (ROOT / "benchmarks" / f"{program}.py").exists() or (ROOT / "benchmarks" / program).is_dir(), program
