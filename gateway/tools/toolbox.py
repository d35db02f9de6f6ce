"""Which tools a personality has, and one call of one of them: whatever goes wrong becomes a result."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from gateway.domain.images import ModelImage
from gateway.domain.visible import clean_name, without_hidden
from gateway.errors import EthosError, FileError
from gateway.sandbox.workspace import MAX_FILE_BYTES, NoSuchFile, Workspace
from gateway.tools.contract import (
    LONGEST_CALL_S,
    MAX_FILES,
    MAX_PICTURES,
    MAX_RESULT_CHARS,
    Arguments,
    Called,
    InputNeeded,
    NamedFile,
    Picture,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    ToolUnavailable,
    ToolUncertain,
)
from gateway.tools.finding import FIND_TOOLS
from gateway.tools.schema import ArgumentsWrong, checked
from gateway.tools.spec import ToolCall, ToolSpec

T = TypeVar("T")

BYTES_PER_TOKEN = 4
_NAME_CHARS = 200
_FILE_NAME_CHARS = 50  # in the file system up to four times as many bytes
_NOT_OF_NAME = re.compile(r"[^\w.-]+")
UNCERTAIN = (
    "Error: nobody knows whether this call took effect{because}. Do not repeat it before you have found out, or asked "
    "the person."
)
# What no terminal and no store is to get out of a result: control characters, and sequences that begin with one.
_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]"
)

_log = structlog.get_logger(__name__)


def uncertain(why: str = "") -> Called:
    """The outcome of a call that was begun and never ended."""
    return Called(outcome="uncertain", text=UNCERTAIN.format(because=f": {why}" if why else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that can be made: its tool, and its arguments as the tool takes them."""

    tool: Tool
    arguments: Arguments | Mapping[str, Any]

    @property
    def values(self) -> Mapping[str, Any]:
        """The arguments in JSON's own types, defaults among them."""
        given = self.arguments
        return given if isinstance(given, Mapping) else given.model_dump(mode="json", by_alias=True)

    async def settled(self, context: ToolContext) -> Prepared | Called:
        """The same with arguments that are exact; what is wrong with them, as its outcome."""
        if self.tool.settle is None:
            return self
        settled = await _guarded(self.tool, partial(self.tool.settle, self.arguments, context), is_repeatable=True)
        return replace(settled, outcome="refused") if isinstance(settled, Called) else replace(self, arguments=settled)

    async def make(self, context: ToolContext) -> Called:
        """Make it."""
        called = await _made(self.tool, self.arguments, context)
        cleaned = _cleaned(called.text)
        whole = context.hide(cleaned)
        if whole != cleaned:
            _log.warning("secret_in_result", tool=self.tool.name)
        if len(whole) > MAX_RESULT_CHARS and context.workspace is not None:
            whole = await _shortened(whole, called, context, context.workspace)
        return replace(called, text=_cut(whole))


class Toolbox:
    """The tools that a personality may use."""

    def __init__(self, tools: Sequence[Tool], findable: Sequence[Tool] = ()) -> None:
        """`findable` are tools that the model is shown only once it has found them; it has `find_tools` for that."""
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in (*tools, *findable)}
        self.specs = tuple(tool.spec for tool in tools)
        self.findable = findable

    @property
    def tools(self) -> Sequence[Tool]:
        """In the order given."""
        return tuple(self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        """In the order given."""
        return tuple(self._tools)

    def specs_with(self, found: Sequence[str]) -> tuple[ToolSpec, ...]:
        """What the model is shown: all that need not be found, and what was found behind it, in that order."""
        late = {tool.name: tool.spec for tool in self.findable}
        return (*self.specs, *(late[name] for name in found if name in late))

    def with_(self, tools: Sequence[Tool]) -> Toolbox:
        """The same and some more, by name; one whose name is taken is left out."""
        more = [tool for tool in tools if tool.name not in self._tools]
        return Toolbox(sorted([*self.tools, *more], key=lambda tool: tool.name)) if more else self

    def within(self, schema_tokens: int) -> Toolbox:
        """The same, where all of it takes no more room; else what is findable has to be found."""
        findable = [tool for tool in self._tools.values() if tool.is_findable]
        size_bytes = sum(tool.spec.size_bytes for tool in self._tools.values())
        if not findable or size_bytes <= schema_tokens * BYTES_PER_TOKEN:
            return self
        return Toolbox([*(tool for tool in self._tools.values() if not tool.is_findable), FIND_TOOLS], findable)

    def only(self, names: Sequence[str]) -> Toolbox:
        """The same tools, less those that are not named; names that are not here are passed over."""
        return Toolbox([tool for name, tool in self._tools.items() if name in names])

    def allowed(self, names: Sequence[str] | None) -> Toolbox:
        """Those that a personality may use: the named ones; for None all but those that have to be named."""
        if names is None:
            return Toolbox([tool for tool in self._tools.values() if not tool.is_opt_in])
        return self.only(names)

    def find(self, name: str) -> Tool | None:
        """The tool of that name; None for one that is not offered here, whose call does nothing."""
        return self._tools.get(name)

    def is_repeatable(self, name: str) -> bool:
        """Whether a call of it may be made again; true for a tool that is not here."""
        tool = self._tools.get(name)
        return tool is None or tool.is_repeatable

    def is_parallel(self, name: str) -> bool:
        """Whether a call of it may run beside others of the same step."""
        tool = self._tools.get(name)
        return tool is None or tool.is_parallel

    def prepare(self, call: ToolCall) -> Prepared | Called:
        """The call with its arguments checked; what is wrong with it, as its outcome."""
        found = self._prepared(call)
        return found if isinstance(found, Prepared) else replace(found, text=_clean(found.text))

    async def call(self, call: ToolCall, context: ToolContext) -> Called:
        """Do what the model asks; whatever is wrong with its call is told to it as the result."""
        prepared = self.prepare(call)
        return await prepared.make(context) if isinstance(prepared, Prepared) else prepared

    def _prepared(self, call: ToolCall) -> Prepared | Called:
        tool = self._tools.get(call.name)
        if tool is None:
            there = ", ".join(spec.name for spec in self.specs) or "none"
            return Called(outcome="refused", text=f"Error: there is no tool {call.name!r}. There are: {there}.")
        try:
            return Prepared(tool=tool, arguments=_checked(tool, call.arguments.strip() or "{}"))
        except (ValidationError, ArgumentsWrong) as error:
            why = _explained(error) if isinstance(error, ValidationError) else str(error)
            text = f"Error: the arguments are not valid. {why} Call {call.name} again with a JSON object."
            return Called(outcome="refused", text=text)
        except Exception:  # noqa: BLE001 (the tool's own validators run here)
            _log.exception("tool_fault", tool=tool.name)
            text = "Error: the tool cannot read these arguments; its fault is in the gateway's log."
            return Called(outcome="refused", text=text, is_fault=True)


def _checked(tool: Tool, given: str) -> Arguments | Mapping[str, Any]:
    if isinstance(tool.arguments, Mapping):
        return checked(tool.arguments, given)
    return tool.arguments.model_validate_json(given)


async def _guarded(tool: Tool, work: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T | Called:
    """What the tool's own code gives, within its time; else what became of the call."""
    limit = asyncio.timeout(min(tool.timeout_s, LONGEST_CALL_S))
    try:
        async with limit:
            return await work()
    except ToolError as error:
        return _failed(error)
    except (InputNeeded, ToolUnavailable, ToolUncertain) as error:
        return _ended_by(error)
    except TimeoutError:
        why = f"it took longer than {tool.timeout_s:g} s" if limit.expired() else "its time ran out"
        return _broken_off(why, is_repeatable=is_repeatable)
    except EthosError:  # ours, such as a store that is away: the turn is tried again
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # whatever a plugin raises, the turn goes on
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it is the turn that is cancelled
        _log.exception("tool_fault", tool=tool.name)
        return _broken_off("the tool has a fault, which is in the gateway's log", is_repeatable=is_repeatable)


async def _made(tool: Tool, arguments: object, context: ToolContext) -> Called:
    result = await _guarded(tool, partial(_returned, tool, arguments, context), is_repeatable=tool.is_repeatable)
    if isinstance(result, Called):
        return result
    sources = (*result.sources, *([f"what {tool.name} returned"] if tool.shows_others else []))
    text = without_hidden(result.text) if sources else result.text
    images, notes = await _shown(result.pictures, context)
    kept = [await _kept(number, file, context, sources) for number, file in enumerate(result.files[:MAX_FILES], 1)]
    kept += [f"[{len(result.files) - MAX_FILES} more files are not kept.]"] if len(result.files) > MAX_FILES else []
    return Called(outcome="done", text="\n".join([text, *notes, *kept]), sources=sources, images=images)


async def _returned(tool: Tool, arguments: object, context: ToolContext) -> ToolResult:
    """What the tool returns; anything but what it may return is a fault of the tool."""
    returned = await tool.call(arguments, context)
    result = ToolResult(text=returned) if isinstance(returned, str) else returned
    named: Sequence[NamedFile | Picture] = (*result.files, *result.pictures)
    texts = (result.text, *result.sources, *(each.name for each in named))
    if not (all(isinstance(text, str) for text in texts) and all(isinstance(each.data, bytes) for each in named)):
        raise TypeError(f"{tool.name} returned what is neither a text nor a whole ToolResult")
    return result


async def _kept(number: int, file: NamedFile, context: ToolContext, sources: Sequence[str]) -> str:
    """Where a file is that a tool returned, as a line; several may have one name."""
    name = _NOT_OF_NAME.sub("_", file.name).strip("._")[-_FILE_NAME_CHARS:] or "file"
    if context.workspace is None:
        return f"[The file {name} is not kept: there are no files here.]"
    place = f"results/{_digest(context)}-{number}-{name}"
    try:
        await asyncio.to_thread(context.workspace.write, place, file.data, is_own=not (sources or context.is_tainted))
    except (NoSuchFile, FileError) as error:
        return f"[The file {name} is not kept: {error}]"
    return f"[The file {name} is in {place}.]"


def _digest(context: ToolContext) -> str:
    """Of a call, for the names of files: the same call writes the same ones."""
    return hashlib.sha256(context.idempotency_key.encode("utf-8", "replace")).hexdigest()[:12]


async def _shown(pictures: Sequence[Picture], context: ToolContext) -> tuple[tuple[ModelImage, ...], Sequence[str]]:
    """Those that a model can be shown, and a line on each."""
    images: list[ModelImage] = []
    notes: list[str] = []
    for picture in pictures:
        name = clean_name(picture.name, _NAME_CHARS)
        if context.documents is None or len(images) == MAX_PICTURES:
            why = "" if context.documents is None else f": {MAX_PICTURES} are the most"
            notes.append(f"[The picture {name} is not shown{why}.]")
            continue
        try:
            images.append(await context.documents.picture(picture.data))
        except ToolError as error:
            notes.append(f"[The picture {name} is not shown: {error}]")
        else:
            notes.append(f"[The picture {name} stands behind the results, for a model that sees pictures.]")
    return tuple(images), notes


def _failed(error: ToolError) -> Called:
    text = without_hidden(str(error)) if error.sources else str(error)
    return Called(outcome="failed", text=_clean(f"Error: {text}"), sources=error.sources)


def _ended_by(error: InputNeeded | ToolUnavailable | ToolUncertain) -> Called:
    match error:
        case InputNeeded(wanted=wanted):
            return Called.asks(wanted)
        case ToolUnavailable():
            return Called(outcome="failed", text=f"Error: this was not done: {error}", is_fault=True)
        case ToolUncertain():
            return replace(uncertain(str(error)), is_fault=True)


def _broken_off(why: str, *, is_repeatable: bool) -> Called:
    if is_repeatable:
        return Called(outcome="failed", text=f"Error: {why}.", is_fault=True)
    return replace(uncertain(why), is_fault=True)


def struck(arguments: str, context: ToolContext) -> str:
    """The arguments of a call without secrets of the configuration, also where those are written with escapes."""
    text = context.hide(arguments)
    try:
        values = json.loads(text)
        hidden = _hidden(values, context.hide)
    except (ValueError, RecursionError):  # no tool takes it
        return text
    return text if hidden == values else json.dumps(hidden, ensure_ascii=False)


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    match value:
        case str():
            return hide(value)
        case dict():
            return {hide(name): _hidden(each, hide) for name, each in value.items()}
        case list():
            return [_hidden(each, hide) for each in value]
        case _:
            return value


def _clean(text: str) -> str:
    """What every store, terminal and model takes of a result, and not too much of it."""
    return _cut(_cleaned(text))


def _cleaned(text: str) -> str:
    return _CONTROLS.sub("", text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_RESULT_CHARS else text[:MAX_RESULT_CHARS] + "\n[...truncated]"


async def _shortened(whole: str, called: Called, context: ToolContext, workspace: Workspace) -> str:
    """The beginning of a long result, and where all of it is; where it cannot be kept, all of it."""
    name = f"results/{_digest(context)}.txt"
    is_own = not (called.sources or context.is_tainted)
    data = whole.encode("utf-8", "replace")
    kept = data[:MAX_FILE_BYTES]
    try:
        await asyncio.to_thread(workspace.write, name, kept, is_own=is_own)
    except (NoSuchFile, FileError) as error:
        _log.info("result_not_kept", error=str(error))
        return whole
    how_much = "All of them" if len(kept) == len(data) else f"Their first {MAX_FILE_BYTES >> 20} MB"
    about = f"This is the beginning of {len(whole)} characters."
    note = f"\n[{about} {how_much} are in {name}; read_file reads it by pages.]"
    return whole[: MAX_RESULT_CHARS - len(note)] + note


def _explained(error: ValidationError) -> str:
    problems = (
        f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}."
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )
    return " ".join(problems)
