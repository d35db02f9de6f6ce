"""A common budget for the bodies of all requests that are held at one time: many large ones do not take the memory.

Half of it is for those who have shown a token, a key or a cookie: no stranger can take it from them with slow uploads.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.auth import CALLER

MAX_HELD_BYTES = 32 * 1024 * 1024
# So much of a body always has room: a platform's webhook is not refused for the slow uploads of others.
SMALL_BYTES = 16 * 1024
# The ends of addresses that hand a body on as it comes, and hold nothing of it; of strangers none is taken there.
STREAMED = ("/traces/import",)


class BodyBudget:
    """Counts what each request has sent, until it is answered. What has no room is answered with 503."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on.

        Raises:
            HTTPException: 503, out of `receive`.
        """
        is_known = scope.get(CALLER) is not None
        if scope["type"] != "http" or (is_known and scope["path"].endswith(STREAMED)):
            await self._app(scope, receive, send)
            return
        mine_bytes = 0
        most_bytes = self._max_bytes if is_known else self._max_bytes // 2

        async def counted() -> Message:
            nonlocal mine_bytes
            message = await receive()
            size_bytes = len(message.get("body", b""))
            if mine_bytes + size_bytes > SMALL_BYTES and self._held_bytes + size_bytes > most_bytes:
                raise HTTPException(
                    503, "Too much is being sent to this gateway at once. Try again.", headers={"retry-after": "2"}
                )
            mine_bytes += size_bytes
            self._held_bytes += size_bytes
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held_bytes -= mine_bytes
