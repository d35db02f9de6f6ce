"""What is done at a time: schedules, and what came of each time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.sdk.models.schema import ApiModel, PersonalityId, RequestBody, UserName

Mode = Literal["say", "do", "watch"]
Missed = Literal["late", "skip", "newest", "each"]
ScheduleState = Literal["active", "paused", "failing", "done"]
Outcome = Literal["begun", "done", "silent", "skipped", "failed"]

MAX_TEXT_CHARS = 4_000
_MODE = (
    "`say` delivers the text as it is, without a model; `do` has the agent do what it says; `watch` does so, too, and "
    "delivers something only where there is something to report."
)
_TO = "Where it is delivered: a channel on which the person has written directly, or `channel:account`."
_MISSED = (
    "What becomes of times at which the gateway was down: `late` makes up for it and says so, `skip` leaves it out, "
    "`newest` makes up for the last one if it is not long ago, `each` for all."
)

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS, pattern=r"\S", examples=["Water the plants"])]
To = Annotated[str, Field(min_length=1, max_length=512, examples=["mail", "mail:ada@example.org"])]


class ScheduleRule(ApiModel):
    """When it is due: one of `at`, `every_minutes`, `cron`, `every_days`, `hook`; a time of day is in the zone."""

    at: datetime | None = Field(default=None, description="Once: the moment.")
    every_minutes: int | None = Field(default=None, description="After so many minutes each, whatever the clocks do.")
    cron: str | None = Field(default=None, description="Five fields of cron.", examples=["0 8 * * 1-5"])
    every_days: int | None = Field(default=None, description="Every so many days, at `time_of_day`.")
    time_of_day: str | None = Field(default=None, description="With `every_days`.", examples=["08:00"])
    first_day: str | None = Field(default=None, description="With `every_days`: from then on.", examples=["2026-12-01"])
    hours: str | None = Field(
        default=None, description="With `every_minutes`: only between these times of day.", examples=["08:00-21:00"]
    )
    hook: str | None = Field(default=None, description="At no time: when a service calls this hook.", examples=["ci"])


class Schedule(ApiModel):
    """Something that is done at a time."""

    id: int = Field(description="Its number, as people are told it.", examples=[3])
    user: str = Field(description="User to whom it belongs.")
    personality: str = Field(description="Personality that does it.")
    channel: str = Field(description="Channel on which it is delivered.")
    conversation: str = Field(description="Conversation to which it is delivered, as its platform names it.")
    thread: str | None = Field(description="Thread inside the conversation.")
    is_direct: bool = Field(description="Whether the conversation is a direct chat.")
    mode: Mode = Field(description=_MODE)
    text: str = Field(description="What is said, or what the agent is to do.")
    when: str = Field(description="The rule in words.", examples=["every weekday at 08:00 (Europe/Berlin)"])
    rule: ScheduleRule = Field(description="The rule, for programs.")
    is_configured: bool = Field(
        description="Whether it is a hook or the heartbeat of the configuration, which alone changes it."
    )
    zone: str = Field(description="Time zone of the rule, as IANA names it.", examples=["Europe/Berlin"])
    missed: Missed = Field(description=_MISSED)
    state: ScheduleState = Field(
        description="`paused` by a person; `failing` and paused by the gateway; `done` when nothing is due any more."
    )
    why: str | None = Field(description="Why the gateway has paused it.")
    failures: int = Field(description="Times that failed, one after the other.")
    next: tuple[datetime, ...] = Field(description="Its next times, at most three; empty where it is not active.")
    turn: str | None = Field(description="Turn in which the agent made it; null where a person did.")
    created_at: datetime = Field(description="When it was made.")


class Occurrence(ApiModel):
    """One time at which a schedule was due, and what came of it."""

    due_at: datetime = Field(description="When it was due.")
    begun_at: datetime = Field(description="When it was taken up.")
    outcome: Outcome = Field(
        description="`begun` until it has ended; `silent`: a watch had nothing to report; `skipped`: `note` says why."
    )
    note: str = Field(description="Why it failed or was skipped, or how late it was.")
    is_by_hand: bool = Field(description="Whether a person ran it, at no time of its rule.")
    turn: str | None = Field(description="Its turn; null where none was run.")
    session: str | None = Field(description="Session in which the turn was; null where it is not kept any more.")


class ScheduleForm(BaseModel):
    """When something is to be done, in the fields that all surfaces have."""

    at: str | None = Field(
        default=None,
        max_length=40,
        description="Once, at a date and time on the clock of the zone; `18:00` is the next such time.",
        examples=["2026-12-24T18:00"],
    )
    in_minutes: int | None = Field(default=None, ge=0, description="Once, so many minutes from now.")
    every_minutes: int | None = Field(default=None, ge=5, description="After so many minutes each.")
    cron: str | None = Field(
        default=None, max_length=200, description="By five fields of cron.", examples=["0 8 * * 1-5"]
    )
    every_days: int | None = Field(default=None, ge=1, description="Every so many days, at `time_of_day`.")
    time_of_day: str | None = Field(default=None, max_length=40, description="With `every_days`.", examples=["08:00"])
    first_day: str | None = Field(
        default=None,
        max_length=40,
        description="With `every_days`; without it the first on which the time is still to come.",
        examples=["2026-12-01"],
    )
    zone: str | None = Field(
        default=None,
        max_length=64,
        description="Time zone of the clock; without it the person's own.",
        examples=["Europe/Berlin"],
    )
    missed: Missed | None = Field(default=None, description=f"{_MISSED} Without it what fits mode and rule.")


class NewSchedule(RequestBody, ScheduleForm):
    """A schedule to be made, with one of `at`, `in_minutes`, `every_minutes`, `cron` and `every_days`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Water the plants", "everyDays": 3, "timeOfDay": "18:00"}]}
    )

    text: Text = Field(description="What is said, or what the agent is to do.")
    mode: Mode = Field(default="say", description=_MODE)
    user: UserName | None = Field(
        default=None, description="For whom: a user id or an account; the only user without it."
    )
    personality: PersonalityId | None = Field(default=None, description="Who does it; the configured one without it.")
    to: To | None = Field(default=None, description=f"{_TO} Needed where there are several.")


class ChangeSchedule(RequestBody, ScheduleForm):
    """What is to be different; what is left out stays. A new rule takes the place of the old one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cron": "0 8 * * 1-5"}]})

    text: Text | None = Field(default=None, description="What is said, or what the agent is to do.")
    mode: Mode | None = Field(default=None, description=_MODE)
    to: To | None = Field(default=None, description=_TO)
