"""How every value looks on the wire: names in camelCase, times in ISO 8601."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gateway.sdk.models.names import USER_PATTERN

T = TypeVar("T")

MAX_ID = 2**53 - 1
"""The largest number that every language's JSON keeps exactly (RFC 8259, section 6)."""
Id = Annotated[int, Field(ge=1, le=MAX_ID, examples=[17])]
"""The number of a row."""
ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
PersonalityId = Annotated[str, Field(pattern=ID_PATTERN, examples=["assistant"])]
UserName = Annotated[str, Field(pattern=USER_PATTERN, max_length=512, examples=["mail:ada@example.org"])]
"""A user id or an account, `kind:id`."""


def said_of(mistake: Mapping[str, Any]) -> str:
    """What pydantic says of one value, for people: a pattern tells programs that a text must have something to see."""
    is_blank = mistake.get("ctx", {}).get("pattern") == r"\S"
    return "it is empty; give a text" if is_blank else str(mistake["msg"])


class ApiModel(BaseModel):
    """A value in a response. A client ignores fields that it does not know, so that the server may be newer."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", serialize_by_alias=True
    )


class RequestBody(ApiModel):
    """A value in a request. An unknown field is a mistake of the caller, and reported as one."""

    model_config = ConfigDict(extra="forbid")


class Page(ApiModel, Generic[T]):
    """A part of a list."""

    items: tuple[T, ...] = Field(description="The items, in the order of the list.")
    next_cursor: str | None = Field(default=None, description="`cursor` of the next page; null at the end. Opaque.")


class FieldProblem(ApiModel):
    """What is wrong with one value of a request."""

    where: str = Field(description="Path of the value.", examples=["body.content"])
    problem: str = Field(description="What is wrong with it.")


class Problem(ApiModel):
    """Problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Kind of the problem, for programs.", examples=["urn:ethos:problem:not-found"])
    title: str = Field(description="Short name of the kind.", examples=["Not found"])
    status: int = Field(description="HTTP status.", examples=[404])
    detail: str = Field(default="", description="What happened and what to do, for people.")
    errors: tuple[FieldProblem, ...] = Field(default=(), description="Each wrong field of the request.")


class ConflictProblem(Problem):
    """The document changed since it was read; both texts are here, to be merged."""

    current: str = Field(description="The text as it is now.")
    current_version: str = Field(description="The version to write over, once both texts are merged.")
    proposed: str = Field(description="The text that was to be written.")
