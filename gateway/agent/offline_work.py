"""The offline model's work besides answers: summaries, facts found by rule, and gists. It has no insight to give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gateway.agent.model import ModelRequest
from gateway.agent.notes import Note, notes_about
from gateway.agent.summary import EARLIER, PERSON, read_transcript

_SUMMARY_CHARS = 2_000
_SENTENCE_CHARS = 160
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LONGEST_CHARS = 300

_SECRET = re.compile(r"\b(?:passwor[dt]|passwort|passphrase|pin|secret|token|api[ -]?key|kennwort)\b", re.IGNORECASE)
_ASKS = re.compile(
    r".*\?\s*\Z|(?:please\s+)?"
    r"(?:use|call|search|forget|repeat|write|echo|tell me|what|who|where|when|which|how|suche?|vergiss)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"\A(?:please\s+)?(?:remember|note|don['\u2019]?t forget|merke?\s+dir)\b(?:\s+that\b|,?\s+dass\b)?\s*[:,]?\s*",
    re.IGNORECASE,
)


def _rule(pattern: str, category: str, importance: float) -> tuple[re.Pattern[str], str, float]:
    return re.compile(pattern, re.IGNORECASE), category, importance


# The first that is found in a sentence counts.
_RULES = (
    _rule(r"\A(?:no|actually|sorry)\b[, ].*\b(?:i|my|i['\u2019]m)\b", "correction", 0.8),
    _rule(r"\bi(?:['\u2019]m| am) (?:so |very |really )?(?:sad|happy|afraid|angry|worried|excited|proud)\b",
          "emotional_context", 0.5),
    _rule(r"\bi (?:(?:really|always|never|don['\u2019]?t|do not) )*(?:like|love|prefer|hate|avoid|enjoy)\b|"
          r"\bi(?:['\u2019]m| am) allergic\b|\bmy favou?rite\b|\bich (?:mag|liebe|hasse)\b",
          "user_preference", 0.7),
    _rule(r"\bi (?:have|need|promised) to\b|\bich muss\b", "action_item", 0.6),
    _rule(r"\bi (?:want|plan|hope|intend) to\b|\bmy goal\b|\bich (?:will|möchte)\b", "goal", 0.6),
    _rule(r"\b(?:my|meine?) [\w'\u2019 -]{1,40}? (?:is|are|was|ist|sind|heißt)\b|"
          r"\bi(?:['\u2019]m| am| live| work| was born| have| own| speak)\b|\bich (?:bin|wohne|arbeite|habe)\b",
          "knowledge", 0.6),
    _rule(r"\b(?:i|we) (?:went|met|bought|saw|visited|finished|started|moved|sold|lost|found)\b|"
          r"\b(?:yesterday|last (?:week|month|year|night)|gestern)\b.*\b(?:i|we|ich|wir)\b",
          "episodic", 0.5),
)  # fmt: skip


def polite(pattern: str) -> re.Pattern[str]:
    """What a whole message has to match, with whatever courtesy before it."""
    courtesy = r"(?:(?:please|can you|could you|would you|bitte|kannst du),?\s+)*"
    return re.compile(courtesy + pattern, re.IGNORECASE | re.DOTALL)


FORGET = polite(r"(?:forget|vergiss)\b(?:,?\s+(?:that|about|dass)\b)*\s*[:,]?\s*(?P<what>.*)")


def beginning(text: str, limit_chars: int) -> str:
    """The first words, on one line."""
    words = " ".join(text[: 4 * limit_chars].split())
    return words if len(words) <= limit_chars else words[:limit_chars].rstrip() + "…"


# ---- summaries -------------------------------------------------------------------------------------------------------


def summary_of(request: ModelRequest) -> str:
    """The first sentence of whatever the person said, newest last, without what they asked to forget."""
    kept: list[str] = []
    for said in request.messages:
        if said.role != "user":
            continue
        for speaker, text in read_transcript(said.text) or [(PERSON, said.text)]:
            if speaker == EARLIER:
                kept.extend(line for line in text.split("\n") if line.strip())
            elif speaker == PERSON and (request_to_forget := FORGET.fullmatch(text.strip())):
                gone = notes_about(request_to_forget["what"], [Note("memory", line) for line in kept])
                kept = [line for line in kept if Note("memory", line) not in gone]
            elif speaker == PERSON:
                kept.append(f"- {_first_sentence(text)}")
    limit_chars = min(_SUMMARY_CHARS, 4 * (request.max_output_tokens or _SUMMARY_CHARS))
    while kept and sum(len(line) + 1 for line in kept) > limit_chars:
        kept.pop(0)
    return "\n".join(kept) or "Nothing was said that is worth keeping."


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", beginning(text, _SENTENCE_CHARS), maxsplit=1)[0]


# ---- facts and gists -------------------------------------------------------------------------------------------------


def facts_of(request: ModelRequest) -> str:
    """What the person said of themselves, each sentence as it was said, in the form that is asked for."""
    return json.dumps(list(_facts(request)), ensure_ascii=False)


def _facts(request: ModelRequest) -> Iterator[dict[str, object]]:
    for sentence in _SENTENCE.split(_said_by_person(request)):
        said = _LEAD.sub("", " ".join(sentence.split()))
        if not said or len(said) > _LONGEST_CHARS or _ASKS.match(said) or _SECRET.search(said):
            continue
        for pattern, category, importance in _RULES:
            if pattern.search(said):
                yield {"fact": f"They say: {said}", "category": category, "importance": importance}
                break


def _said_by_person(request: ModelRequest) -> str:
    first = request.messages[0].text.split("\n", maxsplit=1)[0] if request.messages else ""
    try:
        said = json.loads(first)
    except ValueError:
        return ""
    return str(said.get("text", "")) if isinstance(said, dict) and said.get("who") == "person" else ""


def gist_of(request: ModelRequest) -> str:
    """The first sentence of what is to be shortened."""
    text = request.messages[-1].text if request.messages else ""
    try:
        said = json.loads(text)
    except ValueError:
        return ""
    return _first_sentence(str(said.get("fact", ""))) if isinstance(said, dict) else ""
