"""What a command prints, wherever it runs."""

from __future__ import annotations

import re

_WAITS = re.compile(r"^ethos: waiting for the gateway \(.*\)\n", re.MULTILINE)


def without_waits(errors: str) -> str:
    """Without the lines in which a command says that it waits, as it does after 2 s, on a busy machine."""
    return _WAITS.sub("", errors)
