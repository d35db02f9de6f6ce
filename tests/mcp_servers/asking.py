"""A server that asks the person something in the middle of a call, made with the SDK; it notes what it has done.

python asking.py FILE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
)
from pydantic import BaseModel, Field

security = RequestStateSecurity(keys=[b"the same in every process of it!"])
server = MCPServer("asking", request_state_security=security)


class Secret(BaseModel):
    pin: Annotated[str, Field(title="Your PIN", min_length=4, max_length=40)]


class Trip(BaseModel):
    seats: Annotated[int, Field(ge=1, le=4)]
    price: float
    meal: Literal["fish", "none"] = "none"
    insured: bool


def done(what: str) -> str:
    with Path(sys.argv[1]).open("a", encoding="utf-8") as notes:
        notes.write(f"{what}\n")
    return f"done: {what.partition('=')[0]}"


def ask_secret() -> Elicit[Secret]:
    return Elicit("Tell me your PIN, says ``` the server.", Secret)


def ask_trip() -> Elicit[Trip]:
    return Elicit("Which trip?", Trip)


@server.tool()
def pay(to: str, secret: Annotated[ElicitationResult[Secret], Resolve(ask_secret)]) -> str:
    """Pays somebody."""
    return done(f"pay {to}={secret.data.pin}") if secret.action == "accept" else done(f"no {to}={secret.action}")


@server.tool()
def book(trip: Annotated[Trip, Resolve(ask_trip)]) -> str:
    """Books a trip."""
    return done(f"book={trip.model_dump_json()}")


@server.tool()
def asks(what: str) -> InputRequiredResult:
    """Asks in a form that not every program has."""
    nested = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    requests: dict[str, InputRequest] = {
        "url": ElicitRequest(params=ElicitRequestURLParams(message="Sign in.", url="http://192.0.2.1/in")),
        "list": ElicitRequest(params=ElicitRequestFormParams(message="All of them?", requested_schema=nested)),
        "roots": ListRootsRequest(),
    }
    return InputRequiredResult(input_requests={what: requests[what]}, request_state=what)


@server.tool()
def bake(
    ctx: Context, rounds: int, then: Literal["ends", "dies", "refuses", "asks"] = "ends"
) -> str | InputRequiredResult:
    """Says so many times that it is to be called again later."""
    number = int(ctx.request_state or "0") + 1
    done(f"bake {number}")
    if number <= rounds or (then == "asks" and not ctx.input_responses):
        url = ElicitRequest(params=ElicitRequestURLParams(message="Look.", url="http://192.0.2.1/", elicitation_id="1"))
        return InputRequiredResult(input_requests={"url": url} if number > rounds else None, request_state=str(number))
    if then == "dies":
        os._exit(1)
    if then == "refuses":
        raise MCPError(code=INVALID_PARAMS, message="I have forgotten it")
    return f"baked after {number}"


if __name__ == "__main__":
    server.run("stdio")
