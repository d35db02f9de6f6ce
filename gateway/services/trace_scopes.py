"""Whose traces a caller may see and change: decided by who the caller is, never by what the request says."""

from __future__ import annotations

from gateway.config import LiveConfig
from gateway.domain.roles import may
from gateway.domain.sessions import LOCAL, OPERATOR_ACCOUNT, SessionStore
from gateway.people.linking.links import LinkStore
from gateway.sdk.models.traces import AddTrace
from gateway.services.caller import Ambiguous, Caller, Malformed, NotFound, NotNamed
from gateway.services.naming import Naming, scope_for
from gateway.services.people import PeopleService
from gateway.store.engine import Engine
from gateway.store.persons import session_ids
from gateway.traces.trace import PERSONAL, Viewer
from gateway.traces.transfer.bounds import Bounds, Everything, OfPerson
from gateway.traces.turn_facts import viewer_of


class TraceScopes:
    """Makes viewers and bounds."""

    def __init__(
        self,
        *,
        naming: Naming,
        people: PeopleService,
        links: LinkStore,
        sessions: SessionStore,
        database: Engine,
        config: LiveConfig,
    ) -> None:
        self._naming = naming
        self._people = people
        self._links = links
        self._sessions = sessions
        self._database = database
        self._config = config

    async def viewer(self, caller: Caller) -> Viewer:
        """On whose behalf the trace store is asked: everything, one whole person, or the turn of a person in a chat."""
        chat = caller.chat
        if chat is not None:
            return viewer_of(scope_for(caller, chat.personality_id, caller.user_id), chat.role)
        if caller.user_id is None:
            return Viewer(
                user_id=None, personality_id=self._config.current.personality, session_id=None, extent="everything"
            )
        role = await self._people.role_of(caller.user_id)
        may_share, reads_shared = may(role, "write shared memory"), may(role, "read shared memory")
        return await self.person(caller.user_id, may_share=may_share, reads_shared=reads_shared)

    async def person(self, user_id: str, *, may_share: bool = True, reads_shared: bool = True) -> Viewer:
        """All that is a person's, under each of their ids."""
        ids = await self._links.person_ids(user_id)
        return Viewer(
            user_id=user_id,
            personality_id=self._config.current.personality,
            session_id=None,
            other_ids=tuple(each for each in ids if each != user_id),
            may_share=may_share,
            reads_shared=reads_shared,
            extent="person",
            sessions=tuple(await session_ids(self._database, user_id)),
        )

    async def writer(self, caller: Caller, wanted: AddTrace) -> Viewer:
        """On whose behalf a new trace is written.

        Raises:
            Malformed: a session is missing.
            NotFound: there is no such session, or not for the caller.
            NotNamed: it is not clear who is meant, or there are no users yet.
            NotAllowed: it is another person.
        """
        user_id = await self._naming.user_for(caller, wanted.user)
        if user_id is None and wanted.scope in PERSONAL:
            user_id = await self._naming.only_user(caller)
            if user_id is None:
                raise NotNamed("there are no users yet who could own it; the first person who writes becomes one")
        if wanted.scope == "thread":
            await self._check_session(caller, wanted.session)
        may_share = caller.user_id is None or may(await self._people.role_of(caller.user_id), "write shared memory")
        return Viewer(
            user_id=user_id,
            personality_id=wanted.personality or self._config.current.personality,
            session_id=wanted.session if wanted.scope == "thread" else None,
            may_share=may_share,
        )

    async def asker(self, caller: Caller, user: str | None, personality: str | None) -> Viewer:
        """A person who asks a personality, in a conversation that has no traces of its own.

        Raises:
            NotNamed: it is not clear who is meant, or there are no users yet.
            NotAllowed: it is another person.
        """
        user_id = await self._naming.user_for(caller, user) or await self._naming.only_user(caller)
        if user_id is None:
            raise NotNamed("there are no users yet, so nothing is remembered; the first person who writes becomes one")
        reads_shared = caller.user_id is None or may(await self._people.role_of(user_id), "read shared memory")
        personality_id = personality or self._config.current.personality
        return Viewer(user_id=user_id, personality_id=personality_id, session_id=None, reads_shared=reads_shared)

    async def first_person(self, caller: Caller, user: str | None) -> str | None:
        """The operator as a new user, who owns what the command line imports before there is anybody; else None."""
        if user is not None or not caller.is_at_machine or await self._naming.identities.users():
            return None
        operator = [(f"{LOCAL}:{OPERATOR_ACCOUNT}", "Operator")]
        return await self._naming.identities.ensure_joined(operator, via="operator")

    async def bounds(self, caller: Caller, user: str | None, *, is_dry_run: bool = False) -> Bounds:
        """Whose traces leave, and whose those become that come.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: they are not for the caller.
        """
        user_id = await self._naming.user_for(caller, user)
        if user_id is None:
            fallback = await self._only_person(caller)
            if fallback is None and is_dry_run and caller.is_at_machine and not await self._naming.identities.users():
                fallback = await self.person(OPERATOR_ACCOUNT)  # for the user who would be made
            return Everything(fallback=fallback)
        viewer = await self.viewer(caller) if caller.user_id is not None else await self.person(user_id)
        return OfPerson(viewer, frozenset(viewer.sessions))

    async def _only_person(self, caller: Caller) -> Viewer | None:
        """Whose traces become that do not say whose they are."""
        try:
            user_id = await self._naming.only_user(caller)
        except Ambiguous:
            return None
        return None if user_id is None else await self.person(user_id)

    async def _check_session(self, caller: Caller, session: str | None) -> None:
        if session is None:
            raise Malformed("a trace of the scope `thread` needs its `session`")
        is_there = await self._sessions.session(session) is not None
        if caller.user_id is not None:
            is_there = is_there and session in await session_ids(self._database, caller.user_id)
        if not is_there:
            raise NotFound(f"there is no session {session}")
