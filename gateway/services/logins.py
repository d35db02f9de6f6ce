"""Signing in with a password and a second factor: invited, set up, tried, changed and ended."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.domain.codes import hash_code, new_code, new_seed, read_code
from gateway.people.identity.file import check_key
from gateway.people.identity.identities import Identities
from gateway.people.logins import (
    ASKED_FOR,
    INVITED_FOR,
    LEAST_PASSWORD_CHARS,
    MOST_NAME_CHARS,
    MOST_PASSWORD_CHARS,
    RECOVERY_CODES,
    Invitation,
    Login,
    LoginStore,
    NameTaken,
    hashed,
    is_password,
    name_key,
    shown_secret,
    step_of,
    totp_address,
    totp_secret,
)
from gateway.people.sign_ins import SignIns
from gateway.people.tries import SignInFailures
from gateway.sdk.models import people as wire
from gateway.services.caller import Caller, Malformed, NotAllowed, NotFound, Refused
from gateway.services.people import PeopleService

JOIN_PATH = "/join"
ISSUER = "Ethos"
_AT_ONCE = 2
"""Passwords that are hashed at the same time: each takes 32 MiB."""
_ENDED = "This link has ended or was used. Ask for a new one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What is kept outside of the database.

    Attributes:
        second_factor: loads the key of which the secrets of second factors are made.
        pepper: loads that under which recovery codes are hashed.
    """

    second_factor: Callable[[], bytes]
    pepper: Callable[[], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """What the page of an invitation shows.

    Attributes:
        name: to begin with.
        secret: of the second factor, as people type it; `address` is the same for an app.
        is_again: whether the person signs in with a password already.
    """

    name: str
    secret: str
    address: str
    is_again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginState:
    """How a person signs in, for people."""

    name: str
    changed_at: datetime
    recovery_codes: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a name and a password: who it is, or how long to wait before the next try."""

    user_id: str | None = None
    wait_s: int = 0


class LoginService:
    """An owner invites and ends; a person asks for themselves in a chat, and changes their own."""

    def __init__(
        self,
        store: LoginStore,
        *,
        sign_ins: SignIns,
        failures: SignInFailures,
        people: PeopleService,
        identities: Identities,
        keys: Keys,
        base: Callable[[], str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`base` is the address of the pages, without a slash at its end."""
        self._store = store
        self._sign_ins = sign_ins
        self._failures = failures
        self._people = people
        self._identities = identities
        self._keys = keys
        self._base = base
        self._now = now
        self._hashing = asyncio.Semaphore(_AT_ONCE)

    async def is_any(self) -> bool:
        """Whether anybody signs in with a password."""
        return await self._store.is_any()

    # ---- invitations ------------------------------------------------------------------------------------------------

    async def invite(self, caller: Caller, who: str) -> wire.Invitation:
        """A link by which a person sets up how they sign in, once; an earlier one ends.

        Raises:
            NotNamed: there is no such person.
            Refused: they have no access.
            NotAllowed: only the operator and owners invite.
        """
        caller.refuse_keys()
        return await self._invited(await self._people.find(caller, who), INVITED_FOR)

    async def invite_new(self, caller: Caller, name: str, role: wire.Role) -> wire.Invitation:
        """The same for somebody who has no account here yet, and becomes a person with this name and role.

        Raises:
            Malformed: the name is empty or too long.
            NotAllowed: as `invite`.
        """
        caller.refuse_keys()
        label = name.strip()
        if not label or len(label) > MOST_NAME_CHARS or not label.isprintable():
            raise Malformed(f"a name has 1 to {MOST_NAME_CHARS} characters that can be printed")
        user_id = await self._identities.resolve(f"local:web-{secrets.token_hex(6)}", label)
        await self._people.set_role(caller, user_id, role)
        return await self._invited(user_id, INVITED_FOR)

    async def ask(self, caller: Caller) -> wire.Invitation:
        """The same for the person who asks in a chat, for a shorter time; raises as `invite`."""
        if caller.chat is None or caller.user_id is None:
            raise NotAllowed("a link for oneself is asked for in a chat, as that person")
        return await self._invited(caller.user_id, ASKED_FOR)

    async def change(self, caller: Caller, password: str, code: str) -> str:
        """The path of a link for a person who has signed in, and shows their password and code again.

        Raises:
            Refused: one of them is wrong, or too many were.
            NotAllowed: nobody has signed in.
        """
        login = await self._own(caller)
        if login is None:
            raise Refused("you do not sign in with a password; ask an owner, or type `/web` in a chat")
        tried = await self.entered(login.name, password, code)
        if tried.wait_s:
            raise Refused(f"too many wrong tries; try again in {tried.wait_s} seconds")
        if tried.user_id is None:
            raise Refused("the password or the code is wrong")
        invitation = await self._invited(login.user_id, ASKED_FOR)
        return invitation.url.removeprefix(self._base())

    async def _invited(self, user_id: str, valid: timedelta) -> wire.Invitation:
        if await self._people.standing(user_id) is None:
            raise Refused("this person has no access; give them a role first")
        secret, until = secrets.token_urlsafe(32), self._now() + valid
        await self._store.invite(Invitation(user_id=user_id, hash=_hash(secret), seed=new_seed(), expires_at=until))
        return wire.Invitation(user=user_id, url=f"{self._base()}{JOIN_PATH}/{secret}", expires_at=until)

    # ---- setting up -------------------------------------------------------------------------------------------------

    async def invited(self, secret: str) -> Invited:
        """What the page of an invitation shows; the same each time.

        Raises:
            NotFound: it has ended, or was never one.
            FileError: the key of the second factor cannot be read or made.
        """
        invitation = await self._invitation(secret)
        kept = await self._store.of([invitation.user_id])
        name = kept[0].name if kept else await self._label(invitation.user_id)
        key = await self._secret_of(invitation.seed)
        address = totp_address(key, name or invitation.user_id, ISSUER)
        return Invited(name=name, secret=shown_secret(key), address=address, is_again=bool(kept))

    async def join(self, secret: str, *, name: str, password: str, code: str) -> tuple[str, tuple[str, ...]]:
        """Set up how a person signs in; the user id, and recovery codes that are never shown again.

        Where they had a login, it is replaced, and their browsers are signed out.

        Raises:
            Malformed: says of each field what is wrong; the invitation stays valid.
            NotFound, FileError: as `invited`.
        """
        invitation = await self._invitation(secret)
        name = " ".join(name.split())
        step = step_of(await self._secret_of(invitation.seed), code, self._now())
        problems = _problems(name, password)
        if step is None:
            problems["code"] = "this is not the code that the app shows now"
        if problems or step is None:
            raise Malformed("the form is not right yet", problems)
        async with self._hashing:
            kept = await asyncio.to_thread(hashed, password)
        codes = tuple(new_code() for _ in range(RECOVERY_CODES))
        login = Login(
            user_id=invitation.user_id,
            name=name,
            name_key=name_key(name),
            password=kept,
            seed=invitation.seed,
            last_step=step,
            changed_at=self._now(),
        )
        pepper = await asyncio.to_thread(self._keys.pepper)
        recovery = [hash_code(one, pepper) for one in codes]
        try:
            is_done = await self._store.join(login, recovery, invitation.hash)
        except NameTaken:
            taken = {"name": "another person signs in by this name; choose another one"}
            raise Malformed("the form is not right yet", taken) from None
        if not is_done:
            raise NotFound(_ENDED)
        await self._failures.note_success(_tries_of(login.name_key))
        await self._sign_ins.end_of([invitation.user_id])
        return invitation.user_id, codes

    async def _invitation(self, secret: str) -> Invitation:
        found = await self._store.invitation(_hash(secret))
        if found is None or await self._people.standing(self._people.survivor(found.user_id)) is None:
            raise NotFound(_ENDED)
        return found

    # ---- signing in -------------------------------------------------------------------------------------------------

    async def entered(self, name: str, password: str, code: str) -> Tried:
        """Look at a name, a password and a code: of the app, or a recovery code, each of which counts once.

        A wrong name takes as long as a wrong password or code, and nothing says which of them it was. Each try is
        counted before it is looked at; those of a name that has had too many are not looked at.

        Raises:
            FileError: a key cannot be read or made.
        """
        key = name_key(name)
        wait_s = await self._failures.note_failure(_tries_of(key))
        if wait_s or len(password) > MOST_PASSWORD_CHARS:
            return Tried(wait_s=math.ceil(wait_s))
        login = await self._store.by_name(key)
        async with self._hashing:
            is_right = await asyncio.to_thread(is_password, password, None if login is None else login.password)
        take = await self._code_of(login, code)
        if login is None or not is_right or take is None or not await take():
            return Tried()
        await self._failures.note_success(_tries_of(key))
        return Tried(login.user_id)

    async def _code_of(self, login: Login | None, typed: str) -> Callable[[], Awaitable[bool]] | None:
        """What uses the code up that was typed; None: it is none. The same is done for a login that is not there."""
        user_id, seed = ("", "") if login is None else (login.user_id, login.seed)
        step = step_of(await self._secret_of(seed), typed, self._now())
        wanted = hash_code(read_code(typed) or "", await asyncio.to_thread(self._keys.pepper))
        kept = await self._store.recovery_codes(user_id)
        is_recovery = any([hmac.compare_digest(wanted, one) for one in kept])  # noqa: C419 (all, however many)
        if step is not None:
            return lambda: self._store.take_step(user_id, step)
        return (lambda: self._store.take_recovery_code(user_id, wanted)) if is_recovery else None

    # ---- accounts elsewhere -----------------------------------------------------------------------------------------

    async def by_account(
        self, account: str, label: str, *, also: str | None = None, secret: str | None = None
    ) -> str | None:
        """The user id of who has proved to have an account, `kind:id`; None where nobody with access has it.

        Args:
            label: its name, for people.
            also: another account of theirs that is proved, too; whose it is, theirs is the first one, from now on.
            secret: of an invitation: the account is the invited person's from now on, and the invitation is used up.

        Raises:
            NotFound: the invitation has ended.
            Refused: the account is another person's already.
            InvalidAccount: it can stand in no map.
        """
        key = check_key(account)
        invitation = None if secret is None else await self._invitation(secret)
        known = await self._identities.known({key} if also is None else {key, also})
        user_id = known.get(key)
        if invitation is not None:
            wanted = self._people.survivor(invitation.user_id)
            if user_id is not None and self._people.survivor(user_id) != wanted:
                raise Refused("this account belongs to another person here; use another one")
            if not await self._store.use_up(invitation):
                raise NotFound(_ENDED)
            user_id = user_id or await self._added(key, label, wanted)
        elif user_id is None and also in known:
            user_id = await self._added(key, label, self._people.survivor(known[also]))
        if user_id is None or await self._people.standing(self._people.survivor(user_id)) is None:
            return None
        return user_id

    async def _added(self, key: str, label: str, user_id: str) -> str:
        if not await self._identities.add(key, label, user_id=user_id, via="signed in"):
            raise Refused("this account belongs to another person here; use another one")
        return user_id

    # ---- what there is ----------------------------------------------------------------------------------------------

    async def state(self, caller: Caller, who: str | None = None) -> LoginState | None:
        """How a person signs in, or the caller; None where they have no password.

        Raises:
            NotNamed, NotAllowed: as `PeopleService.show`.
        """
        login = await self._own(caller) if who is None else await self._of(await self._people.find(caller, who))
        if login is None:
            return None
        left = await self._store.recovery_codes(login.user_id)
        return LoginState(name=login.name, changed_at=login.changed_at, recovery_codes=len(left))

    async def end(self, caller: Caller, who: str) -> wire.SignInsEnded:
        """Delete the password, the second factor and an invitation of a person, and sign all their browsers out.

        Raises:
            NotNamed: there is no such person.
            NotAllowed: only the operator and owners do that.
        """
        caller.refuse_keys()
        user_id = await self._people.find(caller, who)
        ids = sorted({user_id, *await self._people.ids(user_id)})
        forgotten = await self._store.forget(ids)
        return wire.SignInsEnded(user=user_id, had_password=forgotten > 0, browsers=await self._sign_ins.end_of(ids))

    async def _own(self, caller: Caller) -> Login | None:
        return None if caller.signed_in is None else await self._of(caller.signed_in.user_id)

    async def _of(self, user_id: str) -> Login | None:
        found = await self._store.of(sorted({user_id, *await self._people.ids(user_id)}))
        return next((one for one in found if one.user_id == user_id), found[0] if found else None)

    async def _label(self, user_id: str) -> str:
        accounts = await self._identities.accounts_of(self._people.survivor(user_id))
        return next((one.label for one in accounts if one.label and one.label != one.key), "")[:MOST_NAME_CHARS]

    async def _secret_of(self, seed: str) -> bytes:
        return totp_secret(seed, await asyncio.to_thread(self._keys.second_factor))


def _problems(name: str, password: str) -> dict[str, str]:
    problems = {}
    if not name or len(name) > MOST_NAME_CHARS or not name.isprintable():
        problems["name"] = f"a name has 1 to {MOST_NAME_CHARS} characters that can be printed"
    if len(password) < LEAST_PASSWORD_CHARS:
        problems["password"] = f"it has {len(password)} characters, and needs {LEAST_PASSWORD_CHARS} or more"
    elif len(password) > MOST_PASSWORD_CHARS:
        problems["password"] = f"it may have {MOST_PASSWORD_CHARS} characters"
    elif len(set(password)) < LEAST_PASSWORD_CHARS // 2 or name_key(password) == name_key(name):
        problems["password"] = "it is easy to guess; take several words"  # noqa: S105 (says what is wrong)
    return problems


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _tries_of(key: str) -> str:
    """Under which name tries of a login are counted; no network address begins so."""
    return f"name:{key[:MOST_NAME_CHARS]}"
