"""How a trace fades, and how it grows when it is used. Pure formulas; times in milliseconds.

S(t) = S0 * exp(-t / stability) is Ebbinghaus's curve of forgetting (Über das Gedächtnis, 1885). That a fact which was
nearly forgotten gains most by being recalled is the spacing effect (Bjork and Bjork, A New Theory of Disuse, 1992).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from gateway.traces.trace import DAY_MS

USE_GAIN = 0.1
DOUBTED_FACTOR = 0.9
DOUBTED_AT_MOST_EVERY = timedelta(days=1)
SHORTEST_STABILITY_MS = 7.0 * DAY_MS
"""Nothing that a conversation says about a trace makes it fade faster than this."""
CONTRADICTED_SHARE = 0.5
SIMILAR = 0.7
_OLD_LOSES = 0.15
_NEW_LOSES = 0.1
_NEW_LOSES_AT_MOST = 0.3
QUOTED_SHARE = 0.3
PRUNED_BELOW = 0.05
"""A consolidation hides what has faded so far."""
_LONG_WORD_CHARS = 4
# exp() is a function of ours: not every SQLite has it. PostgreSQL's raises an error where the result is nearly 0.
LEFT = """
    (strength * CASE WHEN last_accessed_at >= :now THEN 1.0 WHEN :now - last_accessed_at > 700 * stability_ms THEN 0.0
        ELSE exp((last_accessed_at - :now) / stability_ms) END)
"""
"""What `current` says, in SQL about a row of `traces`; `:now` is in milliseconds since 1970."""


def current(strength: float, stability_ms: float, last_accessed_at: datetime, now: datetime) -> float:
    """The strength that is left at `now`; never above 1, and a clock that went back changes nothing."""
    elapsed_ms = max(0.0, (now - last_accessed_at).total_seconds() * 1000)
    return min(1.0, strength * math.exp(-elapsed_ms / stability_ms))


def after_use(strength: float, stability_ms: float, uses: int, intensity: float = 0.0) -> tuple[float, float]:
    """Strength and stability after a use; `strength` is the current one, `uses` the number before this one.

    After many uses the gain is none. It is never a loss: what is used daily must not fade sooner for that.
    """
    spacing = 1.5 + 2 * max(0.1, 1 - strength)
    stability_ms *= max(1.0, spacing / (1 + 0.1 * uses) * (1 + 0.3 * intensity))
    return min(1.0, strength + USE_GAIN), max(stability_ms, SHORTEST_STABILITY_MS)


def after_doubt(strength: float, stability_ms: float) -> tuple[float, float]:
    """Strength and stability after the person contradicted the trace, or called it wrong."""
    return DOUBTED_FACTOR * strength, max(stability_ms / 2, SHORTEST_STABILITY_MS)


def interference(strengths: Sequence[tuple[float, float]]) -> tuple[list[float], float]:
    """What similar traces do to each other when a new one is made.

    Args:
        strengths: of each existing trace its similarity to the new one, and its current strength.

    Returns:
        What each existing one loses, and what the new one loses, as amounts to be taken off.
    """
    olds, new = [], 0.0
    for similarity, strength in strengths:
        overlap = max(0.0, (similarity - SIMILAR) / (1 - SIMILAR))
        olds.append(_OLD_LOSES * overlap)
        new += _NEW_LOSES * overlap * strength
    return olds, min(_NEW_LOSES_AT_MOST, new)


def is_quoted(content_words: Sequence[str], answer_words: Sequence[str]) -> bool:
    """Whether an answer used a trace: more than 30 % of the trace's words of over four letters occur in it.

    A trace without such words (`I like tea`) is used where the answer holds all its words but the first.
    """
    long_words = {word for word in content_words if len(word) > _LONG_WORD_CHARS}
    if not long_words:
        return len(content_words) > 1 and set(content_words[1:]) <= set(answer_words)
    return len(long_words & set(answer_words)) / len(long_words) > QUOTED_SHARE


def is_contradicted(content_words: Sequence[str], correction_words: Sequence[str]) -> bool:
    """Whether a correction is about a trace: half of the words that say something in the shorter text are in both."""
    content, correction = set(content_words), set(correction_words)
    least = min(len(content), len(correction))
    return least > 0 and content != correction and len(content & correction) / least >= CONTRADICTED_SHARE
