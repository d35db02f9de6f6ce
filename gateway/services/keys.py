"""API keys: made, listed and revoked by the operator, and known again when they come back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gateway.people.api_keys import ApiKey, ApiKeys
from gateway.sdk.models import keys as wire
from gateway.services.caller import OF_A_PERSON, PERMISSIONS, Caller, NotFound, Refused, permissions_of
from gateway.services.naming import Naming
from gateway.services.people import PeopleService

MAX_NAME_CHARS = 100


class KeyService:
    """The operator's only.

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
            NotAllowed: only the operator makes keys.
        """
        caller.refuse_keys()
        if not name.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise Refused(f"a key needs a name of 1 to {MAX_NAME_CHARS} characters that can be printed")
        wanted = permissions_of(scopes)
        user_id = None if user is None else await self._naming.user(caller, user)
        if user_id is not None and wanted - OF_A_PERSON:
            given = ", ".join(scope for scope in PERMISSIONS if scope in OF_A_PERSON)
            barred = ", ".join(sorted(wanted - OF_A_PERSON))
            raise Refused(f"the key of one person cannot have {barred}; it can have {given}")
        ordered = [scope for scope in PERMISSIONS if scope in wanted]
        key, text = await self._keys.create(name.strip(), ordered, user_id)
        return wire.NewKey(**_shown(key).model_dump(), key=text)

    async def all(self, caller: Caller) -> list[wire.Key]:
        """All, the newest first, those that are revoked too; no key's text."""
        caller.refuse_keys()
        return [_shown(key) for key in await self._keys.store.keys()]

    async def revoke(self, caller: Caller, name_or_id: str) -> wire.Key:
        """End a key at once.

        Raises:
            NotFound: there is none of that id or name that is in force.
            Refused: several have that name.
        """
        caller.refuse_keys()
        live = [key for key in await self._keys.store.keys() if key.revoked_at is None]
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
