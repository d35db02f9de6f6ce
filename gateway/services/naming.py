"""Whom and what people name: users by an id or an account, and the memory of a user and a personality."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities, Personality
from gateway.domain.roles import memory_of
from gateway.errors import FileError, IdentityMapBroken
from gateway.files.atomic import check_id
from gateway.files.positions.validation import did_you_mean
from gateway.memory.paths import scope_of_key
from gateway.people.identity.identities import Identities, User
from gateway.people.linking.links import LinkStore
from gateway.protocols import MemoryPlace, MemoryProvider, MemoryScope, MemoryStoreName
from gateway.services.caller import Ambiguous, Caller, NotNamed

_MOST_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Whose memory is meant, as far as it was said."""

    personality: str | None = None
    user: str | None = None
    store: MemoryStoreName | None = None


class Naming:
    """Finds who is meant.

    Args:
        memory: knows of people who were taken out of the map.
        links: know of users who became part of another.
    """

    def __init__(
        self,
        memory: MemoryProvider,
        identities: Identities,
        personalities: Personalities,
        *,
        links: LinkStore,
        config: LiveConfig,
    ) -> None:
        self._memory = memory
        self._links = links
        self.identities = identities
        self._personalities = personalities
        self._config = config

    async def labels(self, caller: Caller | None = None) -> dict[str, str]:
        """A name for each user that the caller may see, for people; empty where the map cannot be read."""
        only = None if caller is None else caller.user_id
        with contextlib.suppress(IdentityMapBroken, FileError):
            users = await self.identities.users()
            return {user.id: user.accounts[0].label for user in users if only in (None, user.id)}
        return {}

    async def user(self, caller: Caller, wanted: str) -> str:
        """The id of a user that was named by it, or by an account; `caller` is who reads the error.

        Raises:
            InvalidId: it can be neither.
            NotNamed: no user is known by it.
        """
        users = await self.identities.users()
        for user in users:
            if wanted == user.id or wanted in (account.key for account in user.accounts):
                return user.id
        if ":" not in wanted:
            check_id("user", wanted)
            if await self._is_linked(wanted) or await self._is_remembered(caller, wanted):
                return wanted
        known = [user.id for user in users] + [account.key for user in users for account in user.accounts]
        raise NotNamed(f"there is no user {wanted}{did_you_mean(wanted, known)}{self._listed(users, caller)}")

    async def _is_linked(self, user_id: str) -> bool:
        """Whether this user is part of another one, under whom the map has the accounts."""
        return any(user_id in (one.survivor, one.absorbed) for one in await self._links.links())

    async def _is_remembered(self, caller: Caller, user_id: str) -> bool:
        """Whether the memory still has something about a user who was taken out of the map."""
        per_user = [
            one.id
            for one in self._personalities.list()
            if isinstance(one, Personality) and one.memory_scope == "per-user"
        ]
        scopes = [scope_for(caller, one, user_id, "per-user") for one in per_user or [self._config.current.personality]]
        found = [await self._memory.prefetch(scope) for scope in scopes]
        return any(found)

    async def user_for(self, caller: Caller, wanted: str | None) -> str | None:
        """The same for a caller: one who sees one person only may name no other.

        Raises:
            NotAllowed: it is not for them.
        """
        if caller.user_id is None:
            return None if wanted is None else await self.user(caller, wanted)
        if wanted not in (None, caller.user_id):
            accounts = await self.identities.accounts_of(caller.user_id)
            caller.refuse_others(caller.user_id if wanted in (account.key for account in accounts) else wanted)
        return caller.user_id

    async def only_user(self, caller: Caller) -> str | None:
        """The id of the only user, None where there is none yet; `caller` is who reads the error.

        Raises:
            Ambiguous: there are several; lists them.
        """
        users = await self.identities.users()
        if len(users) > 1:
            option = "--user" if caller.is_at_machine else "`user`"
            raise Ambiguous(f"there are {len(users)} users; say which with {option}{self._listed(users, caller)}")
        return users[0].id if users else None

    @staticmethod
    def _listed(users: Sequence[User], caller: Caller) -> str:
        """Where to find the users; for the operator at the command line the first few themselves."""
        if not users:
            return "; there are no users yet"
        if not caller.is_at_machine:
            return "; `people` lists all"
        lines = [f"  {user.id}  {', '.join(one.key for one in user.accounts)}" for user in users[:_MOST_LISTED]]
        more = [f"  and {len(users) - _MOST_LISTED} more: `ethos people list`"] if len(users) > _MOST_LISTED else []
        return "\n".join(["; there are:", *lines, *more])

    async def memory(self, caller: Caller, wanted: Wanted) -> tuple[MemoryScope, Sequence[MemoryStoreName]]:
        """Whose memory is meant, and which of its stores: those that were not excluded and can be there.

        Raises:
            InvalidId: an id is malformed.
            PersonalityError: there is no such personality.
            NotNamed: it is not clear which user is meant, or there is none.
            NotAllowed: it is not for the caller.
        """
        chat = caller.chat
        usual = self._config.current.personality if chat is None else chat.personality_id
        await self._personalities.refresh()
        personality = self._personalities.get(wanted.personality or usual)
        place = personality.memory_scope if chat is None else memory_of(chat.role, personality.memory_scope)
        is_per_user = place == "per-user"
        stores: list[MemoryStoreName] = [wanted.store] if wanted.store else ["user", "memory"]
        user_id = await self.user_for(caller, wanted.user)
        if user_id is None and ("user" in stores or is_per_user):
            user_id = await self.only_user(caller)
        if caller.user_id is not None and chat is None and not is_per_user:  # a key sees nothing that others share
            stores = [store for store in stores if store == "user"]
            if not stores:
                caller.refuse_others(None)
        if user_id is None:
            stores = [] if is_per_user else [store for store in stores if store != "user"]
        if not stores:
            raise NotNamed("there are no users yet, so there is no memory; the first person who writes becomes a user")
        return scope_for(caller, personality.id, user_id, place), stores


def scope_for(
    caller: Caller, personality_id: str, user_id: str | None, place: MemoryPlace = "per-personality"
) -> MemoryScope:
    """On behalf of a caller: in a chat of the turn, else without one; the memory makes each write a turn of its own."""
    chat = caller.chat
    return MemoryScope(
        personality_id=personality_id,
        user_id=user_id,
        session_id=None if chat is None else chat.session_id,
        turn_id=caller.name if chat is None else chat.turn_id,
        place=place,
        channel=caller.name,
        author_id=None if chat is None else caller.user_id,
    )


def scope_of(caller: Caller, document: str) -> tuple[MemoryScope, MemoryStoreName]:
    """The scope in which a document of the journal is found, from the path that names it there.

    Raises:
        InvalidId: it is no path of a memory document.
    """
    scope, store = scope_of_key(document)
    return scope_for(caller, scope.personality_id, scope.user_id, scope.place), store
