"""The stems of words as FTS5's `porter` makes them, so that PostgreSQL finds the same traces as SQLite.

M. F. Porter, An algorithm for suffix stripping (1980), with the two departures of SQLite's ext/fts5/fts5_tokenize.c:
words of less than 3 or more than 64 bytes stay as they are, and a letter beyond ASCII counts as consonants. The library
of the field, snowballstemmer, has other stems for words such as "assembly", "apologies" and "is".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_SHORTEST, _LONGEST = 3, 64
_VOWEL_RUN = re.compile("[aeiou]+|(?<=[^aeiou])y[aeiouy]*")

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"),
    ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
    ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate", "iti", "ous",
    "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The stem of a word of `words_of`."""
    data = word.encode()
    if not _SHORTEST <= len(data) <= _LONGEST:
        return word
    return _stemmed(data.decode("latin-1")).encode("latin-1").decode(errors="ignore")


def _stemmed(word: str) -> str:
    word = _step_1b(_step_1a(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    word = _step_4(word)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _step_1a(word: str) -> str:
    if any(word.endswith(each) and len(word) > len(each) for each in ("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _step_1b(word: str) -> str:
    if word.endswith("eed") and word != "eed":
        return word[:-1] if _measure(word[:-3]) > 0 else word
    ending = next((each for each in ("ed", "ing") if word.endswith(each)), None)
    if ending is None or not _has_vowel(word[: -len(ending)]):
        return word
    word = word[: -len(ending)]
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and word[-1] not in "aeioulsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _step_4(word: str) -> str:
    ending = max((each for each in (*_STEP_4, "ion") if word.endswith(each)), key=len, default="")
    rest = word[: len(word) - len(ending)]
    if not ending or _measure(rest) <= 1 or (ending == "ion" and not rest.endswith(("s", "t"))):
        return word
    return rest


def _replaced(word: str, endings: Sequence[tuple[str, str]]) -> str:
    """With another ending, where what is before it has a measure above 0; the longest ending that fits counts."""
    fitting = [each for each in endings if word.endswith(each[0])]
    if not fitting:
        return word
    ending, other = max(fitting, key=lambda each: len(each[0]))
    rest = word[: -len(ending)]
    return rest + other if _measure(rest) > 0 else word


def _has_vowel(word: str) -> bool:
    return _VOWEL_RUN.search(word) is not None


def _measure(word: str) -> int:
    """How many times vowels are followed by consonants."""
    runs = [*_VOWEL_RUN.finditer(word)]
    return len(runs) - (bool(runs) and runs[-1].end() == len(word))


def _ends_short(word: str) -> bool:
    """Whether it ends with consonant, vowel, consonant, and the last is not w, x or y."""
    if len(word) < 3 or word[-1] in "wxy":
        return False
    return _marks(word).endswith("cvc")


def _marks(word: str) -> str:
    marks = ""
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and marks.endswith("c"))
        marks += "v" if is_vowel else "c"
    return marks
