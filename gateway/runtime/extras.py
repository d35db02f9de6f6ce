"""What to install where a library is missing: the libraries themselves, by the name that this Python knows them by.

The name of our own distribution is in no package index, and a stranger could put something there. So it is used only
where a tool knows an installation by it, and never looked up.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTION = "ethos-gateway"
_UV_RECEIPT = "uv-receipt.toml"  # https://docs.astral.sh/uv/concepts/tools/ (2026-11)
_PIPX_RECORD = "pipx_metadata.json"  # https://pipx.pypa.io/stable/explanation/how-pipx-works/ (2026-11)


def is_installed(extra: str) -> bool:
    """Whether every library of an extra is installed, in whatever version; looks at metadata only, and loads none."""
    from packaging.requirements import Requirement  # noqa: PLC0415 (as below)

    try:
        return all(metadata.version(Requirement(one).name) for one in libraries(extra))
    except metadata.PackageNotFoundError:
        return False


def how_to_install(extra: str, missing: str = "") -> str:
    """A command for a shell that installs what an extra needs, as a code span.

    It fits the way in which the gateway was installed: with pip, pipx or `uv tool`.

    Args:
        missing: the module that could not be imported; said where the extra is not one of ours.
    """
    try:
        found = list(dict.fromkeys(libraries(extra)))
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        found = []
    place = Path(sys.prefix)
    command = [sys.executable, "-m", "pip", "install"]
    if (place / _PIPX_RECORD).is_file():
        command = ["pipx", "inject", place.name]
    elif (place / _UV_RECEIPT).is_file():
        again = _uv_tool_again(place / _UV_RECEIPT, extra if found else None, missing or extra)
        if again is not None:
            return f"`{shlex.join(again)}`"
        command = ["uv", "pip", "install", "--python", sys.executable]
    return f"`{shlex.join([*command, *(found or [missing or extra])])}`"


def libraries(extra: str) -> Iterator[str]:
    """What an extra asks for, as pip takes it; of an extra that is made of others, what these ask for.

    Raises:
        PackageNotFoundError: we were never installed here.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415 (0.04 s; most processes lack nothing)

    for declared in metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(declared)
        marker, requirement.marker = requirement.marker, None
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        if requirement.name != DISTRIBUTION:
            yield str(requirement)
        for inner in sorted(requirement.extras) if requirement.name == DISTRIBUTION else ():
            yield from libraries(inner)


def _uv_tool_again(receipt: Path, extra: str | None, missing: str) -> list[str] | None:
    """The command that made this tool, with one thing more: it forgets whatever it is not told once more.

    None where what we were installed from, a wheel or a directory, is not there any more.
    """
    asked: list[dict[str, Any]] = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
    [ours] = [one for one in asked if one["name"] == DISTRIBUTION]
    source = _local(ours)
    if source is None or not Path(source).exists():
        return None
    extras = sorted({*ours.get("extras", ()), *([] if extra is None else [extra])})
    words = [_asked(one) for one in asked if one["name"] != DISTRIBUTION] + ([missing] if extra is None else [])
    return [
        *("uv", "tool", "install"),
        *(["--editable"] if "editable" in ours else []),
        source + (f"[{','.join(extras)}]" if extras else ""),
        *(word for one in words for word in ("--with", one)),
    ]


def _local(requirement: Mapping[str, Any]) -> str | None:
    """The file or directory of one requirement of a receipt."""
    found = (requirement.get(key) for key in ("path", "directory", "editable"))
    return next((str(place) for place in found if place is not None), None)


def _asked(requirement: Mapping[str, Any]) -> str:
    """One requirement of a receipt, as the command takes it."""
    extras = ",".join(requirement.get("extras", ()))
    named = requirement["name"] + (f"[{extras}]" if extras else "") + requirement.get("specifier", "")
    return _local(requirement) or named
