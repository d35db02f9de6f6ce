"""The search services that a configuration can name. Each module has a `Config` and a `search(config)`.

A package of somebody else has the same two and a `PLUGIN_API`, and is named with a dot in it; see docs/web.md.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

from gateway.tools.contract import SearchHit, ToolUnavailable

TIMEOUT_S = 15.0
MAX_BYTES = 2 << 20
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


async def asked(service: str, method: str, url: str, explained: Callable[[int, Any], str], **parts: Any) -> Any:
    """The JSON that a service answers.

    Args:
        service: its name, for people.
        explained: what a status that is not 200 means, with the JSON that came with it; empty for no special meaning.
        parts: of the request, as aiohttp takes them.

    Raises:
        ToolUnavailable: it is not reached, refuses, or answers something else; says what to do.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, url, allow_redirects=False, **parts) as response,
        ):
            status, data = response.status, bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                data += chunk
                if len(data) > MAX_BYTES:
                    raise ToolUnavailable(f"{service} answered with more than {MAX_BYTES} bytes")
    except TimeoutError as error:
        raise ToolUnavailable(f"{service} did not answer within {TIMEOUT_S:g} s") from error
    except aiohttp.ClientConnectorError as error:
        reason = error.os_error.strerror or "no connection"
        raise ToolUnavailable(f"{service} is not reached at {error.host}: {reason}") from error
    except aiohttp.ClientError as error:
        raise ToolUnavailable(f"{service} answered badly: {type(error).__name__}") from error
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        if status == 200:
            raise ToolUnavailable(f"{service} answered with something that is not JSON") from error
        body = None
    if status != 200:
        raise ToolUnavailable(explained(status, body) or f"{service} answered with the status {status}")
    return body


def hits_in(service: str, results: Any, **names: str) -> Sequence[SearchHit]:
    """What was found, of a list of objects.

    Args:
        names: for each field of `SearchHit` what the service calls it.

    Raises:
        ToolUnavailable: it is no such list.
    """
    if not isinstance(results, list) or not all(isinstance(one, Mapping) for one in results):
        raise ToolUnavailable(f"{service} answered with something that is no list of results")
    return [SearchHit(**{field: _plain(one.get(name)) for field, name in names.items()}) for one in results]


def _plain(value: Any) -> str:
    """A text without the marks that services put around the words that were searched for."""
    return " ".join(html.unescape(_TAG.sub("", value)).split()) if isinstance(value, str) else ""
