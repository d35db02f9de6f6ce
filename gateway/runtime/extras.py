"""What to install where a library is missing: the libraries themselves, by the name that this Python knows them by.

The name of our own distribution is not used: it is in no package index, and a stranger could put something there.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib import metadata

DISTRIBUTION = "ethos-gateway"
_REQUIREMENT = re.compile(r"(?P<what>[^;]+?)\s*;\s*.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def is_installed(extra: str) -> bool:
    """Whether every library of an extra is installed, in whatever version; looks at metadata only, and loads none."""
    wanted = [re.split(r"[ \[<>=!~(]", what, maxsplit=1)[0] for what in _declared(extra)]
    try:
        return all(metadata.version(name) for name in wanted)
    except metadata.PackageNotFoundError:
        return False


def how_to_install(extra: str, missing: str = "") -> str:
    """A command for a shell that installs what an extra needs, as a code span.

    Args:
        missing: the module that could not be imported; said where the extra is not one of ours.
    """
    found = _declared(extra)
    return f"`{shlex.join([sys.executable, '-m', 'pip', 'install', *(found or [missing or extra])])}`"


def _declared(extra: str) -> list[str]:
    """The requirements of an extra."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        declared = []
    return [match["what"] for one in declared if (match := _REQUIREMENT.fullmatch(one)) and match["extra"] == extra]
