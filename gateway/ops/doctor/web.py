"""Checks of what the agent needs for the web: libraries, a sandbox, a search service that answers."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable

from gateway.config.file import CONFIG_NAME
from gateway.config.web import SearchConfig
from gateway.ops.doctor.finding import Finding, Ground
from gateway.runtime.extras import how_to_install
from gateway.sandbox.probing import find_sandbox
from gateway.tools.contract import Search, ToolError, ToolUnavailable

HTTP_LIBRARY = "aiohttp"
_QUESTION = "weather"


async def web(ground: Ground) -> AsyncIterator[Finding]:
    """What is switched on, and lacks something."""
    if ground.config is None:
        return
    config = ground.config.web
    if config.fetch:
        if importlib.util.find_spec(HTTP_LIBRARY) is None:
            what = "The library to fetch pages is not installed, so the agent reads none."
            yield Finding(
                "web-library", "problem", what, f"{how_to_install('web', HTTP_LIBRARY)}, then restart the gateway."
            )
        else:
            async for finding in _readers(ground.config.sandbox.command):
                yield finding
    if config.search is not None:
        yield await _searching(ground.parts.search_of, config.search, asks=ground.asks_models)


async def _readers(words: tuple[str, ...]) -> AsyncIterator[Finding]:
    """What reads pages and PDFs, once they are fetched."""
    sandbox = await find_sandbox(words)
    if sandbox.tier is None:
        what = "No sandbox works here, so pages are read as plain text, their menus too, and PDFs are not read."
        yield Finding("web-sandbox", "warning", what, f"{sandbox.remedy}.")
        return
    yield Finding("web-sandbox", "note", f"Pages are read in a sandbox: {sandbox.tier.name}.")
    from gateway.tools.web.reading import LIBRARY, PDF_LIBRARY  # needs the library

    for library, extra, without in (
        (LIBRARY, "web", "Pages are read as plain text, their menus too"),
        (PDF_LIBRARY, "documents", "PDFs are not read"),
    ):
        if importlib.util.find_spec(library) is None:
            what = f"{without}, because {library} is not installed."
            yield Finding(f"web-{library}", "warning", what, f"{how_to_install(extra, library)}.")


async def _searching(search_of: Callable[[SearchConfig], Search], config: SearchConfig, *, asks: bool) -> Finding:
    advice = f"Correct `web.search` in {CONFIG_NAME}, or see to the service; then `ethos doctor --ask`."
    try:
        search = search_of(config)
        if not asks:
            what = f"The agent searches the web with {config.kind}. It was not asked: `ethos doctor --ask` does."
            return Finding("web-search", "note", what)
        await search(_QUESTION, 1)
    except Exception as error:  # noqa: BLE001 (a package of somebody else may raise anything)
        is_told = isinstance(error, ToolError | ToolUnavailable | ValueError)
        why = str(error) if is_told else f"{type(error).__name__}: {error}"
        return Finding(
            "web-search", "problem", f"The search of the web with {config.kind} does not work: {why}.", advice
        )
    return Finding("web-search", "note", f"The search of the web with {config.kind} works.")
