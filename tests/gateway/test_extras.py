"""The command that installs a missing library names libraries, and not a distribution that anybody could publish."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import NoReturn

import pytest

from gateway.runtime import extras
from gateway.runtime.extras import how_to_install

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CHANNELS = {"discord", "email", "slack", "telegram", "webhook"}


def libraries(extra: str) -> set[str]:
    """The names that `pyproject.toml` has for an extra, and for those that it is made of."""
    found = set()
    for requirement in EXTRAS[extra]:
        if inner := re.fullmatch(r"ethos-gateway\[(.*)\]", requirement):
            found |= set().union(*map(libraries, inner[1].split(",")))
        else:
            found.add(_name(requirement))
    return found


def _name(requirement: str) -> str:
    """As package indexes compare it."""
    return re.split(r"[<>\[]", requirement)[0].replace(".", "-")


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_is_installed_by_the_names_of_its_libraries(extra: str) -> None:
    python, *command = shlex.split(how_to_install(extra).strip("`"))
    assert (python, command[:3]) == (sys.executable, ["-m", "pip", "install"])
    assert set(map(_name, command[3:])) == libraries(extra)


def test_two_extras_are_the_sums_of_others_and_stand_for_every_channel_and_for_everything() -> None:
    kinds = {path.parent.name for path in (Path(__file__).parents[2] / "adapters").glob("*/__init__.py")}
    assert kinds == CHANNELS
    assert libraries("channels") == set().union(*map(libraries, CHANNELS))
    assert libraries("all") == set().union(*map(libraries, set(EXTRAS) - {"all", "channels", "testing"}))


def test_what_pipx_has_installed_gets_libraries_by_pipx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place := tmp_path / "ethos-gateway").mkdir()
    (place / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(place))
    assert how_to_install("webhook") == "`pipx inject ethos-gateway 'httpx>=0.28'`"


RECEIPT = """
[tool]
requirements = [
    {{ name = "ethos-gateway", extras = ["redis"], {place} }},
    {{ name = "owlpost", specifier = ">=2" }},
]
"""


@pytest.mark.parametrize(("key", "option"), [("path", ""), ("directory", ""), ("editable", "--editable ")])
def test_what_uv_has_installed_is_installed_once_more_with_all_that_it_had(
    key: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "uv-receipt.toml").write_text(RECEIPT.format(place=f'{key} = "{tmp_path}"'))
    again = f"uv tool install {option}'{tmp_path}[redis{{}}]' --with 'owlpost>=2'"
    assert how_to_install("web") == f"`{again.format(',web')}`"
    assert how_to_install("owl", "owlery") == f"`{again.format('')} --with owlery`"


def test_what_uv_has_installed_from_a_file_that_is_gone_gets_its_libraries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "uv-receipt.toml").write_text(RECEIPT.format(place='path = "/nowhere/ethos.whl"'))
    assert how_to_install("webhook") == f"`uv pip install --python {sys.executable} 'httpx>=0.28'`"


def test_what_is_no_extra_of_ours_is_installed_by_the_name_of_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert how_to_install("owl", "owlpost").endswith("pip install owlpost`")

    def unknown(_name: str) -> NoReturn:
        raise PackageNotFoundError

    monkeypatch.setattr(extras.metadata, "requires", unknown)
    assert how_to_install("telegram", "telegram").endswith("pip install telegram`")
