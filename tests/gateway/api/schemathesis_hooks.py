"""What no schema can say: that an Idempotency-Key is another one for another request, and what must not be reached."""

from __future__ import annotations

import uuid
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = uuid.uuid4().hex
    if case.path == "/mcp/servers" and isinstance(case.body, dict):
        _keep_harmless(case.body)


def _keep_harmless(server: dict[str, Any]) -> None:
    """The gateway starts the command of a new server, or goes to its address."""
    command, url = server.get("command"), server.get("url")
    if isinstance(command, list) and command and isinstance(command[0], str):
        command[0] = "/nonexistent/program"
    if isinstance(url, str) and url.startswith("http"):
        server["url"] = "http://127.0.0.1:9/"
