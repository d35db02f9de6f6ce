"""`memory.provider`: which memory is chosen, and what is wrong with the choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.file import load_config
from gateway.config.listing import settings_of
from gateway.errors import ConfigError

SECRET = "canary-7c0ffee"


def load(tmp_path: Path, provider: str) -> Any:
    path = tmp_path / "config.yaml"
    path.write_text(f"memory:\n  provider: {provider}\n")
    path.chmod(0o600)
    return load_config(path, environment={"MEMORY_URL": f"redis://:{SECRET}@127.0.0.1/0"})


@pytest.mark.parametrize("provider", ["", "markdown", "{kind: markdown}"])
def test_the_markdown_files_are_the_default_and_have_names(tmp_path: Path, provider: str) -> None:
    chosen = load(tmp_path, provider).config.memory.provider
    assert (chosen.kind, chosen.erasure) == ("markdown", None)


def test_a_memory_has_settings_of_its_own(tmp_path: Path) -> None:
    chosen = load(tmp_path, "{kind: redis, url: '${MEMORY_URL}', prefix: notes}").config.memory.provider
    assert chosen.kind == "redis"
    assert (chosen.settings.url.get_secret_value(), chosen.settings.prefix) == (
        f"redis://:{SECRET}@127.0.0.1/0",
        "notes",
    )


def test_the_password_in_an_address_is_shown_nowhere(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"{{kind: redis, url: 'redis://:{SECRET}@127.0.0.1/0'}}")
    assert SECRET not in f"{loaded}{loaded.config!r}{settings_of(loaded.config, loaded.sources)}"
    assert [line for line in loaded.warnings if "memory.provider.url: a secret is in the file" in line]


@pytest.mark.parametrize("address", ["redis://127.0.0.1:6379/0", "redis://ada@127.0.0.1/0", "redis://[::1]:6379/0"])
def test_an_address_without_a_password_is_no_secret_in_the_file(tmp_path: Path, address: str) -> None:
    assert load(tmp_path, f"{{kind: redis, url: '{address}'}}").warnings == ()


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ("redis", "2:3: memory.provider.url: missing"),
        ("rediss", "memory.provider.kind: there is no kind 'rediss' (did you mean `redis`?)"),
        ("acme.memory", "memory.provider.kind: there is no package 'acme.memory' here; expected one that is installed"),
        ("{url: 'redis://127.0.0.1'}", "memory.provider.kind: missing; expected one of database"),
        ("{kind: redis, url: '127.0.0.1'}", "2:32: memory.provider.url: not an address with redis://"),
        (f"{{kind: redis, url: '{SECRET}'}}", "memory.provider.url: not an address"),
        ("{kind: redis, url: 'redis://h', prefx: a}", "memory.provider.prefx: unknown key (did you mean `prefix`?)"),
        ("{kind: markdown, path: x}", "memory.provider.path: unknown key"),
        ("{kind: markdown, erasure: never}", "memory.provider.erasure: 'never' is not a choice; expected 'by_hand'"),
        (f"'redis://:{SECRET}@h'", "memory.provider.kind: an address is not the name of a kind; expected one of"),
        ("'${MEMORY_URL}'", "memory.provider.kind: an address is not the name of a kind; expected one of"),
        ("[1]", "memory.provider: a list is not a section"),
        ("{kind: tests.fake_channel}", "tests.fake_channel is no memory; expected `Config` (a pydantic model) and"),
        ("{kind: redis, url: {file: gone}}", "memory.provider.url: "),
        (f"{{kind: webdav, url: 'https://h/f', password: {SECRET}}}", "memory.provider.password: is of no use without"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_key(tmp_path: Path, provider: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, provider)
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)
