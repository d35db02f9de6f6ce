"""What tools did."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel

ToolEffect = Literal["read", "own", "fetch", "act"]
ToolState = Literal["begun", "waiting", "done", "failed", "refused", "uncertain"]


class ToolUse(ApiModel):
    """One call of a tool."""

    id: int = Field(description="Number of the call; a later call has a higher one.")
    at: datetime = Field(description="When it began.")
    user: str = Field(description="User on whose behalf the agent called it.")
    personality: str = Field(description="Personality of the agent.")
    session: str = Field(description="Session in which it was called.")
    turn: str = Field(description="Turn in which it was called.")
    tool: str = Field(description="Name of the tool.", examples=["update_memory"])
    effect: ToolEffect = Field(
        description="`read` looks at something, `own` changes what the person owns here, `fetch` goes to an address, "
        "`act` changes the world outside."
    )
    arguments: str = Field(description="Arguments as the model wrote them, in JSON.")
    state: ToolState = Field(
        description="`begun` while it runs, `waiting` for a person's yes, `done`, `failed`, `refused` when it was not "
        "tried, `uncertain` when it is not known whether it took effect."
    )
    took_s: float | None = Field(description="Seconds from its beginning to its end; null: it has not ended.")
