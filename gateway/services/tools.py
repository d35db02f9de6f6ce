"""What tools did, for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gateway.sdk.models import tools as wire
from gateway.services.caller import Caller
from gateway.services.naming import Naming
from gateway.tools.journal import ToolLog


class ToolService:
    """The log of all calls. A caller who sees one person only sees what was called on that person's behalf."""

    def __init__(self, log: ToolLog, naming: Naming, person_ids: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._log = log
        self._naming = naming
        self._person_ids = person_ids

    async def calls(
        self, caller: Caller, *, user: str | None = None, limit: int, before: int | None = None
    ) -> Sequence[wire.ToolUse]:
        """The latest first; `before` a number.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: the caller may not see that person.
        """
        user_id = await self._naming.user_for(caller, user)
        user_ids = None if user_id is None else await self._person_ids(user_id)
        return [
            wire.ToolUse(
                id=number,
                at=row.began_at,
                user=row.user_id,
                personality=row.personality_id,
                session=row.session_id,
                turn=row.key.turn_id,
                tool=row.tool,
                effect=row.effect,
                arguments=row.arguments,
                state=row.state,
                took_s=row.took_s,
            )
            for number, row in await self._log.calls(user_ids=user_ids, before=before, limit=limit)
        ]
