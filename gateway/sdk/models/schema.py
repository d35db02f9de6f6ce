"""How every value looks on the wire: names in camelCase, times in ISO 8601."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

T = TypeVar("T")

MAX_ID = 2**53 - 1
"""The largest number that every language's JSON keeps exactly (RFC 8259, section 6)."""
Id = Annotated[int, Field(ge=1, le=MAX_ID)]
"""Of a row."""
ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
USER_PATTERN = "^([A-Za-z0-9_-]{1,64}|[^:]+:.+)$"
PersonalityId = Annotated[str, Field(pattern=ID_PATTERN)]
UserName = Annotated[str, Field(pattern=USER_PATTERN, max_length=512)]
"""A user id or an account, `kind:id`."""


class Wire(BaseModel):
    """A value that is answered. A client takes fields that it does not know, so that the server may be newer."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", serialize_by_alias=True
    )


class Sent(Wire):
    """A value that is asked for. A field that is not known is a mistake of the caller, and said to be one."""

    model_config = ConfigDict(extra="forbid")


class Page(Wire, Generic[T]):
    """A part of a list.

    Attributes:
        items: in the list's order.
        next_cursor: for the next part; None at the end. Opaque.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None


class FieldProblem(Wire):
    """What is wrong with one value of a request.

    Attributes:
        where: such as `body.content` or `query.limit`.
    """

    where: str
    problem: str


class Problem(Wire):
    """RFC 9457: what went wrong, for programs by `type`, for people by `detail`."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = ""
    errors: tuple[FieldProblem, ...] = ()


class ConflictProblem(Problem):
    """The document changed since it was read: both texts, and the version to write over next."""

    current: str
    current_version: str
    proposed: str
