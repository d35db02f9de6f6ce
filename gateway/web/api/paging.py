"""Pages of a list: an opaque cursor says where the next one begins, so what is added meanwhile moves nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from gateway.sdk.models.schema import Page
from gateway.web.api.problems import WrongCursor

Limit = Annotated[int, Query(ge=1, le=200, description="At most so many.")]
Cursor = Annotated[
    str | None,
    Query(min_length=1, max_length=500, description="`nextCursor` of the page before; nothing for the first."),
]


Item = TypeVar("Item")
Place = tuple[int | str, ...]


def cursor_of(kind: str, place: Place) -> str:
    """A cursor of that kind of list: what the last item is known by."""
    text = json.dumps([kind, *place], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(kind: str, cursor: str | None, *types: type) -> Place | None:
    """What the last item of the page before is known by; None for the first page.

    Args:
        types: of the values.

    Raises:
        WrongCursor: it is no cursor of this list.
    """
    if cursor is None:
        return None
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise no_page() from error
    if not isinstance(found, list) or found[:1] != [kind] or len(found) != len(types) + 1:
        raise no_page()
    for value, wanted in zip(found[1:], types, strict=True):
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise no_page()
        if isinstance(value, int) and abs(value) >= 2**63:
            raise no_page()
    return tuple(found[1:])


def number_of(kind: str, cursor: str | None) -> int | None:
    """As `place_of`, where an item is known by a number."""
    place = place_of(kind, cursor, int)
    return None if place is None else int(place[0])


def page_of(kind: str, found: Sequence[Item], limit: int, place: Callable[[Item], Place]) -> Page[Item]:
    """The first `limit` of what was found, and a cursor where there are more."""
    rest = cursor_of(kind, place(found[limit - 1])) if len(found) > limit else None
    return Page(items=tuple(found[:limit]), next_cursor=rest)


def no_page() -> WrongCursor:
    """What is said to a cursor that is none of this list."""
    return WrongCursor("this list has no such page; give the `nextCursor` of the page before as it is, or no cursor")
