"""What people name on the command line, and what users are called there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gateway.files.atomic import check_id
from gateway.sdk.models.names import USER_PATTERN
from gateway.services.caller import NotNamed

if TYPE_CHECKING:
    from gateway.sdk.client import AsyncEthos


LONGEST_ACCOUNT = 512


def check_names(*, personality: str | None = None, user: str | None = None) -> None:
    """Refuse what can be no id.

    Raises:
        InvalidId, NotNamed: says what an id or an account looks like.
    """
    if personality is not None:
        check_id("personality", personality)
    if user is None:
        return
    if ":" not in user:
        check_id("user", user)
    elif not re.fullmatch(USER_PATTERN, user) or len(user) > LONGEST_ACCOUNT:
        raise NotNamed(f"the account {user[:80]!r} is not valid: it is `kind:id`, as `ethos people list` shows it")


async def labels(client: AsyncEthos) -> dict[str, str]:
    """A name for each user, for people; empty where the map of users cannot be read."""
    from gateway.sdk.errors import ServiceUnavailableError

    try:
        return {person.id: person.accounts[0].label async for person in client.people.list() if person.accounts}
    except ServiceUnavailableError:
        return {}
