"""Entity tags (RFC 9110, section 8.8.3): a version in quotes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from starlette.exceptions import HTTPException

IfNoneMatch = Annotated[str | None, Header(max_length=1000, description="ETags that are known; one of them is a 304.")]
IfMatch = Annotated[str | None, Header(max_length=200, description="The ETag of what is to be replaced.")]


def etag(version: str) -> str:
    """The tag of a version."""
    return f'"{version}"'


def is_known(version: str, if_none_match: str | None) -> bool:
    """Whether the client has it already."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag(version) in tags


def expected_version(in_body: str | None, if_match: str | None) -> str:
    """The version that a write expects, from its body or its `If-Match`.

    Raises:
        HTTPException: 428 there is neither, 412 they differ, or there is no one version.
    """
    tag = None if if_match is None else if_match.strip()
    if tag is not None and (len(tag) < 2 or tag[0] != '"' or tag[-1] != '"'):
        raise HTTPException(412, 'If-Match must be the one ETag that was read, such as "3a7b…".')
    version = None if tag is None else tag[1:-1]
    if in_body is None and version is None:
        raise HTTPException(
            428, "Say which version you read: `expectedVersion` in the body, or its ETag as `If-Match`."
        )
    if in_body is not None and version is not None and in_body != version:
        raise HTTPException(412, "`expectedVersion` and `If-Match` are different versions.")
    return in_body if in_body is not None else str(version)
