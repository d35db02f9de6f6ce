"""Hooks: addresses that services call."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.sdk.models.schedules import Occurrence, ScheduleState
from gateway.sdk.models.schema import ApiModel, RequestBody

Proof = Literal["standard", "github", "address"]
MAX_BODY_CHARS = 100_000


class Hook(ApiModel):
    """One hook of the configuration."""

    name: str = Field(description="Its name.", examples=["ci"])
    address: str = Field(
        description="Address that the service calls; `<secret>` stands where its secret belongs.",
        examples=["https://ethos.example.org/hooks/ci"],
    )
    proof: Proof = Field(
        description="How a call shows its secret: `standard` and `github` sign it, `address` has it in the address."
    )
    mode: Literal["do", "watch"] = Field(description="`do` answers each call, `watch` only reports what is worth it.")
    text: str = Field(description="What the agent is to do with what the service sends.")
    to: str = Field(description="Who gets the answer: `owner`, or a channel and an account.")
    personality: str = Field(description="Personality that answers.")
    schedule: int | None = Field(
        description="Number of the schedule behind it; null as long as its person cannot be told anything."
    )
    state: ScheduleState | None = Field(description="Of that schedule; null where there is none.")
    why: str | None = Field(description="Why it takes no calls.")
    calls: tuple[Occurrence, ...] = Field(description="Its last calls, the newest first.")


class CallHook(RequestBody):
    """A call to try it with."""

    sent: str = Field(default="", max_length=MAX_BODY_CHARS, description="What a service would send.")


class HookCalled(ApiModel):
    """A call that was taken."""

    schedule: int = Field(description="Number of the schedule behind the hook, whose history shows what came of it.")
    delivery: str = Field(description="Id of the call.")
