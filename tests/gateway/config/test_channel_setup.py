"""The steps that a package of a third party brings, and the keys of its model, as forms ask for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from gateway.config.channel_keys import ChannelKey, is_reference, keys_of, secret_names
from gateway.config.channel_kinds import setup_of
from gateway.errors import ConfigError
from gateway.runtime.extras import is_installed

GOOD = "title: Telex\nsummary: A line.\nkeys: [token]\nsteps:\n  - {title: Order, text: Order a line.}\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a package that cannot be loaded, with these files in `setup/`; gives its kind."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, **files: str) -> str:
        folder = tmp_path / name / "telex" / "setup"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "telex" / "__init__.py").write_text("import a_library_that_is_missing\n")
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(text)
        return f"{name}.telex"

    return make


def test_the_steps_are_read_without_loading_the_package(package: Callable[..., str]) -> None:
    found = setup_of(package("acme_one", setup_yaml=GOOD))
    assert found is not None
    assert (found.content.title, found.content.steps[0].title) == ("Telex", "Order")
    with pytest.raises(KeyError):
        found.picture("../__init__.py")


def test_a_package_without_steps_and_one_that_is_not_there_have_none(package: Callable[..., str]) -> None:
    assert setup_of(package("acme_two")) is None
    assert setup_of("acme_nowhere.telex") is None
    assert setup_of("https://not.a/kind") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title: [", "expected"),
        ("title: Telex\nsummary: x\ncolour: red\n", "colour: Extra inputs"),
        (GOOD + "  - {title: Look, text: x, picture: ../../config.yaml}\n", "steps.1.picture"),
        (GOOD + "  - {title: Look, text: x, picture: lines.svg}\n", "there is no lines.svg beside it"),
    ],
    ids=["no YAML", "unknown key", "a path", "no such picture"],
)
def test_what_is_wrong_with_the_steps_is_said(package: Callable[..., str], text: str, said: str) -> None:
    name = f"acme_{abs(hash(text))}"
    with pytest.raises(ConfigError, match=said):
        setup_of(package(name, setup_yaml=text))


class Login(BaseModel):
    client: str = Field(description="of the client")
    secret: SecretStr | None = None


class Config(BaseModel):
    host: Annotated[str, Field(min_length=1)]
    port: int | None = 7001
    token: SecretStr
    login: Login | None = None
    mode: Literal["a", "b"] = "a"
    lines: tuple[str, ...] = ()
    is_loud: bool = False


def keys(*common: str) -> dict[str, ChannelKey]:
    return {key.name: key for key in keys_of(Config, common)}


def test_keys_have_types_and_sections_and_the_common_ones_are_first() -> None:
    found = keys("token")
    assert next(iter(found)) == "token"
    assert {name: key.type for name, key in found.items()} == {
        "token": "secret", "host": "text", "port": "number", "login.client": "text", "login.secret": "secret",
        "mode": "choice", "lines": "list", "is_loud": "switch",
    }  # fmt: skip
    assert {name for name, key in found.items() if key.is_required} == {"token", "host"}, "a section may be left out"
    assert found["mode"].choices == ("a", "b")
    assert secret_names(list(found.values())) == {"token", "login.secret"}


@pytest.mark.parametrize(
    ("value", "is_one"),
    [("${TOKEN}", True), ({"file": "x"}, True), ({"keyring": "x"}, True), ("plain", False), ({"a": 1}, False)],
)
def test_a_reference_to_a_secret_is_none_itself(value: Any, is_one: bool) -> None:
    assert is_reference(value) == is_one


def test_what_is_missing_is_known_without_loading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["slack-sdk<4,>=3.47 ; extra == 'slack'", "no-such-library[x]>=1 ; extra == 'telex'"]
    monkeypatch.setattr("gateway.runtime.extras.metadata.requires", lambda _name: declared)
    assert is_installed("slack")
    assert not is_installed("telex")
