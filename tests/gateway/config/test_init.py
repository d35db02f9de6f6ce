"""`ethos init`: what it writes loads, and what was there is never lost."""

import asyncio
import io
import stat
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.init import Answers, render_config, run_init
from gateway.config import machine_zone
from gateway.config.file import check, load_config
from gateway.errors import ConfigError, FileError
from tests.model_formats import Failure
from tests.model_server import ModelServer


class Terminal(io.StringIO):
    """Lines that somebody types."""

    def isatty(self) -> bool:
        return True


def typed(*lines: str) -> Terminal:
    return Terminal("".join(f"{line}\n" for line in lines))


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's clock; it names no zone before a test says which."""
    path = tmp_path / "localtime"
    monkeypatch.setattr(machine_zone, "CLOCK", path)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_enter_throughout_writes_a_private_directory_and_a_file_that_loads(tmp_path: Path) -> None:
    home, screen = tmp_path / "deep" / "home", console()
    path = run_init(home, stdin=typed("", "", ""), console=screen, environment={})
    loaded = load_config(path, environment={})
    assert loaded.config == load_config(home=tmp_path / "empty").config
    assert loaded.warnings == ()
    assert mode(path) == 0o600
    assert {mode(path) for path in (home, home / "users", home / "personalities")} == {0o700}
    assert shown(screen).endswith(
        f"Written: {path}\n\nNext:\n  ethos serve    the gateway, the page at http://127.0.0.1:8420/\n"
        "  ethos chat     in another terminal\n"
    )


@pytest.mark.parametrize("stdin", [io.StringIO("2\n"), typed()], ids=["no terminal", "a terminal"])
def test_without_a_terminal_or_when_told_so_nothing_is_asked(stdin: io.StringIO, tmp_path: Path) -> None:
    screen = console()
    path = run_init(tmp_path, yes=stdin.isatty(), stdin=stdin, console=screen)
    assert load_config(path).config.model == "offline"
    assert "?" not in shown(screen)


@pytest.mark.parametrize(
    ("target", "zone"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("/var/db/timezone/zoneinfo/America/Argentina/Ushuaia", "America/Argentina/Ushuaia"),
        ("/usr/share/zoneinfo/Etc/UTC", "UTC"),
        ("/usr/share/zoneinfo/Mars/Olympus", "UTC"),
        ("/somewhere/else", "UTC"),
    ],
)
def test_the_time_zone_of_the_machine_is_written_down(tmp_path: Path, clock: Path, target: str, zone: str) -> None:
    clock.symlink_to(target)
    path = run_init(tmp_path / "home", yes=True, stdin=typed(), console=console(), environment={})
    assert load_config(path, environment={}).config.time_zone == zone


def test_a_local_server_needs_no_key(tmp_path: Path) -> None:
    answers = typed("2", "http://127.0.0.1:11434/v1", "", "qwen3:8b", "", "engineer", "0")
    config = load_config(run_init(tmp_path, tries=False, stdin=answers, console=console())).config
    assert (config.model, config.models["main"].model, config.models["main"].api_key) == ("main", "qwen3:8b", None)
    assert config.models["main"].base_url == "http://127.0.0.1:11434/v1"
    assert (config.personality, config.web.port, config.channels) == ("engineer", 0, {})


@pytest.mark.parametrize("path", ["", "/", "/v1"])
async def test_the_models_of_a_server_are_listed_below_v1_and_the_chosen_one_is_asked(
    path: str, tmp_path: Path
) -> None:
    screen = console()
    async with ModelServer() as server:
        answers = typed("2", server.url + path, "2", "", "", "")
        written = await asyncio.to_thread(run_init, tmp_path, stdin=answers, console=screen)
    model = load_config(written).config.models["main"]
    assert (model.base_url, model.model) == (server.openai_url, "echo-2")
    assert "  1  echo-1\n  2  echo-2\n" in shown(screen)
    assert ("The address is taken as" in shown(screen)) == (path != "/v1")
    assert "s: You said: Say hello in one word." in shown(screen)
    assert [one.body["model"] for one in server.requests] == ["echo-2"]


async def test_a_model_that_does_not_answer_is_told_and_asked_for_again(tmp_path: Path) -> None:
    screen = console()
    async with ModelServer() as server:
        server.script([Failure(status=401), Failure(status=404)])
        url = server.openai_url
        again = ("1", url, "echo-1", "2", "second")
        answers = typed("2", url, "1", "2", "canary", *again, "2", "", "")
        written = await asyncio.to_thread(run_init, tmp_path, stdin=answers, console=screen)
    assert "It did not answer. main (echo-1): the API key was refused (HTTP 401)" in shown(screen)
    assert "It did not answer. main: there is no model 'echo-1'" in shown(screen)
    assert [one.headers["authorization"] for one in server.requests] == ["Bearer canary", "Bearer second"]
    assert load_config(written).config.models["main"].model == "echo-1"
    assert "canary" not in shown(screen)


async def test_a_server_that_is_not_there_can_be_kept(tmp_path: Path) -> None:
    async with ModelServer() as server:
        url = server.url
    answers, screen = typed("2", url, "any", "", "2", "", ""), console()
    written = await asyncio.to_thread(run_init, tmp_path, stdin=answers, console=screen)
    assert load_config(written).config.models["main"].base_url == f"{url}/v1"
    assert "The server does not list its models." in shown(screen)
    assert "It did not answer. main (any): the connection to" in shown(screen)


def test_a_key_in_a_variable_is_referred_to_and_the_next_step_says_to_set_it(tmp_path: Path) -> None:
    screen = console()
    path = run_init(tmp_path, stdin=typed("3", "", "1", "MY_KEY", "", ""), console=screen, environment={})
    model = load_config(path, environment={"MY_KEY": "canary"}).config.models["main"]
    assert model.api_key is not None
    assert (model.provider, model.api_key.get_secret_value()) == ("anthropic", "canary")
    assert "  export MY_KEY=…\n" in shown(screen)
    assert check(path, environment={}).problems == (
        (
            "config.yaml:12:14: models.main.api_key: the environment variable MY_KEY is not set; expected "
            "`export MY_KEY=…` before start"
        ),
    )


def test_a_key_that_is_typed_goes_into_a_private_file_and_is_shown_nowhere(tmp_path: Path) -> None:
    screen = console()
    path = run_init(tmp_path, tries=False, stdin=typed("2", "", "", "2", "canary", "", ""), console=screen)
    loaded = load_config(path)
    key = loaded.config.models["main"].api_key
    assert key is not None
    assert key.get_secret_value() == "canary"
    assert loaded.warnings == ()
    assert mode(tmp_path / "secrets") == 0o700
    assert mode(tmp_path / "secrets" / "openai.key") == 0o600
    assert "canary" not in path.read_text() + shown(screen)


def test_an_answer_that_cannot_be_used_is_asked_for_again(tmp_path: Path) -> None:
    screen = console()
    answers = typed(
        "7", "2", "ftp://x", "", "", "1", "sk-canary", "OPENAI_API_KEY", "enginer", "engineer", "99999", "80"
    )
    path = run_init(tmp_path, stdin=answers, console=screen, environment={})
    config = load_config(path, environment={"OPENAI_API_KEY": "k"}).config
    assert (config.personality, config.web.port) == ("engineer", 80)
    for words in (
        "a number from 1 to 3, please",
        "not a web address",
        "and not the key itself",
        "there is none of that id (did you mean `engineer`?)",
        "a number from 0 to 65535, please",
    ):
        assert words in shown(screen)


def test_a_configuration_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("web: {port: 1}\n")
    with pytest.raises(ConfigError, match="there already; nothing was changed"):
        run_init(tmp_path, yes=True, console=console())
    assert path.read_text() == "web: {port: 1}\n"


def test_force_keeps_a_copy_of_every_configuration_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text in ("# first\n", "# second\n"):
        path.write_text(text)
        run_init(tmp_path, force=True, yes=True, console=console())
    assert (tmp_path / "config.yaml.old").read_text() == "# first\n"
    assert (tmp_path / "config.yaml.old-2").read_text() == "# second\n"
    assert mode(tmp_path / "config.yaml.old") == 0o600
    assert load_config(path).config.model == "offline"


def test_giving_up_half_way_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing was written"):
        run_init(tmp_path / "home", stdin=typed("2", "", ""), console=console())
    assert not (tmp_path / "home").exists()


def test_a_file_in_place_of_the_data_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(FileError, match="home"):
        run_init(tmp_path / "home", yes=True, console=console())


@pytest.mark.parametrize("name", ['A "quoted" \\ name', "${HOME}", "Ада 🦉", "a: b # c", "'", "- x"])
def test_any_name_survives_the_way_through_the_file(name: str, tmp_path: Path) -> None:
    answers = Answers(provider="openai", model=name, base_url="http://127.0.0.1:11434/v1")
    (tmp_path / "config.yaml").write_text(render_config(answers))
    assert load_config(tmp_path / "config.yaml").config.models["main"].model == name


def test_the_key_is_not_in_the_repr_of_the_answers() -> None:
    assert "canary" not in repr(Answers(key="canary"))
