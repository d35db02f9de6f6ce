"""Puts the tools of the web together; a part of the composition root."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from gateway.agent.meter import Meter, Tab
from gateway.agent.model import ChatMessage, ModelRequest, Spender, reply_of
from gateway.config.search_kinds import load_search_kind
from gateway.config.web import SearchConfig, WebConfig
from gateway.domain.personalities import Personalities
from gateway.errors import ModelRefused
from gateway.runtime.extras import how_to_install
from gateway.runtime.logs import hiding, secrets_in
from gateway.tools.contract import Search, Tool, ToolContext, ToolError

if TYPE_CHECKING:
    from gateway.sandbox.probing import Sandbox
    from gateway.tools.web.values import ReadsAlone

HTTP_LIBRARY = "aiohttp"
_MAX_OUTPUT_TOKENS = 2_000

_log = structlog.get_logger(__name__)


def web_tools(
    config: WebConfig, sandbox: Sandbox | None, read: ReadsAlone, left_out: Callable[[str], None] = lambda _why: None
) -> Sequence[Tool]:
    """Those that are switched on; what cannot be used is left out, and `left_out` is told, in a line for people."""
    tools: list[Tool] = []
    if config.fetch and importlib.util.find_spec(HTTP_LIBRARY) is None:
        remedy = how_to_install("web", HTTP_LIBRARY)
        _log.error("web_left_out", left_out="web_fetch, read_values", remedy=remedy)
        left_out(f"pages of the web cannot be read, because {HTTP_LIBRARY} is missing: {remedy}")
    elif config.fetch:
        tools += _page_tools(config, sandbox, read)
        if sandbox is not None and sandbox.tier is None:
            left_out(f"no sandbox works here, so pages are read as plain text, and no PDFs ({sandbox.remedy})")
    if config.search is not None:
        try:
            search = search_of(config.search)
        except ValueError as error:
            _log.error("web_left_out", left_out="web_search", error=str(error))
            left_out(f"the web cannot be searched: {error}")
        else:
            from gateway.tools.web.searching import web_search  # noqa: PLC0415 (only where it is configured)

            tools.append(web_search(search))
    return tools


def _page_tools(config: WebConfig, sandbox: Sandbox | None, read: ReadsAlone) -> Sequence[Tool]:
    from gateway.tools.web.fetching import Fetcher, WebRules  # noqa: PLC0415 (only where it is switched on)
    from gateway.tools.web.pages import Web  # noqa: PLC0415
    from gateway.tools.web.reading import LIBRARY, PageReader  # noqa: PLC0415
    from gateway.tools.web.values import ValueReading  # noqa: PLC0415

    tier = None if sandbox is None else sandbox.tier
    if importlib.util.find_spec(LIBRARY) is None:
        _log.warning("pages_as_plain_text", missing=LIBRARY, remedy=how_to_install("web", LIBRARY))
    rules = WebRules(ports=config.ports, private_hosts=config.allow_private)
    web = Web(fetcher=Fetcher(rules), reader=PageReader(tier=tier))
    return [web.tool(), ValueReading(web=web, read=read).tool()]


def search_of(config: SearchConfig) -> Search:
    """What asks the service.

    Raises:
        ValueError: it cannot be used; says why, for people.
    """
    if config.fault:
        raise ValueError(config.fault)
    try:
        search: Search = load_search_kind(config.kind).search(config.settings)
    except Exception as error:
        reason = hiding(secrets_in(config.settings))(f"{type(error).__name__}: {error}".partition("\n")[0])
        raise ValueError(f"`search` of {config.kind} failed ({reason}); correct its keys, or ask its author") from error
    return search


def reads_alone(meter: Meter, personalities: Personalities) -> ReadsAlone:
    """The model for small work, or else the personality's, behind the meter."""

    async def read(instructions: str, text: str, context: ToolContext) -> str:
        scope = context.scope
        personality = await asyncio.to_thread(personalities.get, scope.personality_id)
        request = ModelRequest(
            system=instructions,
            messages=(ChatMessage(role="user", text=text),),
            max_output_tokens=_MAX_OUTPUT_TOKENS,
            purpose="values",
            spender=Spender(
                user_id=scope.author_id or scope.user_id or "",
                personality_id=scope.personality_id,
                turn_id=scope.turn_id or "",
            ),
        )
        try:
            async with Tab(meter) as tab:
                reply = await reply_of(tab.helper(personality.model), request)
        except ModelRefused as error:
            raise ToolError("the model does not read this") from error
        return reply.message.text

    return read
