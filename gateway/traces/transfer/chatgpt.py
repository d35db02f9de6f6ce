"""ChatGPT's export, `conversations.json`: a tree of messages for each conversation, in the order of their making.

An edited message is a branch; `current_node` is the end of the one that counts. Between a question and its answer stand
messages to tools, those to the memory (`bio`) and what the tools answered. OpenAI does not document the form; this is
what its exports hold, 2026-11-21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.store.payloads import from_ms, storable
from gateway.traces.search_words import ANSWER, QUESTION
from gateway.traces.trace import Trace
from gateway.traces.transfer.import_records import (
    UNNAMED,
    CarriedTrace,
    ImportItem,
    ImportProblem,
    RefusedItem,
    SkippedItem,
    UnreadableRest,
)
from gateway.traces.transfer.json_stream import TOO_LARGE, BrokenJson, TooLarge, values_at
from gateway.traces.transfer.serialization import as_time_ms
from gateway.traces.transfer.source import Source

_SHOWN = ("text", "multimodal_text")
_IMAGE = "[image]"


@dataclass(slots=True)
class _Pair:
    """A question and its answers."""

    question: str
    asked_at_ms: int
    message_id: str | None
    answers: list[str] = field(default_factory=list)

    @property
    def content(self) -> str:
        answer = "\n\n".join(self.answers)
        return f"{QUESTION}{self.question}{ANSWER}{answer}" if answer else f"{QUESTION}{self.question}"


def read_conversations(source: Source, *, now_ms: int) -> Iterator[ImportItem]:
    """Each pair of question and answer as an episodic trace."""
    prefix, index, place = ("item" if source.head().startswith(b"[") else ""), -1, ""
    with source.opened() as file:
        try:
            for index, given in enumerate(values_at(file, prefix)):
                place = f"conversation {index + 1}"
                yield from _conversation(given, place, now_ms=now_ms)
        except BrokenJson as error:
            where = f"after {place}" if index >= 0 else "at its beginning"
            yield UnreadableRest("", f"the file breaks off or is no JSON {where} ({error}); what came before is in")


def _conversation(given: Any, place: str, *, now_ms: int) -> Iterator[ImportItem]:
    if isinstance(given, TooLarge):
        yield RefusedItem(place, f"{TOO_LARGE}; it was left out")
        return
    if not isinstance(given, dict) or not isinstance(given.get("mapping"), dict):
        yield RefusedItem(place, "it is no conversation: it has no messages; it was left out")
        return
    title = given.get("title") if isinstance(given.get("title"), str) else None
    if title:
        place = f"{place} ({title[:60]})"
    if given.get("is_do_not_remember") is True:
        yield ImportProblem(place, "ChatGPT was told not to remember it; it was passed over")
        yield SkippedItem()
        return
    conversation_id = next((str(given[name]) for name in ("conversation_id", "id") if given.get(name)), None)
    created_at_ms = _time_ms(given.get("create_time"), now_ms)
    pairs = list(_pairs(_active_branch(given), created_at_ms))
    if not pairs:
        yield SkippedItem()
    known = {name: given.get(name) for name in ("gizmo_id", "default_model_slug")}
    for position, pair in enumerate(pairs):
        metadata = {"conversationId": conversation_id, "messageId": pair.message_id, "title": title}
        metadata |= {"assistant": known["gizmo_id"], "model": known["default_model_slug"]}
        trace = Trace(
            content=storable(pair.content),
            owner=UNNAMED,
            tags=(title.strip(),) if title and title.strip() else (),
            metadata={name: value for name, value in metadata.items() if value is not None},
            created_at=from_ms(pair.asked_at_ms),
            last_accessed_at=from_ms(now_ms),
            source="import",
            author="ChatGPT export",
            conversation=conversation_id and f"chatgpt:{conversation_id}",
            position=position,
        )
        yield CarriedTrace(place=place, trace=trace, is_id_its_own=False)


def _active_branch(conversation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The messages from the first to the current one; without `current_node`, by the newest branch everywhere."""
    nodes: Mapping[str, Any] = {key: node for key, node in conversation["mapping"].items() if isinstance(node, dict)}
    at = conversation.get("current_node")
    if not isinstance(at, str) or at not in nodes:
        at = _newest_leaf(nodes)
    branch, seen = [], set()
    while isinstance(at, str) and at in nodes and at not in seen:
        seen.add(at)
        if isinstance(nodes[at].get("message"), dict):
            branch.append(nodes[at]["message"])
        at = nodes[at].get("parent")
    return branch[::-1]


def _newest_leaf(nodes: Mapping[str, Any]) -> str | None:
    """The newest message without an answer."""
    parents = {str(node.get("parent")) for node in nodes.values()}
    leaves = [key for key in nodes if key not in parents]
    return max(leaves, key=lambda key: _made_at(nodes[key]), default=None)


def _made_at(node: Mapping[str, Any]) -> float:
    message = node.get("message")
    made_at = message.get("create_time") if isinstance(message, dict) else None
    return float(made_at) if isinstance(made_at, (int, float)) else 0.0


def _pairs(messages: Sequence[Mapping[str, Any]], created_at_ms: int) -> Iterator[_Pair]:
    pair: _Pair | None = None
    for message in messages:
        author = message.get("author")
        role = author.get("role") if isinstance(author, dict) else None
        text = _text(message) if _is_shown(message) else ""
        if role == "user" and text:
            if pair is not None:
                yield pair
            message_id = message.get("id")
            asked_at_ms = _time_ms(message.get("create_time"), created_at_ms)
            pair = _Pair(text, asked_at_ms, message_id if isinstance(message_id, str) else None)
        elif role == "assistant" and text and pair is not None:
            pair.answers.append(text)
    if pair is not None:
        yield pair


def _is_shown(message: Mapping[str, Any]) -> bool:
    """Whether the person saw it: nothing to a tool (`recipient`), no thoughts, nothing hidden."""
    metadata = message.get("metadata")
    is_hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True
    weight = message.get("weight")
    channel = message.get("channel")
    return (
        not is_hidden
        and message.get("recipient", "all") in ("all", None)
        and channel not in ("commentary", "analysis")
        and (weight is None or weight != 0)
    )


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, dict) or content.get("content_type", "text") not in _SHOWN:
        return ""
    parts = content.get("parts")
    return "\n".join(text for part in parts if (text := _part(part))).strip() if isinstance(parts, list) else ""


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):  # what was said aloud
            return str(part["text"])
        if part.get("content_type") == "image_asset_pointer":
            return _IMAGE
    return ""


def _time_ms(seconds: object, default_ms: int) -> int:
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        moment_ms = as_time_ms(seconds * 1000)
        return default_ms if moment_ms is None else moment_ms
    return default_ms
