"""What a program wants: read from the body of a request, or refused in words that say what to do.

What would change the answer and is not done here is refused. What only tunes a model (`temperature`, `max_tokens` …) is
passed over: the personality's model has its own settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.sdk.models.chat import MAX_TEXT_CHARS, File
from gateway.services.talks import Line, Talk
from gateway.web.openai.errors import OpenAIError

DEFAULT_MODEL = "ethos"
HELPER_MODEL = "ethos-helper"
"""Who asks it wants no personality, memory or session: for titles and other side calls of front ends."""
MAX_MESSAGES = 4_000
MOST_CHARS = MAX_TEXT_CHARS - 10_000
"""Of what the person says since the last answer, and what the program wishes; what is put between them has room."""
_OWN_TOOLS = (
    "this agent has tools of its own, and calls none of a program; leave it out, or give the agent a tool by MCP"
)
_NO_FORM = "the answer is text for people; ask for a form of it in the message"
# What would change the answer, by its name, with a word on it; a value that asks for nothing is fine.
_REFUSED: Mapping[str, str] = {
    "tools": _OWN_TOOLS,
    "functions": _OWN_TOOLS,
    "n": "there is one answer; ask again for another",
    "logprobs": "the agent shows no probabilities",
    "top_logprobs": "the agent shows no probabilities",
    "logit_bias": "the agent does not weigh single tokens",
    "audio": "answers are text here",
    "modalities": "answers are text here",
    "stop": "the agent writes its answer to the end",
    "response_format": _NO_FORM,
    "web_search_options": "the agent searches with its own tools",
    "prompt": "there are no stored prompts; choose a personality by `model`",
    "conversation": "name the response before by `previous_response_id`, or show the whole talk",
    "background": "answers are not fetched later; follow them with `stream`",
}
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}
_CHOICES = {"tools": "tool_choice", "functions": "function_call"}
"""By which field a program says that what it lists is not to be called."""
_DATA_URL = re.compile(r"data:([a-zA-Z0-9.+-]{1,80}/[a-zA-Z0-9.+-]{1,80})(?:;[\w=.-]+)*;base64,(.*)", re.DOTALL)
_NO_FETCH = "the gateway fetches nothing for a program; send the bytes as a data URL (`data:image/png;base64,…`)"
# Requests of front ends about a talk, each the only message of a person in its request: Open WebUI (titles, tags,
# follow-ups, queries: `backend/open_webui/config.py`, 2026-10), LibreChat (`danny-avila/agents`, `src/utils/title.ts`).
_SIDE_CALLS = (
    re.compile(r"### Task:\n.*<chat_history>", re.DOTALL),
    re.compile(r"(?:Provide|Generate) a concise,? [^\n]*title for (?:the|this) conversation\b"),
)

_MOST_FILES = 20
_MOST_NAME_CHARS = 255
_AUTHORS: Mapping[str, Literal["user", "assistant", "tool"]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_PROGRAM = ("system", "developer")
"""The roles of a program's own words."""

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class Message(BaseModel):
    """A message of either interface; unknown fields are passed over."""

    model_config = ConfigDict(extra="ignore")

    role: Role
    content: str | list[dict[str, Any]] | None = None


_B = TypeVar("_B", bound="Body")


class Body(BaseModel):
    """What both interfaces have."""

    model_config = ConfigDict(extra="allow")

    model: str | None = Field(default=None, max_length=200)
    stream: bool | None = None
    user: str | None = Field(default=None, max_length=512)


class StreamOptions(BaseModel):
    """How a stream ends."""

    include_usage: bool | None = None


class CompletionsBody(Body):
    """The body of `/v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)


class ResponsesBody(Body):
    """The body of `/v1/responses`."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = Field(default=None, max_length=100)
    max_output_tokens: int | None = Field(default=None, ge=1)
    text: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that can be answered.

    Attributes:
        user: whom the program means.
        is_aside: it is about a talk, and no part of one.
        most_tokens: of an answer aside.
    """

    talk: Talk
    is_streamed: bool
    wants_usage: bool
    user: str | None
    is_aside: bool
    most_tokens: int | None


def read_completions(body: bytes) -> Asked:
    """What a request for a completion wants.

    Raises:
        OpenAIError: it makes no sense, or wants what is not done here.
    """
    wanted = _validated(CompletionsBody, body)
    options = wanted.stream_options
    return _asked(
        wanted,
        wanted.messages,
        field="messages",
        wants_usage=options is not None and bool(options.include_usage),
        most_tokens=wanted.max_completion_tokens or wanted.max_tokens,
    )


def read_responses(body: bytes) -> Asked:
    """What a request for a response wants; raises as `read_completions`."""
    wanted = _validated(ResponsesBody, body)
    form = (wanted.text or {}).get("format")
    if form not in (None, {"type": "text"}):
        _refuse("text", f"`text.format` is not supported: {_NO_FORM}")
    items = [{"role": "user", "content": wanted.input}] if isinstance(wanted.input, str) else wanted.input
    messages = [_item(number, item) for number, item in enumerate(items) if item.get("type") != "reasoning"]
    if wanted.instructions:
        messages.insert(0, Message(role="system", content=wanted.instructions))
    behind = wanted.previous_response_id
    return _asked(
        wanted,
        messages,
        field="input",
        wants_usage=True,
        most_tokens=wanted.max_output_tokens,
        behind=None if behind is None else behind.removeprefix("resp_"),
    )


def _asked(
    wanted: Body,
    messages: list[Message],
    *,
    field: str,
    wants_usage: bool,
    most_tokens: int | None,
    behind: str | None = None,
) -> Asked:
    more = wanted.model_extra or {}
    for name, why in _REFUSED.items():
        value, is_spared = more.get(name), more.get(_CHOICES.get(name, "")) == "none"
        if value and not is_spared and value not in _HARMLESS.get(name, ()):
            _refuse(name, f"`{name}` is not supported: {why}")
    model = (wanted.model or "").strip() or DEFAULT_MODEL
    said = [one for one in messages if one.role not in _PROGRAM]
    if not said or said[-1].role != "user":
        _refuse(field, f"the last of `{field}` must be what the person says (role `user`)")
    lines = [Line(_AUTHORS[one.role], _text(one, field)) for one in said]
    unanswered = len(said) - next((at for at, one in enumerate(reversed(said)) if one.role != "user"), len(said))
    files = [file for one in said[unanswered:] for file in _files(one, field)]
    if len(files) > _MOST_FILES:
        _refuse(field, f"a message has {_MOST_FILES} files at most, and this one {len(files)}")
    talk = Talk(
        model=model,
        personality=None if model == DEFAULT_MODEL else model,
        earlier=tuple(lines[:-1]),
        text=lines[-1].text,
        attachments=tuple(files),
        wishes="\n\n".join(filter(None, (_text(one, field) for one in messages if one.role in _PROGRAM))),
        behind=behind,
    )
    if sum(len(line.text) for line in lines[unanswered:]) + len(talk.wishes) > MOST_CHARS:
        _refuse(field, f"a message has {MOST_CHARS} characters at most")
    is_aside = model == HELPER_MODEL or (len(said) == 1 and any(one.match(talk.text) for one in _SIDE_CALLS))
    return Asked(
        talk=talk,
        is_streamed=bool(wanted.stream),
        wants_usage=wants_usage,
        user=wanted.user,
        is_aside=is_aside,
        most_tokens=most_tokens,
    )


def _validated(kind: type[_B], body: bytes) -> _B:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        text = f"`{where}`: {first['msg']}" if where else f"the body is no JSON object: {first['msg']}"
        raise OpenAIError(400, text, param=where or None) from error


def _item(number: int, item: dict[str, Any]) -> Message:
    """A message among the items of a response."""
    if item.get("type", "message") != "message":
        _refuse("input", f"`input.{number}` is of the type {item.get('type')!r}; only messages are read")
    try:
        return Message.model_validate(item)
    except ValidationError as error:
        raise OpenAIError(400, f"`input.{number}` is no message", param="input") from error


def _parts(message: Message, field: str) -> Iterator[tuple[str, Any]]:
    """The kind of each part of a message, and what is in it."""
    if isinstance(message.content, str):
        yield "text", message.content
    for part in message.content if isinstance(message.content, list) else ():
        kind = part.get("type")
        match kind:
            case "text" | "input_text" | "output_text":
                yield "text", str(part.get("text") or "")
            case "refusal":
                yield "text", str(part.get("refusal") or "")
            case "image_url" | "input_image":
                url = part.get("image_url")
                yield "picture", url.get("url") if isinstance(url, dict) else url
            case "file" | "input_file":
                yield "file", part.get("file") if kind == "file" else part
            case _:
                _refuse(field, f"a part of the type {kind!r} is not read here; there are text, pictures and files")


def _text(message: Message, field: str) -> str:
    return "\n".join(text for kind, text in _parts(message, field) if kind == "text").strip()


def _files(message: Message, field: str) -> Iterator[File]:
    for number, (kind, value) in enumerate(_parts(message, field), start=1):
        if kind == "picture":
            yield _file(value, field, name=f"picture-{number}")
        elif kind == "file":
            held = value if isinstance(value, dict) else {}
            if not held.get("file_data"):
                _refuse(field, "a file is sent as `file_data`; there are no stored files and no addresses of files")
            yield _file(held["file_data"], field, name=str(held.get("filename") or f"file-{number}"))


def _file(url: Any, field: str, *, name: str) -> File:
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        _refuse(field, _NO_FETCH)
    media_type, data = found[1].lower(), found[2]
    suffix = f".{media_type.partition('/')[2].partition('+')[0]}"
    filename = (name if "." in name else name + suffix)[-_MOST_NAME_CHARS:]
    try:
        return File(filename=filename, media_type=media_type, data=data)
    except ValidationError as error:
        raise OpenAIError(400, "a data URL holds no Base64 with padding, or is too large", param=field) from error


def _refuse(param: str, text: str) -> NoReturn:
    raise OpenAIError(400, text[0].upper() + text[1:] + ".", param=param, code="unsupported_value")
