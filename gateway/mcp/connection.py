"""One connection to a server, and the only place where errors of the SDK are translated.

Whoever calls stands in a task of their own and waits for a result or for the end of the connection. So nothing that
happens within the library's cancel scopes ever cancels a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import count
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gateway.domain.visible import without_hidden
from gateway.errors import EthosError
from gateway.mcp import http
from gateway.mcp.catalogue import MAX_INSTRUCTIONS_CHARS, MAX_PAGES, MAX_TOOLS, Definition, Era, Listing
from gateway.mcp.errors import CannotStart, ConnectionEnded, LacksPermission, SessionGone
from gateway.mcp.live import DECLINED, LiveCall
from gateway.mcp.lives import LOST, Lives
from gateway.mcp.mending import Mending
from gateway.mcp.questions import MAX_STATE_CHARS, points_of, responses_of
from gateway.runtime.backoff import delay_s
from gateway.tools.contract import MAX_DESCRIPTION_CHARS, ToolError, ToolUnavailable, ToolUncertain
from gateway.tools.forms import Given
from gateway.tools.schema import fault_of_schema

LIST_TIMEOUT_S = 10.0
# What a server answers before it begins with a call.
_NOT_BEGUN = frozenset({
    types.INVALID_PARAMS, types.INVALID_REQUEST, types.METHOD_NOT_FOUND, types.HEADER_MISMATCH,
    types.MISSING_REQUIRED_CLIENT_CAPABILITY, types.URL_ELICITATION_REQUIRED,
})  # fmt: skip

_ENDING = frozenset({http.NOT_REACHED, http.BROKEN, http.SESSION_GONE})
# The SDK's own word for an end; servers use its code for other things, too.
_CLOSED = (types.CONNECTION_CLOSED, "Connection closed")
_ANSWER_WITHIN_S = 1.0
# The key of the only question that there is at a time, in the old era; and how long such a call may go on in all.
_ONLY = "question"
_LONGEST_LIVE_S = 3_600.0

# Between two tries of a call that its server wants to be made again later.
_FIRST_LATER_S, _LONGEST_LATER_S = 0.25, 5.0

T = TypeVar("T")


class Connection:
    """A connection that is up.

    Attributes:
        ended: set where it is to be used no more.
        running: calls that have no answer yet.
    """

    def __init__(
        self, client: Client, mended: Mending, ended: asyncio.Event, *, answer_within_s: float, lives: Lives
    ) -> None:
        """`client` is entered, and stays so until `ended` is set; the last two are for the old era."""
        self._client = client
        self._mended = mended
        self.ended = ended
        self.running = 0
        self._answer_within_s = answer_within_s
        self._live: dict[str, LiveCall] = {}
        self._lives = lives

    @property
    def era(self) -> Era:
        """`legacy`: it began with the handshake that revisions before 2026-07-28 have."""
        return "legacy" if self._client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else "2026-07-28"

    @property
    def instructions(self) -> str:
        """What the server says of itself."""
        return without_hidden(self._client.instructions or "").strip()[:MAX_INSTRUCTIONS_CHARS]

    @property
    def tells_changes(self) -> bool:
        """Whether changes of the list are to be subscribed to."""
        tools = self._client.server_capabilities.tools
        is_new = self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
        return is_new and tools is not None and bool(tools.list_changed)

    async def hear_changes(self, on_change: Callable[[], None]) -> None:
        """Subscribe to changes of the list, until the server ends that.

        Raises:
            Exception: of the SDK, where the subscription breaks.
        """
        async with self._client.listen(tools_list_changed=True) as subscription:
            async for _ in subscription:
                on_change()

    async def listing(self) -> Listing:
        """Ask for the tools, page by page.

        Raises:
            ConnectionEnded: it ended.
            ToolUnavailable: there is no list; says why.
        """
        self._mended.left_out.clear()
        if self._client.server_capabilities.tools is None:
            return Listing(tools=(), era=self.era, instructions=self.instructions)
        found: dict[str, Definition] = {}
        cursor: str | None = None
        ttl_ms: float | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._until_end(self._page(cursor))
            except (MCPError, ValidationError, TimeoutError) as error:
                raise ToolUnavailable(f"it gives no list of its tools ({_short(error)})") from error
            ttl_ms = page.ttl_ms if ttl_ms is None else ttl_ms
            found |= {one.name: one for tool in page.tools if (one := self._definition(tool)) is not None}
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_TOOLS:
                break
        tools = [*found.values()]
        left_out = dict(self._mended.left_out)
        if cursor is not None or len(tools) > MAX_TOOLS:
            left_out["(more)"] = f"it has more than {MAX_TOOLS} tools, or more than {MAX_PAGES} pages of them"
        return Listing(
            tools=tools[:MAX_TOOLS],
            left_out=left_out,
            ttl_s=ttl_ms / 1_000 if ttl_ms else None,
            era=self.era,
            instructions=self.instructions,
        )

    async def _page(self, cursor: str | None) -> types.ListToolsResult:
        async with asyncio.timeout(LIST_TIMEOUT_S):
            return await self._client.list_tools(cursor=cursor, cache_mode="bypass")

    def _definition(self, tool: types.Tool) -> Definition | None:
        fault = fault_of_schema(tool.input_schema)
        if fault is not None:
            self._mended.left_out[tool.name] = fault
            return None
        hints = tool.annotations or types.ToolAnnotations()
        return Definition(
            name=tool.name,
            description=without_hidden(tool.description or "")[:MAX_DESCRIPTION_CHARS],
            schema=without_hidden(json.dumps(tool.input_schema, sort_keys=True, ensure_ascii=False)),
            is_read_only=hints.read_only_hint,
            is_destructive=hints.destructive_hint,
            is_open_world=hints.open_world_hint,
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        given: Given | None = None,
        can_be_asked: bool = False,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool; `given` answers what it was to wait for.

        In the old era, the state of what it wants to know is the name of a call that goes on meanwhile.

        Raises:
            SessionGone: it was not done, and a new connection can do it.
            ToolError: the server refused it.
            ToolUnavailable: it was not done.
            ToolUncertain: nobody knows.
        """
        if self.era != "legacy" or not (can_be_asked or given):
            work = self._counted(self._until_done(name, arguments, timeout_s, given))
        elif given is None:
            work = self._begin_live(name, arguments, timeout_s)
        else:
            raise ToolUncertain(LOST)
        return await self._translating(work, timeout_s)

    async def answer(self, given: Given, *, timeout_s: float) -> types.CallToolResult | types.InputRequiredResult:
        """Go on with a call of the old era that waits for this answer. Raises as `call`."""
        return await self._translating(self._answer_live(given, timeout_s), timeout_s)

    async def _translating(self, work: Awaitable[T], timeout_s: float) -> T:
        try:
            return await work
        except ConnectionEnded:
            raise ToolUncertain("the connection to its server broke") from None
        except MCPError as error:
            self._note_end(error)
            raise _translated(error, timeout_s) from error
        except ToolUncertain:
            raise
        except Exception as error:
            raise ToolUncertain(
                f"its server answered in a form that cannot be read ({type(error).__name__})"
            ) from error

    async def _counted(self, asking: Coroutine[Any, Any, T]) -> T:
        self.running += 1
        try:
            return await asking
        finally:
            self.running -= 1

    async def _until_done(
        self, name: str, arguments: Mapping[str, Any], timeout_s: float, given: Given | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make a call, and again with the server's state as long as it wants nothing but to be asked later.

        Raises:
            ToolUncertain: it has not ended in time; or something failed after the server had begun with it.
            Exception: of the SDK, and ConnectionEnded, where the first try fails.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + timeout_s
        responses: types.InputResponses | None = None if given is None else {**responses_of(given)}
        state = None if given is None else given.state
        for tries in count(1):
            asking = self._client.session.call_tool(
                name,
                dict(arguments),
                read_timeout_seconds=until_s - clock(),
                allow_input_required=True,
                input_responses=responses,
                request_state=state,
            )
            try:
                result = await self._until_end(asking)
            except (ConnectionEnded, MCPError) as error:
                if tries == 1:
                    raise
                self._note_end(error)
                raise ToolUncertain("its server had begun with it, and then did not say what became of it") from error
            if isinstance(result, types.CallToolResult) or result.input_requests:
                return result
            left_s = until_s - clock()
            if left_s < _FIRST_LATER_S or len(result.request_state or "") > MAX_STATE_CHARS:
                break
            responses, state = None, result.request_state
            pause_s = delay_s(tries, first_s=_FIRST_LATER_S, longest_s=_LONGEST_LATER_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, left_s / 2)):
                    await self.ended.wait()
        raise ToolUncertain(f"its server had begun with it, and did not end it within {timeout_s:g} s; it may go on")

    def _note_end(self, error: Exception) -> None:
        """After some errors the next call makes a new connection."""
        if isinstance(error, MCPError) and (error.code in _ENDING or (error.code, error.message) == _CLOSED):
            self.ended.set()

    async def _begin_live(
        self, name: str, arguments: Mapping[str, Any], timeout_s: float
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Begin a call in which the server may ask. Raises as `_live_step`."""
        calling = self._client.session.call_tool(name, dict(arguments), read_timeout_seconds=_LONGEST_LIVE_S)
        live, number = LiveCall(self._counted(calling)), secrets.token_hex(8)
        self._live[number], self._lives.here[number] = live, self

        def ended(_: object) -> None:
            del self._live[number], self._lives.here[number]

        live.task.add_done_callback(_heard)
        live.task.add_done_callback(ended)
        return await self._live_step(live, number, timeout_s)

    async def _answer_live(self, given: Given, timeout_s: float) -> types.CallToolResult | types.InputRequiredResult:
        """Go on with a call. Raises as `_live_step`."""
        number, _, question = (given.state or "").partition("/")
        live = self._live.get(number)
        answer = next(iter(responses_of(given).values()))
        if live is None or not live.answer(int(question), answer):
            raise ToolUncertain(LOST)
        return await self._live_step(live, number, timeout_s)

    async def _live_step(
        self, live: LiveCall, number: str, timeout_s: float
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Until the end of a call, or the next question; its number goes along, so that no answer is for another.

        Raises:
            ToolUncertain: it took too long.
            Exception: of the SDK.
        """
        is_open = False
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._until_end(live.step())
            is_open = not isinstance(found, types.CallToolResult)
        except TimeoutError:
            raise ToolUncertain(f"it took longer than {timeout_s:g} s") from None
        finally:
            if not is_open:
                live.task.cancel()
        if isinstance(found, types.CallToolResult):
            return found
        return types.InputRequiredResult(
            input_requests={_ONLY: types.ElicitRequest(params=found)}, request_state=f"{number}/{live.number}"
        )

    async def asked(self, question: types.ElicitRequestParams) -> types.ElicitResult:
        """What the person answers to a question of the old era, which does not say to which call it belongs."""
        live = [*self._live.values()]
        if len(live) != 1 or self.running != 1:
            return DECLINED
        try:
            points_of({_ONLY: types.ElicitRequest(params=question)}, None)
        except ToolError:
            return DECLINED
        return await live[0].ask(question, within_s=self._answer_within_s)

    async def _until_end(self, asking: Coroutine[Any, Any, T]) -> T:
        """The result, unless the connection ends first; an end of the library's own is no cancellation of ours.

        Raises:
            ConnectionEnded: it did.
            Exception: of the SDK.
        """
        task, end = asyncio.create_task(asking), asyncio.create_task(self.ended.wait())
        try:
            await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():  # an answer may be on its way to the task
                await asyncio.wait((task,), timeout=_ANSWER_WITHIN_S)
            if not task.done() or task.cancelled():
                raise ConnectionEnded
            return task.result()
        finally:
            for each in (task, end):
                each.cancel()
            task.add_done_callback(_heard)


def _translated(error: MCPError, timeout_s: float) -> Exception:
    if error.code == http.SESSION_GONE:
        return SessionGone()
    if error.code in _NOT_BEGUN:
        return ToolError(f"its server refused it: {error.message[:500]}", sources=("an answer of a server",))
    if error.code == http.MORE_WANTED:
        return LacksPermission(_short(error))
    not_done = {
        http.NOT_REACHED: f"its server cannot be reached ({_short(error)})",
        http.REFUSED: f"its server refuses the gateway ({_short(error)})",
        http.NO_TOKEN: _short(error),
    }
    if error.code in not_done:
        return ToolUnavailable(not_done[error.code])
    unknown = {
        http.BROKEN: f"its server failed ({_short(error)})",
        types.REQUEST_TIMEOUT: f"it took longer than {timeout_s:g} s",
        types.CONNECTION_CLOSED: "the connection to its server broke",
    }
    return ToolUncertain(unknown.get(error.code, f"its server answered with the error {error.code}"))


def _heard(task: asyncio.Task[Any]) -> None:
    """Whoever waited has gone; an exception that comes later is nobody's."""
    if not task.cancelled():
        task.exception()


def reason_of(error: BaseException) -> str:
    """Why a server is not there, for people, with what to do."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case MCPError(code=http.NOT_REACHED):
            return f"it cannot be reached ({_short(error)}); look whether it runs, and at its `url`"
        case MCPError(code=http.REFUSED):
            return f"it refuses the gateway ({_short(error)}); correct its `headers`, or the `scopes` of its `oauth`"
        case (
            MCPError(code=http.NO_TOKEN | http.MORE_WANTED)
            | CannotStart()
            | ToolUnavailable()
            | ConnectionEnded()
            | EthosError()
        ):
            return str(error) or "it closed the connection"
        case MCPError(code=types.CONNECTION_CLOSED):
            return "it closed the connection"
        case MCPError() | ValidationError():
            return f"it does not speak the protocol as expected ({_short(error)}); look whether it is such a server"
        case _:
            return f"{type(error).__name__}: {_short(error)}"


def _short(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__
