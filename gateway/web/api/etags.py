"""Entity tags (RFC 9110, section 8.8.3): a version in quotes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

IfNoneMatch = Annotated[str | None, Header(max_length=1000, description="ETags that are known; one of them is a 304.")]
IfMatch = Annotated[str | None, Header(max_length=1000, description="The ETag of what is to be replaced.")]


def etag(version: str) -> str:
    """The tag of a version."""
    return f'"{version}"'


def is_known(version: str, if_none_match: str | None) -> bool:
    """Whether the client has it already."""
    if if_none_match is None:
        return False
    tags = [tag.removeprefix("W/") for tag in _tags(if_none_match)]  # compared weakly, as RFC 9110 has it
    return "*" in tags or etag(version) in tags


def expected_version(in_body: str, if_match: str | None) -> str:
    """The version that a write expects; nothing, which is none, where its body and its `If-Match` differ."""
    return in_body if if_match is None or "*" in _tags(if_match) or etag(in_body) in _tags(if_match) else ""


def _tags(header: str) -> list[str]:
    return [tag.strip() for tag in header.split(",")]
