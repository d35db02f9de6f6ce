"""What matches a question, and how what stands around it is weighed in: for traces, and for passages of a document.

What is asked about in a conversation is often answered beside the words of the question: in the next message, by the
one who is named, on the day that has most to do with it. So a trace gains by the matches next to it, by the best
matches of its conversation, by being said by somebody whom the question names, and by being of a day that it is about.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gateway.memory.days import Days
from gateway.memory.query import Query
from gateway.memory.tokenizer import words_of

# What a match gives to what stands after it, and before it, by how far away that is: answers stand after questions.
_AFTER = {1: 0.35, 2: 0.15}
_BEFORE = {1: 0.15, 2: 0.05}
_ANSWER = 0.5  # in place of the first, to what somebody says right after another's question
REACH = max(*_AFTER, *_BEFORE)
_CONVERSATION = 0.2
_CONVERSATION_BEST = 3
_NAMED = 1.6
_NOT_ASKED_FOR = 1 / _NAMED
_ON_DAY = 0.6  # of the best score
_FEW_DAYS = 14
QUESTION_MARKS = "?\uff1f\u061f"
# Who is asked for, in English; in other languages it is the person.
_ASSISTANT_SAID = re.compile(
    r"\byou (?:(?:ve|had|have|also|just|previously) )*"
    r"(?:advised|described|explained|gave|listed|mentioned|named|proposed|provided|recommended|said|shared|suggested|told"
    r"|used|wrote)\b"
    r"|\bdid you (?:advise|describe|explain|give|list|mention|name|propose|provide|recommend|say|share|suggest|tell|use"
    r"|write)\b"
    r"|\b(?:our|the) (?:earlier|last|previous) (?:chat|conversation|discussion)\b"
)
_SAID_BY_EITHER = re.compile(r"\bremind me\b|\bwe (?:chatted|discussed|spoke|talked)\b")

Place = tuple[int, str]
"""Owner and conversation."""
Role = Literal["user", "assistant"]
"""Who speaks, where an import knows no names."""


@dataclass(slots=True)
class Match:
    """One trace and what its score is made of; see `search.ScoredTrace`."""

    number: int
    place: Place | None
    position: int
    speaker: str | None
    words: float
    meaning: float = 0.0
    cosine: float | None = None
    beside: float = 0.0
    conversation: float = 0.0
    day: float = 0.0
    factors: dict[str, float] = field(default_factory=dict)

    @property
    def own(self) -> float:
        """What its own words, meaning and day give."""
        return self.words + self.meaning

    @property
    def score(self) -> float:
        """With all that is weighed in."""
        score = self.words + self.meaning + self.beside + self.conversation + self.day
        for factor in self.factors.values():
            score *= factor
        return score

    @property
    def parts(self) -> dict[str, float]:
        """What the score is the sum of, without what is nothing."""
        parts = {
            "words": self.words,
            "meaning": self.meaning,
            "beside": self.beside,
            "conversation": self.conversation,
            "day": self.day,
        }
        return {name: value for name, value in parts.items() if value}


def lift(matches: Collection[Match], asking: Callable[[Sequence[int]], Collection[int]]) -> None:
    """Add to each what those beside it and the best of its conversation give, as far as they are among the matches.

    Args:
        asking: which of these numbers are of questions.
    """
    conversations: dict[Place, list[Match]] = defaultdict(list)
    for match in matches:
        if match.place is not None:
            conversations[match.place].append(match)
            match.conversation = _CONVERSATION * match.own
    several = [together for together in conversations.values() if len(together) > 1]
    questions = asking([match.number for together in several for match in together]) if several else ()
    for together in several:
        _lift_together(together, questions)


def _lift_together(together: Sequence[Match], questions: Collection[int]) -> None:
    best = sorted([match.own for match in together], reverse=True)[:_CONVERSATION_BEST]
    for match in together:
        match.conversation = _CONVERSATION * sum(best)
    at = {match.position: match for match in together}
    for match in together:
        for far, weight in _AFTER.items():
            if (before := at.get(match.position - far)) is not None:
                is_answer = far == 1 and before.number in questions and before.speaker != match.speaker
                match.beside += (_ANSWER if is_answer else weight) * before.own
        for far, weight in _BEFORE.items():
            if (after := at.get(match.position + far)) is not None:
                match.beside += weight * after.own


def prefer_speakers(matches: Collection[Match], query: Query) -> None:
    """Prefer what was said by whom the question names, or asks for.

    Where all are named, none is preferred. Of a person and an assistant it is the person whose words are asked for,
    unless the question is about what the assistant said; "remind me" may mean either.
    """
    names = {match.speaker for match in matches if match.speaker}
    asked = set(query.words)
    named = {name for name in names if asked.intersection(words_of(name).split())}
    other = None if named else _other_role(query)
    for match in matches:
        if match.speaker in named and named != names:
            match.factors["named"] = _NAMED
        elif other is not None and match.speaker == other:
            match.factors["not asked for"] = _NOT_ASKED_FOR


def prefer_days(of_those_days: Iterable[Match], matches: Collection[Match], days: Days) -> None:
    """Prefer what is of the days that the question is about, the less the more days they are."""
    best = max((match.score for match in matches), default=0.0) or 1.0
    for match in of_those_days:
        match.day = _ON_DAY * best * min(1.0, _FEW_DAYS / len(days))


def _other_role(query: Query) -> Role | None:
    """Whose words a question is not about, of a person and an assistant."""
    text = " ".join(query.words)
    if _ASSISTANT_SAID.search(text):
        return "user"
    return None if _SAID_BY_EITHER.search(text) else "assistant"
