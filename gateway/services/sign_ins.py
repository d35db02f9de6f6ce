"""Who is signed in to the web pages: known as a caller, listed, and signed out."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.people.sign_ins import SignIn, SignIns
from gateway.services.caller import Caller, NotFound, on_pages
from gateway.services.people import PeopleService


class SignInService:
    """An owner sees and ends all sign-ins; a person their own."""

    def __init__(self, sign_ins: SignIns, people: PeopleService) -> None:
        self._sign_ins = sign_ins
        self._people = people

    async def caller(self, user_id: str) -> Caller | None:
        """The person who has signed in, as their role is now; None where they have no access any more."""
        user_id = self._people.survivor(user_id)
        role = await self._people.standing(user_id)
        return None if role is None else on_pages(user_id, role)

    async def listed(self, caller: Caller) -> Sequence[SignIn]:
        """Those that count now and that the caller may see, the last seen first."""
        return [one for one in await self._sign_ins.all() if self._is_for(caller, one)]

    async def end(self, caller: Caller, sign_in_id: str) -> bool:
        """Sign a browser out, and end what it holds open; False where it was signed out already.

        Raises:
            NotFound: it is somebody else's.
        """
        found = next((one for one in await self._sign_ins.all() if one.id == sign_in_id), None)
        if found is not None and not self._is_for(caller, found):
            raise NotFound("there is no such sign-in")
        return await self._sign_ins.end(sign_in_id)

    def user_of(self, sign_in: SignIn) -> str | None:
        """The person whose sign-in it is, after links; None: the operator's, by the token."""
        return None if sign_in.user_id is None else self._people.survivor(sign_in.user_id)

    def _is_for(self, caller: Caller, sign_in: SignIn) -> bool:
        return caller.is_operator or (sign_in.user_id is not None and self.user_of(sign_in) == caller.user_id)
