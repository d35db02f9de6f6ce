"""What a search query means, and where a text matches it: the same in every script, for every store.

Most scripts part their words by spaces. The others are searched character by character: each character is a word of
its own, and several in a row are a phrase, so that a word of one, two or more characters is found wherever it stands.
(Trigrams cannot find words of two characters, which most Chinese words are.)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

# Unicode blocks whose scripts write words without spaces between them; Korean puts particles onto its words, so that
# they are found only syllable by syllable. https://www.unicode.org/Public/UCD/latest/ucd/Blocks.txt
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u1950-\u19df"  # Tai Le, New Tai Lue
    "\u1a20-\u1aaf"  # Tai Tham
    "\u3005-\u3007\u3041-\u30ff"  # iteration marks, Hiragana, Katakana
    "\u3100-\u312f\u31a0-\u31bf\u31f0-\u31ff"  # Bopomofo, Katakana extensions
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\ua000-\ua48f"  # Yi
    "\ua980-\ua9df\uaa60-\uaa7f\uaa80-\uaadf"  # Javanese, Myanmar extended, Tai Viet
    "\uac00-\ud7a3"  # Hangul syllables
    "\uff66-\uff9d"  # half-width Katakana
    "\U0001b000-\U0001b16f"  # Kana supplement and extensions
    "\U00020000-\U0003ffff"  # Han extensions
)
_RUN = re.compile(f"[{_UNSPACED}]+")
SEPARATOR = "\x1f"
# Marks among them, of which no letter has so many: UAX 15 (section 13, Stream-Safe Text Format) allows 30. A pile of
# them is put in order in time that grows with its square, 200 000 in a minute.
_PILE_SIZE = 30
_MARK = r"[^\w\s\x00-\x7f]"
_PILE = re.compile(f"{_MARK}{{{_PILE_SIZE}}}")
_MARKED = re.compile(_MARK)
# Letters, digits, marks (most scripts of India write vowels as such) and private characters.
_IN_WORDS = frozenset(["Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Mn", "Mc", "Co"])

MAX_QUERY_CHARS = 1_000
MAX_TERMS = 32
SNIPPET_CHARS = 160
_LEAD_CHARS = 40
_EDGE_CHARS = 15
# Texts are weighed by their beginning; a longer one is searched to its end only for its snippet.
WEIGHED_CHARS = 20_000
_TERM = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Term:
    """A word, or several that must stand together.

    Attributes:
        text: as `words_of` gives it, with one space between words.
        is_prefix: the last word may go on.
    """

    text: str
    is_prefix: bool = False


def parse(query: str) -> tuple[Term, ...]:
    """The terms of a query: words, `"phrases"`, `prefix*`. Whatever is not a word means nothing; no error is possible.

    A query is cut after 1 000 characters or 32 terms. A prefix has two letters or more; a single letter is a word.
    """
    terms = []
    for phrase, star, word in _TERM.findall(query[:MAX_QUERY_CHARS].replace("\0", " ")):
        text, is_prefix = (word.rstrip("*"), word.endswith("*")) if word else (phrase, bool(star))
        words = words_of(text).split()
        if words:
            last = words[-1]
            can_go_on = len(last) > 1 and not _RUN.match(last)  # an unspaced character is no part of a longer word
            terms.append(Term(" ".join(words), is_prefix and can_go_on))
    return tuple(dict.fromkeys(terms))[:MAX_TERMS]


def words_of(text: str) -> str:
    """What is searched in place of the text: its words in lower case and without accents, parted by spaces."""
    return _plain(_segmented(text))


def _segmented(text: str) -> str:
    """The text with a separator around each character of an unspaced script, and accents joined to their letters."""
    if text.isascii():
        return text
    if _MARKED.search(text[_PILE_SIZE - 1 :: _PILE_SIZE]):  # each pile has one of these places: no pile is quickly seen
        text = _PILE.sub(rf"\g<0>{SEPARATOR}", text)
    return _RUN.sub(_separated, unicodedata.normalize("NFC", text))


def _separated(run: re.Match[str]) -> str:
    return f"{SEPARATOR}{SEPARATOR.join(run[0])}{SEPARATOR}"


def _plain(segmented: str) -> str:
    """The words of a segmented text; each character becomes one character, so positions stay what they are."""
    return segmented.translate(_PLAIN)


class _Plain(dict[int, str]):
    """What a character is in a word, or a space where it is in none; each is worked out once."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = _worked_out(chr(code))
        return plain


def _worked_out(character: str) -> str:
    if unicodedata.category(character) not in _IN_WORDS:
        return " "
    # full-width and half-width forms, then capitals, as long as one character comes of one
    for fold in (_compatible, str.casefold, str.lower):
        folded = fold(character)
        if len(folded) == 1 and unicodedata.category(folded) in _IN_WORDS:
            character = folded
    base = unicodedata.normalize("NFD", character)[0]
    return base if base.isascii() else character  # accents are taken off Latin letters only


def _compatible(character: str) -> str:
    return unicodedata.normalize("NFKC", character)


_PLAIN = _Plain()


class Matcher:
    """Finds the terms of one query in texts."""

    def __init__(self, terms: Iterable[Term]) -> None:
        patterns = [_pattern(term) for term in terms]
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._any = re.compile("|".join(patterns) or "(?!)")

    def counts(self, text: str) -> list[int]:
        """How often each term occurs in the first 20 000 characters."""
        words = words_of(text[:WEIGHED_CHARS])
        return [len(pattern.findall(words)) for pattern in self._patterns]

    def is_in(self, text: str) -> bool:
        """Whether all terms occur."""
        words = words_of(text)
        return all(pattern.search(words) for pattern in self._patterns)

    def snippet(self, text: str) -> str:
        """A passage on one line, with what matched between `[` and `]` and `…` where the text goes on."""
        text = _segmented(text)
        words = _plain(text)
        first = self._any.search(words)
        start = 0 if first is None else _word_start(words, max(0, first.start() - _LEAD_CHARS))
        end = _word_end(words, min(len(words), start + SNIPPET_CHARS))
        pieces, at = ["…" if start else ""], start
        for match in self._any.finditer(words, start, end):
            pieces += (text[at : match.start()], "[", text[match.start() : match.end()], "]")
            at = match.end()
        pieces += (text[at:end], "…" if end < len(text) else "")
        return " ".join("".join(pieces).replace(SEPARATOR, "").split())


def _pattern(term: Term) -> str:
    """Words as `words_of` leaves them: nothing beside them but spaces, and nothing but spaces between them."""
    words = " +".join(map(re.escape, term.text.split(" ")))
    return rf"(?<![^ ]){words}" + ("[^ ]*" if term.is_prefix else "(?![^ ])")


def _word_start(words: str, at: int) -> int:
    """The beginning of a word near `at`, so that a snippet does not begin inside one."""
    space = words.find(" ", at, at + _EDGE_CHARS) if at else -1
    return at if space < 0 else space + 1


def _word_end(words: str, at: int) -> int:
    space = words.rfind(" ", at - _EDGE_CHARS, at) if at < len(words) else -1
    return at if space < 0 else space
