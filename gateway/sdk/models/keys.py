"""API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from gateway.sdk.models.names import Scope
from gateway.sdk.models.schema import ApiModel, RequestBody, UserName


class Key(ApiModel):
    """A key, without its text."""

    id: str = Field(description="Id of the key.")
    name: str = Field(description="Its name.")
    scopes: tuple[str, ...] = Field(description="What it allows.")
    user: str | None = Field(description="The only person whose data it sees; null: everybody's.")
    created_at: datetime = Field(description="When it was made.")
    last_used_at: datetime | None = Field(description="When it was used last, to the minute.")
    revoked_at: datetime | None = Field(description="When it was revoked.")


class NewKey(Key):
    """A key that was just made."""

    key: str = Field(description="Its text, which is never shown again.")


class CreateKey(RequestBody):
    """Make a key."""

    name: str = Field(description="What it is for.", examples=["backup"])
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = Field(
        description="What it allows.", examples=[["memory:read"]]
    )
    user: UserName | None = Field(
        default=None, description="The only person whose data it sees: a user id or an account."
    )
