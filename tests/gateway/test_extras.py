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


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_every_extra_is_installed_by_the_names_of_its_libraries(extra: str) -> None:
    python, *command = shlex.split(how_to_install(extra).strip("`"))
    assert (python, command[:3]) == (sys.executable, ["-m", "pip", "install"])
    assert set(map(_name, command[3:])) == set(map(_name, PROJECT["optional-dependencies"][extra]))


def _name(requirement: str) -> str:
    """As package indexes compare it."""
    return re.split(r"[<>\[]", requirement)[0].replace(".", "-")


def test_what_is_no_extra_of_ours_is_installed_by_the_name_of_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert how_to_install("owl", "owlpost").endswith("pip install owlpost`")

    def unknown(_name: str) -> NoReturn:
        raise PackageNotFoundError

    monkeypatch.setattr(extras.metadata, "requires", unknown)
    assert how_to_install("telegram", "telegram").endswith("pip install telegram`")
