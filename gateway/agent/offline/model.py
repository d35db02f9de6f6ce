"""The offline model: a small deterministic responder that needs no key and no network.

The embedded default, and what every test without a network uses. It understands a handful of sentences, and does them
as a model of the network would: by tool calls, one step after the other. It keeps nothing between calls; whatever it
says follows from the request. `_SKILLS` at the end is the table of what it understands.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import cycle, islice
from zoneinfo import ZoneInfo

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage, Purpose, TextDelta
from gateway.agent.offline.arithmetic import NotASum, evaluate
from gateway.agent.offline.plans import WHEN, planned
from gateway.agent.offline.remembered import Note, best_notes, content_words, notes_about, read_notes
from gateway.agent.offline.work import (
    DELETE,
    FORGET,
    SEARCH,
    beginning,
    can_forget_facts,
    deletions,
    facts_of,
    gist_of,
    polite,
    search_for,
    summary_of,
)
from gateway.agent.prompt import IN_GROUP, estimated_tokens
from gateway.domain.provenance import own_words
from gateway.memory.recall import read_recalled
from gateway.tools.spec import ToolCall

ABILITIES = """\
- "remember that my name is Ada", "what is my name?", "what do you know about me?", "forget my name"
- "search for tea": what we said to each other before
- "remind me in 20 minutes to stretch", "remind me tomorrow at 9 to call Bob", "every weekday at 8 tell me to get up"
- "what are my reminders?", "cancel reminder 3"
- "what time is it in Berlin?", "what is 6 * 7?"
- "repeat after me: …", "write 200 words"
- "use tool NAME {…}": any tool, with these arguments as JSON; one a line"""
NOTICE = """\
I am the offline model: I need no key and no network, and I understand a few sentences only; "help" lists them. To \
connect a real model run `ethos init`, or read docs/models.md."""
INTRODUCTION = f"{NOTICE}\n\n{ABILITIES}"

MAX_WORDS = 5_000
_WORDS_BETWEEN_TURNS = 16  # so that a long answer neither holds up the event loop nor hides from a cancellation
_QUOTED_CHARS = 60
_FACT_CHARS = 300

_PROSE = "The quick brown fox jumps over the lazy dog, and somebody counts every word of it."

_SUBJECT = re.compile(r"\ASubject: [^\n]*\n\n(?=.*\S)", re.DOTALL)  # stands above a text that has one

Skill = Callable[[re.Match[str], ModelRequest], ChatMessage | None]


class OfflineModel:
    """A model that is always there."""

    def __init__(self, name: str = "offline") -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer word by word, at no cost. Never raises."""
        message = _WORK[request.purpose](request)
        for number, piece in enumerate(re.finditer(r"\s*\S+|\s+", message.text), start=1):
            yield TextDelta(text=piece.group())
            if number % _WORDS_BETWEEN_TURNS == 0:
                await asyncio.sleep(0)
        heard = estimated_tokens(request.system) + sum(estimated_tokens(said.text) for said in request.messages)
        spoken = estimated_tokens(message.text + "".join(call.arguments for call in message.tool_calls))
        usage = ModelUsage(model=self.name, input_tokens=heard, output_tokens=spoken, cost_usd=0.0)
        yield ModelReply(message=message, usage=usage)


# ---- answers ---------------------------------------------------------------------------------------------------------


def _answer(request: ModelRequest) -> ChatMessage:
    """The next message: what became of the calls, or a reply to what the person wrote last."""
    asked_at = max((at for at, said in enumerate(request.messages) if said.role == "user"), default=0)
    asked = _SUBJECT.sub("", own_words(request.messages[asked_at].text), count=1).strip() if request.messages else ""
    if request.messages and request.messages[-1].role == "tool":
        to_delete = deletions(asked, request)
        if to_delete:
            return _calls(request, to_delete)
        without = "" if to_delete is None else SEARCH
        told = _told(request, is_verbatim=_CALL_LINE.match(asked) is not None, without=without)
        wish = FORGET.fullmatch(asked)
        answer = _say(told or f"{_NOTHING_TO_FORGET} {beginning(wish['what'] if wish else asked, _QUOTED_CHARS)}")
    else:
        answer = _reply(asked, request)
    is_first = not any(said.role == "assistant" for said in request.messages[:asked_at])
    if is_first and not answer.tool_calls and ABILITIES not in answer.text:
        return _say(f"{answer.text}\n\n{NOTICE}")
    return answer


def _reply(asked: str, request: ModelRequest) -> ChatMessage:
    for pattern, skill in _SKILLS:
        match = pattern.fullmatch(asked)
        if match is not None and (answer := skill(match, request)) is not None:
            return answer
    if not asked:
        return _say("There were no words in your message, and words are all I can read.")
    quoted = beginning(asked, _QUOTED_CHARS)
    return _say(
        f'You wrote "{quoted}". I am only the offline model and have no answer to that; "help" lists what I do.'
    )


def _say(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", text=text)


def _use(request: ModelRequest, name: str, *arguments: Mapping[str, object]) -> ChatMessage:
    """Calls of one tool, or a word that it is not at hand."""
    if not request.may_call_tools or all(tool.name != name for tool in request.tools):
        return _say(f"I cannot do that here: the tool {name} is not at hand.")
    return _calls(request, [(name, json.dumps(each, ensure_ascii=False)) for each in arguments])


def _calls(request: ModelRequest, calls: Sequence[tuple[str, str]]) -> ChatMessage:
    made = sum(len(said.tool_calls) for said in request.messages)
    return ChatMessage(
        role="assistant",
        text="",
        tool_calls=tuple(
            ToolCall(id=f"offline_{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(calls, start=made + 1)
        ),
    )


# ---- results of tools ------------------------------------------------------------------------------------------------


def _told(request: ModelRequest, *, is_verbatim: bool, without: str = "") -> str:
    """What the last calls returned, in words, `without` those of one tool; as it is where the person named the tool."""
    calls = {call.id: call for said in request.messages for call in said.tool_calls}
    lines: list[str] = []
    for said in reversed(request.messages):
        if said.role != "tool":
            break
        call = calls.get(said.tool_call_id or "")
        name = call.name if call else "a tool"
        if name == without:
            continue
        if call is None or is_verbatim or name not in _TELL:
            lines.append(f"{name}: {said.text}")
        elif said.text.startswith("Error:"):
            lines.append(f"That did not work. {name}: {said.text}")
        else:
            lines.append(_TELL[name](call.arguments, said.text))
    return "\n".join(reversed(lines))


def _tell_update(arguments: str, result: str) -> str:
    update = json.loads(arguments)
    if update["action"] == "remove":
        return f"I forget this: {beginning(update['substring_match'], _FACT_CHARS)}"
    known = "I have that note already" if result.startswith("Already") else "I will remember this"
    return f"{known}: {beginning(update['content'], _FACT_CHARS)}"


def _tell_delete(_arguments: str, result: str) -> str:
    return "I forget that fact." if result == '{"deleted": true}' else f"It is not forgotten: {result}"


def _tell_time(_arguments: str, result: str) -> str:
    return f"It is {result}."


def _tell_search(_arguments: str, result: str) -> str:
    try:
        hits = [f"- {hit['when'][:10]}, {hit['who']}: {hit['text']}" for hit in json.loads(result)]
    except ValueError:  # no JSON: "Nothing was found", or too many hits to be shown whole
        return result
    return "\n".join(["This is what I found:", *hits])


def _tell_planned(_arguments: str, result: str) -> str:
    if result.startswith("This was not done."):
        return "That waits for your yes, which is asked for below."
    return "It is planned, as it stands below." if " The person sees " in result else result


def _tell_plans(_arguments: str, result: str) -> str:
    return "\n".join(["This is planned:", *(f"- {line}" for line in result.split("\n"))]) if ":" in result else result


_TELL: dict[str, Callable[[str, str], str]] = {
    "update_memory": _tell_update,
    "current_time": _tell_time,
    "search_conversations": _tell_search,
    DELETE: _tell_delete,
    "remind": _tell_planned,
    "schedule_create": _tell_planned,
    "schedule_cancel": _tell_planned,
    "schedule_list": _tell_plans,
}


# ---- skills: None means that the sentence was meant otherwise -------------------------------------------------------

_NOT_IN_GROUP = (
    "I have no note about that to show in a group. What I know of you alone is for a direct chat: ask me there."
)
_NOTHING_TO_FORGET = "I have no note about that, so there is nothing to forget:"
_CALL_LINE = re.compile(
    r"(?i:use\s+(?:the\s+)?tool\s+|call\s+(?=[\w.-]+\s*\{))(?P<name>[\w.-]+)[ \t:]*(?P<arguments>.*)"
)
_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself|ich|mich|mir|mein\w*)\b", re.IGNORECASE)
_TRAIT = re.compile(
    r"(?:my|meine?)\s+(?P<trait>[\w'\u2019]+(?:[ -][\w'\u2019]+){0,3}?)\s+(?:is|are|ist|sind)\s+(?P<value>.+)",
    re.IGNORECASE | re.DOTALL,
)
_AREAS = ("Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian")


def _call_as_told(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    """Exactly the calls that stand there, malformed ones too; a line that names no tool belongs to the one above."""
    if not _CALL_LINE.match(match.string):
        return None
    if not request.tools or not request.may_call_tools:
        return _say("I cannot do that here: no tool is at hand.")
    calls: list[tuple[str, str]] = []
    for line in match.string.split("\n"):
        if call := _CALL_LINE.fullmatch(line.strip()):
            calls.append((call["name"], call["arguments"]))
        elif calls:
            calls[-1] = (calls[-1][0], f"{calls[-1][1]}\n{line}".strip())
    return _calls(request, calls)


def _echo(match: re.Match[str], _request: ModelRequest) -> ChatMessage | None:
    return _say(match["text"])


def _write(match: re.Match[str], _request: ModelRequest) -> ChatMessage | None:
    count = int(match["count"])
    if count > MAX_WORDS:
        return _say(f"That is too long for one message; I write {MAX_WORDS} words at most.")
    return _say(" ".join(islice(cycle(_PROSE.split()), count)) or "Those were no words at all.")


def _remember(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    """`my X is Y` becomes `X: Y` in place of an earlier one; what else a person says of themselves is kept as said."""
    fact = match["fact"].strip()
    if fact.endswith("?"):
        return _recall(match, request)
    if not _FIRST_PERSON.search(fact):
        return _use(request, "update_memory", {"action": "add", "store": "memory", "content": fact})
    trait = _TRAIT.fullmatch(fact)
    if trait is None or _FIRST_PERSON.search(trait["value"]):
        content = f"They say: {fact}"
        return _use(request, "update_memory", {"action": "add", "store": "user", "content": content})
    name = trait["trait"][:1].upper() + trait["trait"][1:]
    content = f"{name}: {trait['value'].rstrip('. ')}"
    outdated = [note for note in read_notes(request.system) if note.is_other_value(content)]
    return _use(
        request,
        "update_memory",
        *(_removal(note) for note in outdated),
        {"action": "add", "store": "user", "content": content},
    )


def _forget(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    """The whole line goes by its own text: a word alone would take every line in which it is a part of another."""
    what = match["what"].strip(" .!?\"'")
    if not content_words(what):
        return _say('Tell me what to forget, such as "forget my name".')
    found = notes_about(what, read_notes(request.system))
    if can_forget_facts(request):
        removals = [("update_memory", json.dumps(_removal(note), ensure_ascii=False)) for note in found]
        return _calls(request, [*removals, search_for(what)])
    if not found:
        return _say(f"{_NOTHING_TO_FORGET} {beginning(what, _QUOTED_CHARS)}")
    return _use(request, "update_memory", *(_removal(note) for note in found))


def _removal(note: Note) -> dict[str, str]:
    return {"action": "remove", "store": note.store, "substring_match": note.line}


def _search(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    return _use(request, "search_conversations", {"query": match["query"].strip(" .?!")})


def _time(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    zone = match["zone"] or match["zone_de"]
    return _use(request, "current_time", {"time_zone": _zone_key(zone)} if zone else {})


def _zone_key(place: str) -> str:
    """`berlin` is `Europe/Berlin`; what is not found stays, and the tool says what it expects."""
    if "/" in place or place.upper() in {"UTC", "GMT"}:
        return place if "/" in place else place.upper()
    for area in _AREAS:
        key = f"{area}/{place.title().replace(' ', '_')}"
        try:
            ZoneInfo(key)
        except (LookupError, ValueError, OSError):
            continue
        return key
    return place


def _plan(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    plan = planned(match["when"].strip(), match["what"], request.system)
    return None if plan is None else _use(request, *plan)


def _plans(_match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    return _use(request, "schedule_list", {})


def _cancel(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    return _use(request, "schedule_cancel", {"number": int(match["number"])})


def _sum(match: re.Match[str], _request: ModelRequest) -> ChatMessage | None:
    try:
        return _say(f"{match['sum'].strip()} = {evaluate(match['sum'])}")
    except NotASum:
        return None
    except ZeroDivisionError:
        return _say("Nothing can be divided by zero.")


def _know(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    """Everything, or everything about the person."""
    is_personal = any(match.groupdict().values())
    notes = [note for note in read_notes(request.system) if note.store == "user" or not is_personal]
    if not notes and IN_GROUP in request.system:
        return _say(_NOT_IN_GROUP)
    whom = "you" if is_personal else "anything"
    return _from_notes(notes) or _say(f'I have no notes about {whom} yet. Tell me: "remember that …".')


def _recall(match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    question = match.string
    recalled = [Note("memory", fact) for fact in read_recalled(request.system)]
    if answer := _from_notes(best_notes(question, [*read_notes(request.system), *recalled])):
        return answer
    asks_of_memory = re.search(r"\byou (?:know|remember)\b", question, re.IGNORECASE)
    is_personal = asks_of_memory or _FIRST_PERSON.search(re.sub(r"(?i)^tell me\b", "", question))
    if not is_personal:
        return None
    return _say(
        _NOT_IN_GROUP if IN_GROUP in request.system else 'I have no note about that. Tell me: "remember that …".'
    )


def _from_notes(notes: Sequence[Note]) -> ChatMessage | None:
    if not notes:
        return None
    if len(notes) == 1:
        return _say(f"From my notes: {notes[0].words}")
    return _say("\n".join(["From my notes:", *(f"- {note.words}" for note in notes)]))


def _greet(_match: re.Match[str], request: ModelRequest) -> ChatMessage | None:
    names = [note.words for note in read_notes(request.system) if note.words.startswith("Name: ")]
    return _say(f"Hello, {names[0].removeprefix('Name: ')}." if names else "Hello.")


def _help(_match: re.Match[str], _request: ModelRequest) -> ChatMessage | None:
    return _say(INTRODUCTION)


def _skill(pattern: str, skill: Skill) -> tuple[re.Pattern[str], Skill]:
    return polite(pattern), skill


# in this order; the whole message has to match
_SKILLS: tuple[tuple[re.Pattern[str], Skill], ...] = (
    _skill(r"(?:use|call)\b.*", _call_as_told),
    _skill(r"(?:repeat after me|echo|sprich mir nach)\b\s*:?\s*(?P<text>.+)", _echo),
    _skill(r"(?:write|schreibe?)\s+(?P<count>\d{1,9})\s+(?:words?|wörter|worte)\b.*", _write),
    _skill(
        r"(?:remember|merke?\s+dir|don['\u2019]?t forget|do not forget|vergiss nicht|note(?=:|\s+that\b))\b"
        r"(?:\s+that\b|,?\s+dass\b)?\s*[:,]?\s*(?P<fact>.+)",
        _remember,
    ),
    (FORGET, _forget),
    _skill(rf"remind me\s+{WHEN}\s*[,:]?\s+(?P<what>(?:to|of|about|that)\s+.+)", _plan),
    _skill(rf"(?P<what>remind me\s+(?:to|of|about|that)\s+.+?)\s+{WHEN}\s*[.!]?", _plan),
    # Who only tells what happens then, asks for nothing; and another time may follow.
    _skill(rf"{WHEN}\s*[,:]?\s+(?P<what>(?!(?:i|we|you|he|she|it|they|there|and|or)\b).+)", _plan),
    _skill(
        r"(?:what are|what['\u2019]re|show|list)\s+(?:me\s+)?(?:my\s+)?(?:reminders|schedules|plans)\s*[?.]*", _plans
    ),
    _skill(
        r"(?:cancel|delete|remove)\s+(?:the\s+|my\s+)?(?:reminder|schedule)\s+(?:number\s+)?(?P<number>\d{1,9})\s*[.!]*",
        _cancel,
    ),
    _skill(r"(?:search|suche?)\b(?:\s+(?:our conversations\s+)?(?:for|nach)\b)?\s*:?\s*(?P<query>.+)", _search),
    _skill(
        r"(?:what(?:['\u2019]s|\s+is)?\s+(?:the\s+)?(?:current\s+)?(?:time|date|day)(?:\s+is\s+it)?(?:\s+(?:now|today))?"
        r"(?:\s+in\s+(?P<zone>[\w/+ -]{1,60}?))?|"
        r"(?:wie\s+spät\s+ist\s+es|welcher\s+tag\s+ist\s+heute)(?:\s+in\s+(?P<zone_de>[\w/+ -]{1,60}?))?)"
        r"(?:\s+(?:now|today))?\s*[?.]*",
        _time,
    ),
    _skill(
        r"(?=.{1,120}\Z)(?:what(?:['\u2019]s|\s+is)|calculate|compute|how much is|was ist|wie\s?viel ist)?"
        r"\s*(?P<sum>[\d\s.+*/()\u00d7\u00f7-]+?)\s*=?\s*\?*",
        _sum,
    ),
    _skill(r"(?:help|hilfe|what (?:can|do) you do)\s*[?.!]*", _help),
    _skill(
        r"(?:what do you (?:know|remember)(?:\s+about\s+(?P<me>me))?|(?P<who>who am i|wer bin ich)|"
        r"was weißt du(?:\s+über\s+(?P<mich>mich))?)\s*[?.]*",
        _know,
    ),
    _skill(
        r"(?:hi|hello|hey|good (?:morning|afternoon|evening)|hallo|guten (?:tag|morgen|abend)|moin|servus)\b"
        r"(?:[\s,]+\w+){0,2}\s*[!.]*",
        _greet,
    ),
    _skill(
        r"(?:what|who|where|when|which|how|do|does|did|is|are|am|tell me|was|wer|wo|wann|wie|weißt|kennst)\b.*|.*\?",
        _recall,
    ),
)


_WORK: dict[Purpose, Callable[[ModelRequest], ChatMessage]] = {
    "answer": _answer,
    "delegate": _answer,
    "summary": lambda request: _say(summary_of(request)),
    "facts": lambda request: _say(facts_of(request)),
    "insight": lambda _request: _say("NOTHING"),
    "gist": lambda request: _say(gist_of(request)),
    "values": lambda _request: _say("{}"),
    "aside": lambda _request: _say("The offline demo model does no such work."),
}
