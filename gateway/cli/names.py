"""What people name on the command line, and what users are called there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.files.atomic import check_id

if TYPE_CHECKING:
    from gateway.sdk.client import AsyncEthos


def check_names(*, personality: str | None = None, user: str | None = None) -> None:
    """Refuse what can be no id.

    Raises:
        InvalidId: says what an id looks like.
    """
    if personality is not None:
        check_id("personality", personality)
    if user is not None and ":" not in user:
        check_id("user", user)


async def labels(client: AsyncEthos) -> dict[str, str]:
    """A name for each user, for people; empty where the map of users cannot be read."""
    from gateway.sdk.errors import ServiceUnavailableError

    try:
        return {person.id: person.accounts[0].label async for person in client.people.list() if person.accounts}
    except ServiceUnavailableError:
        return {}
