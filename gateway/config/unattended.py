"""What begins turns that nobody waits for: hooks, which services call, and the heartbeat."""

from __future__ import annotations

import re
from datetime import time
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from gateway.config.values import Count, Section, Text, Usd, no_truth, time_of_day
from gateway.domain.hook_proofs import Proof, check_secret
from gateway.files.atomic import is_id
from gateway.files.positions.validation import did_you_mean, shown
from gateway.files.positions.yaml import KeyPath, MarkedYaml, value_at

OWNER = "owner"
"""In the place of an address: the owner, in the direct chat that they used last."""
_ADDRESS = re.compile(r"[A-Za-z0-9_-]{1,64}:\S+")
_EVERY = re.compile(r"([1-9][0-9]{0,3}) ?(m|h)")
_HOURS = re.compile(r"(\S+) ?- ?(\S+)")
_ENABLED = ("schedules", "enabled")
LEAST_EVERY_MINUTES = 5
MOST_EVERY_MINUTES = 24 * 60


def _addressee(value: str) -> str:
    if value != OWNER and not _ADDRESS.fullmatch(value):
        raise ValueError("no person; expected owner, or a channel and an account on it, such as mail:ada@example.org")
    return value


def _minutes(value: Any) -> Any:
    if not isinstance(value, str):
        return no_truth(value)
    found = _EVERY.fullmatch(value.strip())
    if found is None:
        raise ValueError("not a duration; expected one such as 30m or 1h")
    minutes = int(found[1]) * (60 if found[2] == "h" else 1)
    if not LEAST_EVERY_MINUTES <= minutes <= MOST_EVERY_MINUTES:
        raise ValueError("too short or too long; expected a duration from 5m to 24h")
    return minutes


def _hours(value: str) -> str:
    found = _HOURS.fullmatch(value)
    if found is None:
        raise ValueError('not hours of a day; expected them as "08:00-21:00"')
    return f"{time_of_day(found[1])}-{time_of_day(found[2])}"


Addressee = Annotated[Text, AfterValidator(_addressee)]


class HookConfig(Section):
    """One hook, by the name it has in `hooks`, which is the end of its address.

    Attributes:
        proof: how a call shows that its sender knows the secret.
        previous_secret: still good while the service changes to the other one.
        text: what the agent is to do with what the service sends.
        mode: `do` answers each call; `watch` only reports what is worth it.
        to: who gets the answer, and whose rights and memory the turn has.
        personality: who answers; None for the default one.
    """

    secret: SecretStr
    previous_secret: SecretStr | None = None
    proof: Proof = "standard"
    text: Annotated[Text, Field(max_length=4_000)]
    mode: Literal["do", "watch"] = "do"
    to: Addressee = OWNER
    personality: Text | None = None

    @model_validator(mode="after")
    def _has_secrets(self) -> Self:
        for secret in self.secrets:
            check_secret(self.proof, secret)
        return self

    @property
    def secrets(self) -> list[str]:
        """Those that are good, the newer one first."""
        return [one.get_secret_value() for one in (self.secret, self.previous_secret) if one is not None]


class HeartbeatConfig(Section):
    """Now and then, the agent looks by itself whether there is something to say.

    Attributes:
        every: minutes from one look to the next; None: never.
        hours: of the owner's day in which it looks; None: all.
        to: who hears of it.
        personalities: whose `HEARTBEAT.md` says what to look at; empty: the default one's.
        budget_usd_per_day: for all its looks together; None: no limit of its own.
    """

    every: Annotated[Count, BeforeValidator(_minutes), Field(ge=LEAST_EVERY_MINUTES, le=MOST_EVERY_MINUTES)] | None = (
        None
    )
    hours: Annotated[Text, AfterValidator(_hours)] | None = None
    to: Addressee = OWNER
    personalities: tuple[Text, ...] = ()
    budget_usd_per_day: Usd | None = None

    @property
    def times(self) -> tuple[time, time]:
        """From when to when; the same time twice for the whole day."""
        begins, ends = (self.hours or "00:00-00:00").split("-")
        return time.fromisoformat(begins), time.fromisoformat(ends)


def hook_name(value: str) -> str:
    """The name of a hook, which stands in its address."""
    if not is_id(value):
        raise ValueError("not a hook's name; expected 1 to 64 of A-Z a-z 0-9 _ -")
    return value


def named_personalities(values: Any) -> list[KeyPath]:
    """Where the file names personalities."""
    hooks, heartbeat = _section(values, "hooks"), _section(values, "heartbeat")
    listed = heartbeat.get("personalities")
    named: list[KeyPath] = [("hooks", name, "personality") for name in hooks]
    return named + [("heartbeat", "personalities", at) for at in range(len(listed) if isinstance(listed, list) else 0)]


def check_unattended(document: MarkedYaml) -> None:
    """Whom they tell must be on a channel that there is; a hook has a name and a secret of its own."""
    hooks, channels = _section(document.values, "hooks"), _section(document.values, "channels")
    for name in sorted(hooks.keys() & channels.keys()):
        text = "a channel has this name, too, and so perhaps this address; expected another name"
        document.complain(("hooks", name), text, at_key=True)
    holders: dict[str, str] = {}
    for name, hook in hooks.items():
        secrets = [hook.get(key) for key in ("secret", "previous_secret")] if isinstance(hook, dict) else []
        others = {holders.setdefault(one, name) for one in secrets if isinstance(one, str)} - {name}
        if others:  # or a call of one could be sent to the other
            text = f"has the same secret as the hook {min(others)}; expected one of its own"
            document.complain(("hooks", name), text, at_key=True)
    if _section(document.values, "heartbeat").get("every") and value_at(document.values, _ENABLED) is False:
        document.complain(("heartbeat", "every"), "`schedules.enabled` is false; expected it left out, or schedules on")
    paths: list[KeyPath] = [*(("hooks", name, "to") for name in hooks), ("heartbeat", "to")]
    for path in paths:
        channel, colon, _ = str(value_at(document.values, path) or "").partition(":")
        if colon and channel not in channels:
            text = f"there is no channel {shown(channel)}{did_you_mean(channel, channels)}"
            document.complain(path, f"{text}; expected owner, or an account on one of `channels`")


def _section(values: Any, name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}
