"""A store of many made-up messages, built quickly.

Words with the frequencies of real ones (Zipf), in seven scripts with and without spaces; a thousand people, of whom
some write much more than others.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.store.sqlite.search import register_functions

MESSAGES_OF_SESSION = 40
FIRST_AT_MS = 1_735_689_600_000  # 2025-01-01
MS_BETWEEN = 30_000
PEOPLE = 1_000
# share of messages, characters that words are made of, number of words, whether spaces part them
LANGUAGES = (
    (0.45, "etaoinshrdlcumwfgypbvk", 40_000, True),
    (0.12, "enisratdhulcgmobwfkzüäöß", 50_000, True),
    (0.11, "оеаинтсрвлкмдпуяыьгзбчй", 50_000, True),
    (0.10, "اليمونترسبدفعقهكحجشصخثط", 30_000, True),
    (0.10, "".join(map(chr, range(0x4E00, 0x4E00 + 3_000))), 12_000, False),
    (0.06, "".join(map(chr, (*range(0x3041, 0x3097), *range(0x5000, 0x5800)))), 12_000, False),
    (0.06, "กขคงจชซดตถทนบปผพมยรลวสหอะาิีุูเแโไ่้", 12_000, False),
)


class Language:
    """Words of one script, the most common first, and texts made of them."""

    def __init__(self, letters: str, count: int, *, is_spaced: bool, rng: random.Random) -> None:
        weights = [1 / (i + 2) ** 0.7 for i in range(len(letters))]
        sizes = (1, 2, 2, 2, 2, 3, 4) if not is_spaced else (2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10)
        made = ("".join(rng.choices(letters, weights, k=rng.choice(sizes))) for _ in range(count * 2))
        words = list(dict.fromkeys(made))[:count]
        words[:200] = sorted(words[:200], key=len)  # common words are short
        self.words = words
        self._sums = list(itertools.accumulate(1 / (i + 1) for i in range(len(words))))
        self._joint = " " if is_spaced else ""
        self._rng = rng

    def text(self) -> str:
        """About 25 words, some texts much longer."""
        count = min(400, int(self._rng.lognormvariate(2.9, 0.8)) + 1)
        return self._joint.join(self._rng.choices(self.words, cum_weights=self._sums, k=count))


@dataclass
class Corpus:
    """What was written, as far as the queries need it."""

    languages: Sequence[Language]
    samples: list[tuple[str, str]]
    """(user id, text) of some messages."""


def person(index: int) -> str:
    return f"u_{index:012x}"


def corpus_of(rng: random.Random) -> Corpus:
    """One without a message yet."""
    return Corpus([Language(letters, size, is_spaced=spaced, rng=rng) for _, letters, size, spaced in LANGUAGES], [])


def rows_of(messages: int, of_session: int, corpus: Corpus, rng: random.Random) -> Iterator[tuple[object, ...]]:
    """Sessions of one person and one language each; some people write much more than others."""
    sums = list(itertools.accumulate(1 / (i + 5) for i in range(PEOPLE)))
    shares = list(itertools.accumulate(share for share, *_ in LANGUAGES))
    user, language = "", corpus.languages[0]
    for i in range(messages):
        if i % of_session == 0:
            user = person(rng.choices(range(PEOPLE), cum_weights=sums)[0])
            language = rng.choices(corpus.languages, cum_weights=shares)[0]
        text = language.text()
        if rng.random() * messages < 5_000:
            corpus.samples.append((user, text))
        role = "assistant" if i % 2 else "user"
        at_ms = FIRST_AT_MS + i * MS_BETWEEN
        yield (i + 1, f"s_{i // of_session}", f"t_{i // 2}", role, "assistant", user, text, at_ms)


def fill(
    path: Path, messages: int, corpus: Corpus, rng: random.Random, *, of_session: int = MESSAGES_OF_SESSION
) -> None:
    """Write the tables directly and build the index in one go, which is the same index sooner."""
    database = sqlite3.connect(path, isolation_level=None)
    register_functions(database)
    database.execute("PRAGMA synchronous = OFF")
    database.execute("BEGIN")
    database.executemany(
        "INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        rows_of(messages, of_session, corpus, rng),
    )
    database.execute(
        "INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, title, created_at, updated_at)"
        " SELECT session_id, session_id, user_id, personality_id, 'web', session_id, substr(text, 1, 60),"
        " min(created_at), max(created_at) FROM messages GROUP BY session_id ORDER BY min(id)"
    )
    database.execute("INSERT INTO search (search) VALUES ('rebuild')")
    database.execute("UPDATE search_progress SET until = ?", (messages,))
    database.execute("COMMIT")
    database.close()


def quantiles(times_ms: Sequence[float]) -> tuple[float, float, float]:
    """The median, p95 and p99."""
    cuts = statistics.quantiles(times_ms, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]
