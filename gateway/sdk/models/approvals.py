"""Calls of tools that wait for a yes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, RequestBody

GrantScope = Literal["conversation", "always"]
ApprovalState = Literal["waiting", "granted", "begun", "done", "failed", "uncertain", "refused", "expired", "withdrawn"]


class ToolApproval(ApiModel):
    """One call that waits, or waited, for a yes."""

    id: int = Field(description="Number of the question, as people are told it.")
    asked_at: datetime = Field(description="When the agent wanted to make the call.")
    expires_at: datetime = Field(description="Until when it waits.")
    user: str = Field(description="User on whose behalf the agent wants to make it.")
    personality: str = Field(description="Personality of the agent.")
    session: str = Field(description="Session in which it was asked for.")
    schedule: int | None = Field(default=None, description="Schedule whose turn asks; null: the person was there.")
    tool: str = Field(description="Name of the tool.", examples=["send_mail"])
    arguments: str = Field(description="All arguments, in JSON. A yes is for exactly these.")
    sources: tuple[str, ...] = Field(description="What had been read that is not the person's own, in words.")
    is_destructive: bool = Field(description="It deletes, pays or publishes.")
    grants: tuple[GrantScope, ...] = Field(
        description="What the operator's yes may grant besides; empty where such a call is asked for every time."
    )
    state: ApprovalState = Field(
        description="`waiting` for a yes, `granted` and about to be made, `begun` while it runs, then `done`, `failed` "
        "or `uncertain`; `refused`, `expired`, or `withdrawn` when it can be made no more."
    )
    decided_at: datetime | None = Field(description="When it was decided.")
    decided_by: str | None = Field(description="User who decided, or `command-line`.")


class SayYes(RequestBody):
    """A yes to one call."""

    grant: GrantScope | None = Field(
        default=None,
        description="Where the next question for the same tool and destination is spared: in this `conversation`, for "
        "24 hours at most, or `always`; null: nowhere.",
    )


class ToolGrant(ApiModel):
    """What spares the question for calls of one tool with one destination."""

    id: int = Field(description="Number of the grant.")
    user: str = Field(description="User on whose behalf the calls are made.")
    personality: str = Field(description="Personality that makes them.")
    tool: str = Field(description="Name of the tool.", examples=["send_mail"])
    destination: str = Field(description="Exact values of its destination, in JSON; empty where the tool has none.")
    session: str | None = Field(description="The one session in which it holds; null: everywhere.")
    schedule: int | None = Field(default=None, description="The one schedule in whose turns it holds; null: in none.")
    granted_at: datetime = Field(description="When it was given.")
    granted_by: str = Field(description="User who gave it, or `command-line`.")
    until: datetime | None = Field(description="When it ends; null: when it is taken back.")
