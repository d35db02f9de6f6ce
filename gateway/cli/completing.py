"""The names that Tab offers in a shell: read from files alone, without the gateway and without its libraries.

Only plain names are offered: what is offered passes through the shell, and names of people are the words of others.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.errors import ConfigError
from gateway.files.home import data_directory

_PLAIN = re.compile(r"[\w@.+-]{1,100}")
_LABEL = re.compile(r"[\w .@-]{1,60}")

# The file is loaded at the first Tab, which is to be answered, too (zshmisc(1), `zsh_eval_context`).
_AT_FIRST_TAB = '\n[[ $zsh_eval_context[-1] == loadautofunc ]] && %(complete_func)s "$@"\n'


def answer_first_tab_in_zsh() -> None:
    """Have the script for zsh answer the Tab that loads it: typer's own does not (0.29, 2026-11)."""
    from typer import _completion_shared

    scripts: dict[str, str] = getattr(_completion_shared, "_completion_scripts", {})
    if "zsh" in scripts:
        scripts["zsh"] += _AT_FIRST_TAB


def channels(incomplete: str) -> list[str]:
    """Those of the configuration."""
    return _keys("channels", incomplete=incomplete)


def models(incomplete: str) -> list[str]:
    """Those of the configuration."""
    return _keys("models", incomplete=incomplete)


def hooks(incomplete: str) -> list[str]:
    """Those of the configuration."""
    return _keys("hooks", incomplete=incomplete)


def servers(incomplete: str) -> list[str]:
    """The servers of tools that the configuration has."""
    return _keys("mcp", "servers", incomplete=incomplete)


def personalities(incomplete: str) -> list[str]:
    """Those that are built in, and those of the data directory."""
    built_in = Path(__file__).parents[1] / "domain" / "personalities" / "built_in"
    places = [built_in] if (home := _home()) is None else [built_in, home / "personalities"]
    return sorted({name for place in places for name in _directories(place) if name.startswith(incomplete)})


def people(incomplete: str) -> list[tuple[str, str]]:
    """User ids of the identity map, each with the name of the person where that is a plain one."""
    return sorted(one for one in _people() if one[0].startswith(incomplete))


def _people() -> Iterator[tuple[str, str]]:
    text = _text("users/identity-map.json")
    document: Any = {}
    with contextlib.suppress(ValueError):  # somebody is editing it; `ethos doctor` says what is wrong
        document = json.loads(text or "{}")
    identities = document.get("identities") if isinstance(document, dict) else None
    named: dict[str, str] = {}
    for account in identities.values() if isinstance(identities, dict) else ():
        if isinstance(account, dict) and _PLAIN.fullmatch(user_id := str(account.get("userId"))):
            label = str(account.get("label", ""))
            named[user_id] = named.get(user_id) or (label if _LABEL.fullmatch(label) else "")
    yield from named.items()


def _keys(*path: str, incomplete: str) -> list[str]:
    """The plain keys of a section of config.yaml."""
    import yaml  # 0.03 s, which other commands need not wait for

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    section: Any = None
    with contextlib.suppress(yaml.YAMLError):  # as of the identity map; `ethos config check` says what is wrong
        section = yaml.load(_text("config.yaml") or "", Loader=loader)  # noqa: S506 (both make plain values only)
    for name in path:
        section = section.get(name) if isinstance(section, dict) else None
    names = map(str, section) if isinstance(section, dict) else ()
    return [name for name in names if _PLAIN.fullmatch(name) and name.startswith(incomplete)]


def _directories(place: Path) -> list[str]:
    try:
        return [path.name for path in place.iterdir() if path.is_dir() and path.name[0] not in "._"]
    except OSError:
        return []


def _text(name: str) -> str | None:
    """A file of the data directory; None where it is not ours to read."""
    home = _home()
    try:
        return None if home is None else (home / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _home() -> Path | None:
    try:
        return data_directory()
    except ConfigError:  # no command works then, and each says why
        return None
