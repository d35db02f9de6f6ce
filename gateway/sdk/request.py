"""A request to the API as a value: everything that one operation has of its own, and no input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, cast
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from gateway.sdk.errors import APIResponseValidationError
from gateway.sdk.models.schema import RequestBody

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Value = str | int | bool | tuple[str, ...] | None

IDEMPOTENCY_KEY = "idempotency-key"
LONG_TIMEOUT_S = 3600.0
"""For operations that answer when they are done: reading or writing a million traces takes minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """A body that was written into a file, and what the headers said of it."""

    path: Path
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One request.

    Attributes:
        path: below `/api/v1`, with `{names}` for the values in `path_values`.
        result: of a good response: a model, `str` for plain text, `bytes` for a small file, `NoneType` for nothing.
        query: by the names of the wire; what is None is left out.
        idempotency_key: of a write; one is made where there is none.
        upload: a file that is the body, read while it is sent.
        download: where the body of a good response is written, with `result` as `Downloaded`.
        timeout_s: for one try of an operation that takes longer than others.
    """

    method: Method
    path: str
    result: type[T]
    path_values: Mapping[str, Value] = field(default_factory=dict)
    query: Mapping[str, Value] = field(default_factory=dict)
    body: RequestBody | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    upload: Path | None = None
    download: Path | None = None
    timeout_s: float | None = None

    @property
    def target(self) -> str:
        """Path and query, ready to be sent."""
        values = {name: quote(str(value), safe="", errors="replace") for name, value in self.path_values.items()}
        path = self.path.format_map(values)
        asked = [(name, text) for name, value in self.query.items() for text in _texts(value)]
        query = urlencode(asked, errors="replace")
        return f"{path}?{query}" if query else path

    @property
    def content(self) -> bytes | None:
        """The body as JSON. Only what the caller gave is sent: the server knows its own defaults."""
        if self.body is None:
            return None
        return self.body.model_dump_json(by_alias=True, exclude_none=True).encode("utf-8", "replace")

    def with_query(self, **query: Value) -> Request[T]:
        """The same with more in its query."""
        return replace(self, query={**self.query, **query})

    def parse(self, response: Response) -> T:
        """The value of a good response.

        Raises:
            APIResponseValidationError: it is none of this operation.
        """
        wanted: Any = self.result
        if wanted is NoneType:
            return cast(T, None)
        if wanted is Downloaded:
            return cast(T, Downloaded(path=cast(Path, self.download), headers=response.headers))
        if wanted is bytes:
            return cast(T, response.body)
        if wanted is str:
            return cast(T, response.body.decode("utf-8", "replace"))
        try:
            if issubclass(wanted, BaseModel):
                return cast(T, wanted.model_validate_json(response.body))
        except ValidationError as error:
            raise APIResponseValidationError(
                f"the response to {self.method} {self.path} is not what this version of the client expects: "
                f"{error.error_count()} fields are wrong, the first is {error.errors()[0]['loc']}"
            ) from error
        raise TypeError(f"{wanted} is no form of a response")


def _texts(value: Value) -> Sequence[str]:
    if value is None:
        return ()
    if isinstance(value, tuple):
        return value
    return (str(value).lower() if isinstance(value, bool) else str(value),)
