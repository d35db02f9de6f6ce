"""Secrets that were typed into a form which comes back: kept here meanwhile, because no page shows a secret again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

FIELD = "kept"
"""Of a form, with the name under which its secret is kept."""
KEPT_S = 3600.0
MOST = 32


class TypedSecrets:
    """In memory only, for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, str]] = {}

    def keep(self, secret: str) -> str:
        """A name for it, which nobody can guess; of too many, the oldest is forgotten."""
        now = self._clock()
        self._kept = {name: one for name, one in self._kept.items() if one[0] > now}
        while len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        name = secrets.token_urlsafe(16)
        self._kept[name] = now + KEPT_S, secret
        return name

    def find(self, name: str) -> str:
        """The secret of that name; empty where there is none any more."""
        until, secret = self._kept.get(name, (0.0, ""))
        return secret if until > self._clock() else ""
