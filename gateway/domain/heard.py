"""What was heard of a recording, or why nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_BYTES = 25 << 20
"""Of a recording that is listened to."""
TOO_LARGE = f"it is larger than {MAX_BYTES >> 20} MB, which is the most that I listen to"
SHORT_CHARS = 200
"""So much is repeated at the beginning of the answer; more only where it is unsure."""
UNSURE_CHARS = 1_000
"""So much is repeated then: enough to see that it was misunderstood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One recording.

    Attributes:
        text: the words; empty where there are none, and then `fault` says why, for people and the model.
        seconds: as long it is, as its bytes say; 0 where that is not known.
        is_unsure: the service was not sure of the words.
        kept: a word on where the recording is in the workspace, for the model.
        is_passing: nothing was heard or paid for, and another time it may be.
    """

    text: str = ""
    seconds: float = 0.0
    is_unsure: bool = False
    fault: str = ""
    kept: str = ""
    is_passing: bool = False

    @property
    def for_model(self) -> str:
        """What stands in front of the words in the question; or in place of them."""
        length = f"{self.seconds:.0f} s" if self.seconds else ""
        words = [length, "not heard well" if self.is_unsure else "", self.fault, self.kept]
        return f"[voice note: {'; '.join(filter(None, words))}]"


def said_in(heard: Sequence[Heard]) -> str:
    """All words that were heard."""
    return "\n".join(one.text for one in heard if one.text)


def before_answer(heard: Sequence[Heard]) -> str:
    """What the answer begins with: what was heard, where that is short or unsure, and what could not be heard."""
    lines = []
    for one in heard:
        words = " ".join(one.text.split())
        if one.fault:
            lines.append(f"_Your voice note: {one.fault}._")
        elif one.is_unsure:
            words = words if len(words) <= UNSURE_CHARS else f"{words[:UNSURE_CHARS].rstrip()} …"
            lines.append(f"_I heard, and am not sure of it: {_quoted(words)}_")
        elif len(words) <= SHORT_CHARS:
            lines.append(f"_I heard: {_quoted(words)}_")
    return "\n".join(lines) + "\n\n" if lines else ""


def _quoted(words: str) -> str:
    """Nothing in it is markup: it stands within a line of it."""
    marks = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>~|"})
    return f"“{words.translate(marks)}”"
