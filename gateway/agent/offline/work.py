"""The offline model's work besides answers: summaries, facts found by rule, and gists; and which facts to forget."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.offline.remembered import Note, notes_about
from gateway.agent.summary import EARLIER, PERSON, read_transcript

_SUMMARY_CHARS = 2_000
_SENTENCE_CHARS = 160
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LONGEST_CHARS = 300

_SECRET = re.compile(r"\b(?:passwor[dt]|passwort|passphrase|pin|secret|token|api[ -]?key|kennwort)\b", re.IGNORECASE)
# Orders and questions; what stands behind an order that ends in a colon is what it is about.
_ASKS = re.compile(
    r".*\?\s*\Z|(?:please\s+|(?:hey|hi|hello|ok|okay|so|and|now|bitte|kannst du|can you|could you)[, ]+)*"
    r"(?:use|call|search|find|forget|repeat|write|echo|tell|what|who|where|when|which|why|how|translate|summari[sz]e|"
    r"explain|fix|make|give|show|list|help|correct|rewrite|rephrase|convert|calculate|compare|describe|draft|imagine|"
    r"suppose|pretend|assume|consider|let['\u2019]?s|let me|check|open|read this|add|do|does|did|should|would|is|are|"
    r"suche?|vergiss|übersetze?|erkläre?|schreibe?|zeige?|fasse?|wiederhole?|stell dir vor|wenn|falls|if)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"\A(?:please\s+)?(?:remember|note|don['\u2019]?t forget|merke?\s+dir)\b(?:\s+that\b|,?\s+dass\b)?\s*[:,]?\s*",
    re.IGNORECASE,
)
_CODE = re.compile(r"```.*?(?:```|\Z)|^>[^\n]*", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|„[^“\n]*“|«[^»\n]*»")
_CALL_ME = re.compile(r"\b(?:you can )?call me [A-Z]\w+|\bmy name(?:['\u2019]s| is)\b|\bich heiße\b", re.IGNORECASE)
# What people say of themselves in passing: of no use in a later conversation.
_PASSING = re.compile(
    r"\bi(?:['\u2019]m| am| was)\s+(?:(?:so|very|really|just|still|a bit|currently|only|also|now)\s+)*"
    r"(?:not (?:sure|certain|kidding|convinced|following|getting|able|seeing|here)|sure|sorry|back|here|done|"
    r"ready|fine|"
    r"ok|okay|good|well|great|confused|lost|stuck|trying|wondering|curious|looking|asking|thinking|kidding|joking|"
    r"afraid(?! of)|bored|tired|hungry|late|using|getting|having|seeing|talking|writing|reading|testing|guessing|glad|"
    r"aware|interested in|happy (?:with|to|that)|going to (?:ask|try|say|need)|all ears|waiting|listening|in a hurry|"
    r"at a loss|new here|impressed)\b|"
    r"\bi(?:['\u2019]ve| have)\s+(?:(?:just|already|also|still)\s+)*(?:no (?:idea|clue|time|questions?)|nothing|"
    r"(?:a|an|another|one|some|the same|two)\s+(?:more |quick |small |other )*(?:questions?|problems?|issues?|bugs?|"
    r"doubts?|errors?|ideas?|requests?|feeling)|tried|seen|read|heard|noticed|to (?:say|admit|go|ask|know|run)|"
    r"been (?:thinking|trying|wondering|looking|reading|using))\b|"
    r"\bi (?:(?:really|just|do|would|don['\u2019]?t|do not|can|can['\u2019]?t|cannot|still|also)\s+)*"
    r"(?:think|guess|mean|suppose|see|understand|know|meant|agree|wonder|bet|wish|thought|forgot|"
    r"need (?:help|you|your|a|an|the|to (?:know|ask|see|understand))|hope (?:so|you|that|it|this)|"
    r"want (?:you|your|to (?:know|ask|see|understand|say)|a|an|the)|get it|got it|get an?|see)\b|"
    r"\b(?:i|we) (?:(?:really|just|don['\u2019]?t|do not)\s+)*"
    r"(?:\w+) (?:it|that|this|you|your|yours|these|those|them|how you|what you|the (?:way|idea|answer|first|"
    r"second|last))\b|"
    r"\bmy (?:question|guess|point|problem|bad|mistake|understanding|turn|answer|idea|apologies|message|request|"
    r"last \w+|previous \w+)\b|"
    r"\bmy [\w'\u2019 -]{1,30}? (?:is|are|was|were|keeps?) (?:\w+ly |so |too |still |again )*(?:broken|wrong|"
    r"failing|slow|"
    r"stuck|down|not working|crashing|gone|missing|empty|late|done|ready|below|above|as follows|here|this|that|"
    r"open|red)\b|"
    r"\b(?:error|exception|traceback|stack ?trace|bugs?|crash(?:es|ed)?|compiles?|segfault|undefined|fails|failed)\b|"
    r"\bich (?:weiß nicht|verstehe|glaube|denke|meine|habe (?:keine ahnung|eine frage|ein problem))\b|"
    r"\bich bin (?:nicht sicher|wieder da|fertig|bereit|gespannt)\b",
    re.IGNORECASE,
)

SEARCH = "memory_search"
DELETE = "memory_delete"
Calls = Sequence[tuple[str, str]]
"""Each a tool and its arguments, as JSON."""


def _rule(pattern: str, category: str, importance: float) -> tuple[re.Pattern[str], str, float]:
    return re.compile(pattern, re.IGNORECASE), category, importance


_OFTEN = r"(?:(?:really|always|never|usually|often|still|also|mostly|only|sometimes|currently|now|even)\s+)*"
_THEIRS = r"\b(?:my|our|meine?[rmn]?|unsere?[rmn]?)\s+[\w'\u2019 -]{1,40}?"

# The first that is found in a sentence counts.
_RULES = (
    _rule(r"\A(?:no|nope|actually|sorry|nein|eigentlich)\b[, ].*\b(?:i|my|i['\u2019]m|we|our|ich|meine?|unsere?)\b",
          "correction", 0.8),
    _rule(r"\bi(?:['\u2019]m| am) (?:so |very |really )?(?:sad|happy|afraid|angry|worried|excited|proud)\b|"
          r"\bich bin (?:so |sehr )?(?:traurig|glücklich|stolz|wütend|besorgt)\b",
          "emotional_context", 0.5),
    _rule(rf"\b(?:i|we) (?:{_OFTEN}|don['\u2019]?t |do not )*(?:like|love|prefer|hate|avoid|enjoy|adore|detest)\b|"
          r"\bi(?:['\u2019]m| am) (?:allergic|vegetarian|vegan|fond)\b|\bmy favou?rite\b|"
          r"\bi (?:can['\u2019]?t|cannot|don['\u2019]?t|do not|never) (?:stand|eat|drink|smoke|tolerate|drive|fly)\b|"
          r"\bich (?:mag|liebe|hasse|bevorzuge)\b|\bich (?:esse|trinke|rauche|fahre)\b.*\b(?:kein\w*|nie|"
          r"gern\w*|lieber)\b",
          "user_preference", 0.7),
    _rule(r"\b(?:i|we) (?:have|need|promised|must remember) to\b|\bich muss\b|\bi must\b", "action_item", 0.6),
    _rule(r"\b(?:i|we) (?:want|plan|hope|intend|aim|would like) to\b|\b(?:my|our) goal\b|\bich (?:will|möchte|plane)\b|"
          r"\b(?:i|we)(?:['\u2019](?:m|re)| am| are) (?:planning|training|saving|learning|going to|moving)\b|"
          r"\bi['\u2019]ll (?:fly|go|move|travel|start|marry|be in)\b",
          "goal", 0.6),
    _rule(rf"{_THEIRS} (?:is|are|was|were|has|have|had|lives?|works?|likes?|loves?|starts?|studies|plays?|"
          rf"speaks?|owns?|"
          r"turn(?:ed|s)|died|moved|got|wants?|needs?|hates?|goes|comes|ist|sind|war|hat|haben|heißt|heißen|wohnt|"
          r"wohnen|arbeitet|mag|spielt|lernt|lebt|wird)\b|"
          r"\b\w+ (?:is|are|ist|sind) (?:my|our|meine?|unsere?) \w+|"
          r"\b(?:i|we)(?:['\u2019](?:m|re)| am| are)\b|"
          rf"\b(?:i|we) {_OFTEN}(?:live|work|was born|were born|was raised|grew up|come from|have|own|speak|drive|play|"
          r"study|teach|drink|eat|run|collect|cook|sing|paint|ride|grow|keep|wake|sleep|wear|used to|studied|taught)\b|"
          r"\b(?:i|we)['\u2019]ve (?:got|lived|worked|been|had|owned)\b|"
          r"\b(?:ich|wir) (?:bin|sind|wohnen?|leben?|arbeiten?|haben?|heißen?|kommen? aus|spielen?|lernen?|studieren?|"
          r"trinken?|essen?|sprechen?|fahren?|besitzen?)\b",
          "knowledge", 0.6),
    _rule(r"\b(?:i|we) (?:just |finally |recently )*(?:went|met|bought|saw|visited|finished|started|moved|sold|"
          r"lost|found|"
          r"married|got|quit|gave up|turned|won|adopted|joined|left|flew|graduated|retired|broke|ran)\b|"
          r"\b(?:yesterday|tomorrow|last (?:week|month|year|night|summer|winter)|gestern|morgen)\b.*\b(?:i|we|"
          r"ich|wir)\b",
          "episodic", 0.5),
)  # fmt: skip
_TOLD_TO = ("knowledge", 0.6)
"""What the person wants to be remembered is a fact, no matter whom it is about."""


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
    for sentence in _SENTENCE.split(_CODE.sub("\n", _said_by_person(request))):
        told = " ".join(sentence.split())
        said = _LEAD.sub("", told)
        own = _QUOTED.sub(" ", said)
        if not said or len(said) > _LONGEST_CHARS or _SECRET.search(said):
            continue
        if _ASKS.match(said) and not _CALL_ME.search(own):
            if said.endswith(":"):
                return  # all that comes now is what the order is about
            continue
        found = _judged(own, is_told_to=said != told)
        if found is not None:
            category, importance = found
            yield {"fact": f"They say: {said}", "category": category, "importance": importance}


def _judged(said: str, *, is_told_to: bool) -> tuple[str, float] | None:
    """Category and importance of a sentence; None for what is worth nothing later."""
    if _PASSING.search(said) and not is_told_to:
        return None
    for pattern, category, importance in _RULES:
        if pattern.search(said):
            return category, importance
    return _TOLD_TO if is_told_to or _CALL_ME.search(said) else None


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


def can_forget_facts(request: ModelRequest) -> bool:
    """Whether both tools are at hand."""
    return request.may_call_tools and {SEARCH, DELETE} <= {tool.name for tool in request.tools}


def search_for(what: str) -> tuple[str, str]:
    """The call that looks for a fact."""
    return SEARCH, json.dumps({"query": what}, ensure_ascii=False)


def deletions(asked: str, request: ModelRequest) -> Calls | None:
    """After a search for what is to be forgotten: the calls that do it, perhaps none; None after anything else."""
    match = FORGET.fullmatch(asked)
    searches = [call.id for said in request.messages for call in said.tool_calls if call.name == SEARCH]
    result: ChatMessage | None = None
    for said in reversed(request.messages):
        if said.role != "tool":
            break
        result = said if said.tool_call_id in searches else result
    if match is None or result is None or not result.text.startswith("{"):
        return None
    found = {str(fact["content"]): str(fact["id"]) for fact in json.loads(result.text)["results"]}
    meant = notes_about(match["what"].strip(" .!?\"'"), [Note("memory", " ".join(text.split())) for text in found])
    lines = {note.line for note in meant}
    ids = [trace_id for text, trace_id in found.items() if " ".join(text.split()) in lines]
    return [(DELETE, json.dumps({"traceId": trace_id})) for trace_id in ids]
