"""Channels: the kinds that there are, those that are set up, and what a platform says of a login."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gateway.sdk.models.schema import ID_PATTERN, ApiModel, RequestBody

ChannelState = Literal["starting", "up", "down", "auth_failed", "stopped", "elsewhere", "paused"]
_NAME = "Name of the channel."
_SETTINGS = (
    "Keys of the channel in config.yaml, those of its kind and those that all channels have. A secret is a text, which "
    "is kept in a file of its own, or `${NAME}`, `{file: path}` or `{keyring: name}`."
)


class ChannelKey(ApiModel):
    """A key that a kind of channel has of its own."""

    name: str = Field(description="The key; with dots where it stands in a section.", examples=["token"])
    description: str = Field(description="What it is for.")
    type: Literal["text", "secret", "number", "switch", "choice", "list"] = Field(description="What it holds.")
    choices: tuple[str, ...] = Field(default=(), description="Of a `choice`, all values.")
    default: Any = Field(default=None, description="Its default; null where there is none.")
    is_required: bool = Field(description="There is no channel without it.")
    is_common: bool = Field(description="Everybody needs it; the others are for some.")


class ChannelStep(ApiModel):
    """One thing to do in the platform's own console."""

    title: str = Field(description="What to do.")
    text: str = Field(description="How, as Markdown.")
    picture: str | None = Field(description="Name of its picture in the dashboard; null where there is none.")
    shows: str | None = Field(description="What the picture shows, in words.")
    copied: str | None = Field(description="Text to paste there; null where there is none.")
    gives: tuple[str, ...] = Field(description="Keys that one has after it.")


class ChannelKind(ApiModel):
    """A kind of channel."""

    kind: str = Field(description="Its name in the configuration.")
    title: str = Field(description="The platform's name, as people write it.")
    summary: str = Field(description="What a channel of this kind is.")
    install: str | None = Field(description="Command that installs what it needs; null where all is there.")


class ChannelKindDetail(ChannelKind):
    """A kind of channel, with the way to a login."""

    can_try: bool = Field(description="Its platform can be asked who a login is, before there is a channel.")
    access_default: str = Field(description="Who may talk where `access` does not say.")
    keys: tuple[ChannelKey, ...] = Field(description="Its own keys; empty where something must be installed first.")
    steps: tuple[ChannelStep, ...] = Field(description="What to do in the platform's own console.")
    then: tuple[str, ...] = Field(description="What to do once the channel is connected, as Markdown.")


class Channel(ApiModel):
    """A channel of the configuration."""

    name: str = Field(description=_NAME, examples=["phone"])
    kind: str = Field(description="Its kind.")
    state: ChannelState = Field(description="`paused` in the configuration, `elsewhere`: another worker has it.")
    since: datetime | None = Field(description="When the state began; null where it is not known.")
    error: str | None = Field(description="Why it is not up, or what does not work although it is, for people.")
    access: str = Field(description="Who may talk: `owner`, `allowlist`, `pairing` or `open`.")
    waiting_in: int = Field(description="Messages that wait for an answer.")
    waiting_out: int = Field(description="Answers that wait to be sent.")


class ChannelDetail(Channel):
    """A channel, with its keys."""

    command_form: str = Field(description="What people type there for a command, around `{command}`.")
    settings: dict[str, Any] = Field(
        description="As they stand in config.yaml; of a secret that stands there itself, only that it is there."
    )


class ChannelLogin(RequestBody):
    """A login to be tried; nothing is written."""

    kind: str = Field(max_length=200, description="Kind of the channel.")
    settings: dict[str, Any] = Field(default_factory=dict, description=_SETTINGS)
    channel: str | None = Field(
        default=None, pattern=ID_PATTERN, description="A channel that is there: what is left out is as it has it."
    )


class NewChannel(RequestBody):
    """A channel to be added."""

    name: str = Field(pattern=ID_PATTERN, description=_NAME, examples=["phone"])
    kind: str = Field(max_length=200, description="Kind of the channel.")
    settings: dict[str, Any] = Field(default_factory=dict, description=_SETTINGS)


class ChangeChannel(RequestBody):
    """What is to be different."""

    settings: dict[str, Any] = Field(description=f"{_SETTINGS} Null removes a key; what is left out stays as it is.")


class ChannelTrial(ApiModel):
    """What a platform says of a login."""

    is_taken: bool = Field(description="The platform takes the login.")
    account: str | None = Field(description="Who it is, by the name that people know.", examples=["@your_bot"])
    address: str | None = Field(description="Link under which people find it, or that invites it.")
    problems: tuple[str, ...] = Field(description="What keeps it from working, with what to do.")
    hints: tuple[str, ...] = Field(description="What works and is good to know.")


class ChannelChange(ApiModel):
    """What became of a change of the channels."""

    channel: str = Field(description=_NAME)
    is_in_use: bool = Field(description="The gateway works with it now; false: its next start does.")
    notes: tuple[str, ...] = Field(description="What is to be known or done besides, for people.")
    dropped: int = Field(default=0, description="Messages and answers that waited and were dropped.")
