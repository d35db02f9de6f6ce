"""API keys: made, listed and revoked by the operator, or by people for themselves, and known again later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from gateway.people.api_keys import ApiKey, ApiKeys
from gateway.sdk.models import keys as wire
from gateway.services.caller import (
    OF_A_PERSON,
    PERMISSIONS,
    Caller,
    NotAllowed,
    NotFound,
    Permission,
    Refused,
    permissions_of,
)
from gateway.services.naming import Naming
from gateway.services.people import PeopleService

MAX_NAME_CHARS = 100
ABOUT: Mapping[str, Mapping[Permission, str]] = {
    "Chat": {
        "chat:read": "follow its own conversations",
        "chat:write": "send messages, and stop answers",
    },
    "Memory": {
        "memory:read": "read documents, their history and proposals",
        "memory:write": "write and undo, and decide on proposals",
        "traces:read": "search and export facts",
        "traces:write": "add, correct, merge, delete and import facts",
    },
    "Sessions": {
        "sessions:read": "find and read sessions",
        "sessions:write": "fork, rename, pin and delete them",
    },
    "Tools and schedules": {
        "tools:read": "see calls of tools, and those that wait for a yes",
        "schedules:read": "see schedules and their history",
        "schedules:write": "make, change, run and remove schedules",
    },
    "The gateway": {
        "people:read": "see people and pairing requests",
        "people:write": "let people in, link them, change roles, erase",
        "personalities:read": "see personalities",
        "personalities:write": "create and change personalities",
        "deliveries:read": "see messages that wait or failed",
        "deliveries:write": "retry and drop them, and send messages",
        "system:read": "see health, usage and the settings without secrets",
    },
}
"""What each scope allows, for people, in the groups in which they are offered."""


class KeyService:
    """The operator and owners make keys of everything and of everybody; a member who has signed in, keys of their own.

    Args:
        people: says whose a key is after links, and whether they still have access.
    """

    def __init__(self, keys: ApiKeys, naming: Naming, people: PeopleService) -> None:
        self._keys = keys
        self._naming = naming
        self._people = people

    async def create(self, caller: Caller, name: str, scopes: Sequence[str], user: str | None = None) -> wire.NewKey:
        """Make a key; its text is in the answer, and nowhere else ever.

        Raises:
            Malformed: a scope is none.
            Refused: the name cannot be printed, or a person's key cannot have a scope.
            NotNamed: no user has the id or account `user`.
            NotAllowed: the caller makes no keys, or none of this person or with these scopes.
        """
        own = self._own(caller)
        if not name.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise Refused(f"a key needs a name of 1 to {MAX_NAME_CHARS} characters that can be printed")
        wanted = permissions_of(scopes)
        user_id = await self._naming.user_for(caller, user)
        if own is not None and not all(map(caller.may, wanted)):
            raise NotAllowed("a key of yours can only do what concerns you alone")
        if user_id is not None and wanted - OF_A_PERSON:
            given = ", ".join(scope for scope in PERMISSIONS if scope in OF_A_PERSON)
            barred = ", ".join(sorted(wanted - OF_A_PERSON))
            raise Refused(f"the key of one person cannot have {barred}; it can have {given}")
        ordered = [scope for scope in PERMISSIONS if scope in wanted]
        key, text = await self._keys.create(name.strip(), ordered, user_id)
        return wire.NewKey(**_shown(key).model_dump(), key=text)

    async def all(self, caller: Caller) -> list[wire.Key]:
        """All that the caller may see, the newest first, those that are revoked too; no key's text."""
        return [_shown(key) for key in await self._visible(caller)]

    async def revoke(self, caller: Caller, name_or_id: str) -> wire.Key:
        """End a key at once.

        Raises:
            NotFound: there is none of that id or name that is in force.
            Refused: several have that name.
        """
        live = [key for key in await self._visible(caller) if key.revoked_at is None]
        found = [key for key in live if key.id == name_or_id] or [key for key in live if key.name == name_or_id]
        if not found:
            raise NotFound(f"there is no key {name_or_id} that is in force; `ethos keys list` shows all")
        if len(found) > 1:
            raise Refused(f"several keys have that name; revoke one by its id: {', '.join(key.id for key in found)}")
        await self._keys.store.revoke(found[0].id, datetime.now(UTC))
        return _shown(await self._keys.store.key(found[0].id) or found[0])

    async def caller(self, text: str) -> Caller | None:
        """The caller who holds the key; None where it is wrong or revoked, or its user has no access any more."""
        key = await self._keys.known(text)
        if key is None:
            return None
        user_id = await self._person(key)
        if user_id is None and key.user_id is not None:
            return None
        return Caller(
            name=f"api:{key.name}",
            permissions=frozenset(scope for scope in PERMISSIONS if scope in key.scopes),
            user_id=user_id,
            key_id=key.id,
        )

    async def is_in_force(self, caller: Caller) -> bool:
        """Whether the key of a caller is still good, and for the same user; the operator always is."""
        if caller.key_id is None:
            return True
        key = await self._keys.store.key(caller.key_id)
        return key is not None and key.revoked_at is None and await self._person(key) == caller.user_id

    @staticmethod
    def _own(caller: Caller) -> str | None:
        """The only person whose keys the caller makes and sees; None for the operator.

        Raises:
            NotAllowed: the caller is the holder of a key, or a guest.
        """
        if caller.signed_in is None or caller.signed_in.role != "member":
            caller.refuse_keys()
            return None
        return caller.signed_in.user_id

    async def _visible(self, caller: Caller) -> Sequence[ApiKey]:
        own = self._own(caller)
        found = await self._keys.store.keys()
        return [key for key in found if own is None or (key.user_id and self._people.survivor(key.user_id) == own)]

    async def _person(self, key: ApiKey) -> str | None:
        """The user whose key it is now; None for a key of no user, and for a user without access."""
        if key.user_id is None:
            return None
        user_id = self._people.survivor(key.user_id)
        return None if await self._people.is_barred(user_id) else user_id


def _shown(key: ApiKey) -> wire.Key:
    return wire.Key(
        id=key.id,
        name=key.name,
        scopes=key.scopes,
        user=key.user_id,
        created_at=key.created_at,
        last_used_at=key.last_used_at,
        revoked_at=key.revoked_at,
    )
