"""What is remembered, read back from a system prompt line by line, and found again by the words in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.agent.prompt import LATE
from gateway.protocols import MemoryStoreName

_STORES: dict[str, MemoryStoreName] = {"## About You": "user", "## Memory": "memory"}
_BEFORE = "\n## Where you are\n"
_AFTER = "## Earlier in this conversation"
_RECALLED = "## What you recall"
_TRUNCATED = "[...truncated]"
_MAX_CHARS = 2_000
_MAX_WORDS = 50
_MAX_FOUND = 5

# words that say nothing about what is asked for
_ENGLISH = (
    "a about again am an and any are as at be been can could did do does for from had has have how i if in is "
    "it its know like many me mine much my of on or our please remember s say t tell that the their them there "
    "they this to us was we were what when where which who why will with would you your"
)
_GERMAN = (
    "aber als an auf aus bin bist bitte das dass dein deine dem den der die dir du ein eine einen er es für "
    "habe hast hat ich im in ist kann kannst man mein meine meinem meinen meiner mich mir mit nach noch nicht "
    "oder sag sie sind so über um und von wann war warum was weißt welche welcher wer wie wir wo zu"
)
_EMPTY_WORDS = frozenset((*_ENGLISH.split(), *_GERMAN.split()))


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the memory, as it stands there."""

    store: MemoryStoreName
    line: str

    @property
    def words(self) -> str:
        """Without the sign of a list."""
        return re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", self.line)

    def is_other_value(self, content: str) -> bool:
        """Whether it gives another value to the trait of `content`, both of the form `trait: value`."""
        trait, colon, _ = content.partition(": ")
        return (
            self.store == "user" and self.line != content and self.words.casefold().startswith(trait.casefold() + colon)
        )


def read_notes(system: str) -> list[Note]:
    """The lines of the memory section of a system prompt, as `prompt.system_prompt` writes it."""
    _, _, section = system.rpartition(_BEFORE)
    settled, late, chosen = section.rpartition(f"\n{LATE}\n")
    return (_notes(settled) or _notes(chosen)) if late else _notes(section)


def _notes(section: str) -> list[Note]:
    notes: list[Note] = []
    store: MemoryStoreName | None = None
    for raw in section.split("\n"):
        line = raw.strip()
        if line in (_AFTER, _RECALLED):
            break
        if line in _STORES and store != "memory":  # nothing comes after the memory but its own lines
            store = _STORES[line]
        elif store and line and not line.startswith("#") and line != _TRUNCATED:
            notes.append(Note(store, line))
    return notes


def content_words(text: str) -> list[str]:
    """The words that say something, each once, in order; the first fifty of a long text."""
    words = (word for word in re.findall(r"[^\W_]+", text[:_MAX_CHARS].casefold()) if word not in _EMPTY_WORDS)
    return list(dict.fromkeys(words))[:_MAX_WORDS]


def best_notes(question: str, notes: Sequence[Note]) -> list[Note]:
    """The notes that share the most words with a question, five at most; none where no word is shared."""
    asked = content_words(question)
    scored = [(_shared(asked, note.words), note) for note in notes]
    best = max((score for score, _ in scored), default=0)
    return [note for score, note in scored if score == best][:_MAX_FOUND] if best else []


def notes_about(what: str, notes: Sequence[Note]) -> list[Note]:
    """The notes that hold every word of `what`; words that are only alike count when nothing else is found."""
    wanted = content_words(what)
    if not wanted:
        return []
    exact = [note for note in notes if set(wanted) <= set(content_words(note.words))]
    return exact or [note for note in notes if _shared(wanted, note.words) == len(wanted)]


def _shared(wanted: Sequence[str], text: str) -> int:
    there = content_words(text)
    return sum(any(_is_alike(word, other) for other in there) for word in wanted)


def _is_alike(word: str, other: str) -> bool:
    """The same word, or one with an ending: live, lives, lived."""
    shorter, longer = sorted((word, other), key=len)
    return word == other or (len(shorter) >= 4 and longer.startswith(shorter) and len(longer) - len(shorter) <= 2)
