"""What a service of speech is given, and gives; a package of another author imports this and `gateway/errors.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording; name and type were made of its bytes.

    Attributes:
        seconds: what was counted in its bytes.
    """

    data: bytes
    filename: str
    media_type: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The words of a recording; empty for silence.

    Attributes:
        is_unsure: they may be wrong.
        seconds: that the service charges for, where it says so.
    """

    text: str
    is_unsure: bool = False
    seconds: float | None = None


Listen = Callable[[Recording], Awaitable[Transcript]]
"""Hears a recording; raises ModelUnavailable, ModelRefused, or TimeoutError where the time is over."""
Speak = Callable[[str], Awaitable[bytes]]
"""Says a text, in any format; best is Opus in Ogg. Raises as `Listen`."""
