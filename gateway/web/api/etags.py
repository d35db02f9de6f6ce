"""Entity tags (RFC 9110, section 8.8.3): a version in quotes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

from gateway.web.api.problems import VersionRequired

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


def expected_version(in_body: str | None, if_match: str | None) -> str:
    """The version that a write expects, by its body or its `If-Match`; empty, which is none, where the two differ.

    Tags are compared strongly (RFC 9110, section 13.1.1): a weak one is none.

    Raises:
        VersionRequired: neither names one version.
    """
    tags = [] if if_match is None else _tags(if_match)
    if in_body is None:
        if len(tags) != 1 or tags == ["*"]:
            raise VersionRequired("say which version is to be replaced: its `ETag` as `If-Match`, or `expectedVersion`")
        return tags[0].removeprefix('"').removesuffix('"') if tags[0].startswith('"') else ""
    return in_body if not tags or "*" in tags or etag(in_body) in tags else ""


def _tags(header: str) -> list[str]:
    return [tag.strip() for tag in header.split(",")]
