"""What went wrong, as OpenAI has it (platform.openai.com/docs/guides/error-codes)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

_TYPES: Mapping[int, str] = {403: "permission_error", 429: "rate_limit_error"}
_CODES: Mapping[int, str] = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_CHALLENGE = {"www-authenticate": "Bearer"}


class OpenAIError(Exception):
    """A request is not answered as it was asked.

    Attributes:
        status: of HTTP.
        text: what is wrong and what to do, for people.
        param: the field that is wrong.
        code: what programs know it by; None for the usual one of the status.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.param = param
        self.code = code or _CODES.get(status)
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        """As it goes over the wire."""
        kind = "server_error" if self.status >= 500 else _TYPES.get(self.status, "invalid_request_error")
        kind = "insufficient_quota" if self.code == "insufficient_quota" else kind
        return {"error": {"message": self.text, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The answer to a request."""
        content = json.dumps(self.body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {**(_CHALLENGE if self.status == 401 else {}), **(self.headers or {})}
        return Response(content, status_code=self.status, headers=headers, media_type="application/json")


def openai_error(status: int, text: str) -> Response:
    """What the way to us met, rather than we."""
    return OpenAIError(status, text).response()
