"""The text of identity-map.json: read with every mistake's line and column, and written one account a line.

Three forms are read::

    {"version": 1, "identities": {"kind:id": {"userId": "u_…", "label": "…", "firstSeenAt": "…", "via": "…"}}}
    [{"platform": "kind", "platformUserId": "id", "userId": "…", "displayLabel": "…", "firstSeenAt": "…"}]
    {"kind:id": "u_…"}

The first is ours, and what is written. The second is that of Ethos, whose older releases had the third
(https://github.com/ethosagent/ethos, packages/wiring/src/identity-map.ts, looked at on 2026-11-21). In the objects of
the first and the third, a bare user id may stand for an account's object. Fields that we do not know are kept, and so
is the order.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.domain.visible import clean_name
from gateway.errors import InvalidAccount
from gateway.files.positions.json import KeyPath, MarkedJson, Mistake, load

VERSION = 1
MAX_KEY_CHARS = 512
MAX_LABEL_CHARS = 200

_USER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY = re.compile(r"[^:\0\ud800-\udfff]+:[^\0\ud800-\udfff]+")
_ARRAY_FIELDS = frozenset({"platform", "platformUserId", "userId", "displayLabel"})
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class NewerMap(Mistake):
    """The map was written by a newer program, and must be left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account on a platform and the user behind it.

    Attributes:
        key: `kind:id`.
        label: for people; the key where none was given.
        first_seen_at: None where the map does not say.
        via: how it came in: `first-contact`, `imported`, `hand`, or what a caller of `ensure_joined` says.
    """

    key: str
    user_id: str
    label: str
    first_seen_at: datetime | None
    via: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An account's way to another user; nothing happens to one that has none of `from_users` by then."""

    from_users: Collection[str]
    to_user: str
    via: str


@dataclass(frozen=True, slots=True)
class IdentityDocument:
    """An identity map that was read.

    Attributes:
        top: the whole of it in our own form, fields unknown to us included; never changed.
        users: the user id of every account's key.
        is_own_form: it was written in our own form.
        source: the bytes that it was read from, or is to be written as.
    """

    top: Mapping[str, Any]
    users: Mapping[str, str]
    is_own_form: bool
    source: bytes

    @classmethod
    def of(cls, top: Mapping[str, Any], *, is_own_form: bool, source: bytes) -> IdentityDocument:
        """The document of a map that was checked."""
        users = {key: entry if isinstance(entry, str) else entry["userId"] for key, entry in top["identities"].items()}
        return cls(top, users, is_own_form, source)

    def accounts(self) -> Iterator[Account]:
        """All accounts, in the order of the map."""
        for key, entry in self.top["identities"].items():
            known = {"userId": entry} if isinstance(entry, str) else entry
            yield Account(
                key=key,
                user_id=known["userId"],
                label=clean_label(known.get("label") or "") or clean_label(key),
                first_seen_at=_read_time(known.get("firstSeenAt")),
                via=clean_label(known.get("via") or "") or "hand",
            )

    def with_moves(self, moves: Mapping[str, Move]) -> IdentityDocument | None:
        """The same map with accounts that have another user, all else of them as it was; None where nothing moves."""
        entries = dict(self.top["identities"])
        moving = {key: move for key, move in moves.items() if self.users.get(key) in move.from_users}
        for key, move in moving.items():
            known = {} if isinstance(entries[key], str) else entries[key]
            entries[key] = {**known, "userId": move.to_user, "via": move.via}
        return self._with_entries(entries) if moving else None

    def with_label(self, keys: Collection[str], label: str) -> IdentityDocument | None:
        """The same map with another name of some accounts; None where it has none of them, or they have it."""
        entries = dict(self.top["identities"])
        for key in entries.keys() & set(keys):
            known = {"userId": entries[key]} if isinstance(entries[key], str) else entries[key]
            entries[key] = {**known, "label": clean_label(label) or clean_label(key)}
        return None if entries == self.top["identities"] else self._with_entries(entries)

    def without_users(self, user_ids: Collection[str]) -> IdentityDocument | None:
        """The same map without the accounts of some users; None where it has no account of them."""
        entries = {key: entry for key, entry in self.top["identities"].items() if self.users[key] not in user_ids}
        return None if len(entries) == len(self.users) else self._with_entries(entries)

    def with_accounts(self, accounts: Iterable[Account]) -> IdentityDocument:
        """The same map with more accounts at its end."""
        added = {account.key: _entry_of(account) for account in accounts}
        return self._with_entries({**self.top["identities"], **added})

    def written(self) -> bytes:
        """The map in our own form."""
        return self.source if self.is_own_form and self.source else _render(self.top)

    def _with_entries(self, entries: Mapping[str, Any]) -> IdentityDocument:
        top = {**self.top, "identities": entries}
        if "version" not in top:
            top = {"version": VERSION, **top}
        return IdentityDocument.of(top, is_own_form=True, source=_render(top))


def empty_map() -> IdentityDocument:
    """A map without users."""
    return IdentityDocument.of({"version": VERSION, "identities": {}}, is_own_form=True, source=b"")


def new_account(key: str, label: str, user_id: str, via: str) -> Account:
    """An account that is seen now for the first time."""
    return Account(
        key=key,
        user_id=user_id,
        label=clean_label(label) or clean_label(key),
        first_seen_at=datetime.now(UTC),
        via=via,
    )


def new_user_id(taken: Collection[str]) -> str:
    """Random, so that it says nothing about the person; 48 bits, so that a second look keeps people apart for sure."""
    while (user_id := f"u_{secrets.token_hex(6)}") in taken:
        pass
    return user_id


def check_key(key: str) -> str:
    """Return `key` when it can stand in the map: `kind:id`, at most 512 characters.

    Raises:
        InvalidAccount: says what is wrong.
    """
    problem = _key_problem(key)
    if problem:
        raise InvalidAccount(f"account {key[:80]!r} {problem}")
    return key


def is_key(key: str) -> bool:
    """Whether `key` can stand in the map."""
    return _key_problem(key) is None


def clean_label(text: str) -> str:
    """What of a name may be shown: one line, nothing hidden, at most 200 characters."""
    return clean_name(text, MAX_LABEL_CHARS)


def parse(data: bytes) -> IdentityDocument:
    """Read any of the three forms.

    Raises:
        NewerMap: the version is above ours.
        Mistake: anything else that is not right; says where.
    """
    marked = load(data)
    value = marked.value
    if isinstance(value, list):
        top, is_own_form = _from_array(marked, value), False
    elif not isinstance(value, dict):
        raise marked.mistake((), 'expected an object like {"version": 1, "identities": {}}')
    elif "identities" in value or "version" in value:
        top, is_own_form = _from_own_form(marked, value), True
    else:
        _check_entries(marked, (), value)
        top, is_own_form = {"version": VERSION, "identities": {k: _imported(v) for k, v in value.items()}}, False
    return IdentityDocument.of(top, is_own_form=is_own_form, source=data)


# ---- what the forms mean --------------------------------------------------------------------------------------------


def _from_own_form(marked: MarkedJson, value: dict[str, Any]) -> dict[str, Any]:
    version = value.get("version", VERSION)
    if type(version) is not int or version < 1:
        raise marked.mistake(("version",), f"expected the version {VERSION}")
    if version > VERSION:
        at = marked.mistake(
            ("version",), f"version {version} is of a newer program; expected {VERSION}. Update this one"
        )
        raise NewerMap(at.line, at.column, at.expected)
    if "identities" not in value:
        raise marked.mistake((), 'expected "identities" beside "version"')
    if not isinstance(value["identities"], dict):
        raise marked.mistake(("identities",), 'expected an object like {"kind:id": {"userId": "u_1"}}')
    _check_entries(marked, ("identities",), value["identities"])
    return value


def _check_entries(marked: MarkedJson, path: KeyPath, entries: dict[str, Any]) -> None:
    for key, entry in entries.items():
        problem = _key_problem(key)
        if problem:
            raise marked.mistake((*path, key), f"this key {problem}")
        if isinstance(entry, dict):
            _check_entry(marked, (*path, key), entry, ("label", "firstSeenAt", "via"))
        elif not isinstance(entry, str):
            raise marked.mistake((*path, key), 'expected an object like {"userId": "u_1"} or a user id')
        elif not _USER_ID.fullmatch(entry):
            raise marked.mistake((*path, key), "expected a user id of 1 to 64 of the characters A-Z a-z 0-9 _ -")


def _check_entry(marked: MarkedJson, path: KeyPath, entry: dict[str, Any], texts: tuple[str, ...]) -> None:
    user_id = entry.get("userId")
    if not isinstance(user_id, str) or not _USER_ID.fullmatch(user_id):
        where = (*path, "userId") if "userId" in entry else path
        raise marked.mistake(where, 'expected a "userId" of 1 to 64 of the characters A-Z a-z 0-9 _ -, in quotes')
    for name in texts:
        if not isinstance(entry.get(name), str | None):
            raise marked.mistake((*path, name), f'expected "{name}" to be text in quotes')


def _from_array(marked: MarkedJson, items: list[Any]) -> dict[str, Any]:
    identities: dict[str, Any] = {}
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise marked.mistake(
                (index,), 'expected an object like {"platform": "", "platformUserId": "", "userId": ""}'
            )
        for name in ("platform", "platformUserId"):
            if not isinstance(item.get(name), str):
                raise marked.mistake((index, name) if name in item else (index,), f'expected a "{name}" in quotes')
        _check_entry(marked, (index,), item, ("displayLabel", "label", "firstSeenAt", "via"))
        key = f"{item['platform']}:{item['platformUserId']}"
        problem = "has a colon in its platform" if ":" in item["platform"] else _key_problem(key)
        if problem:
            raise marked.mistake((index,), f"the account {key[:80]!r} {problem}")
        if key in identities:
            raise marked.mistake((index,), f"{key!r} stands here a second time; expected each account once")
        label = item.get("displayLabel") or ""
        rest = {name: value for name, value in item.items() if name not in _ARRAY_FIELDS}
        identities[key] = {"userId": item["userId"], "label": label, **rest, "via": item.get("via") or "imported"}
    return {"version": VERSION, "identities": identities}


def _imported(entry: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"userId": entry} if isinstance(entry, str) else entry
    return {**known, "via": known.get("via") or "imported"}


def _key_problem(key: str) -> str | None:
    if len(key) > MAX_KEY_CHARS:
        return f"is longer than {MAX_KEY_CHARS} characters"
    if not _KEY.fullmatch(key):
        return 'is not valid; expected "kind:id", both not empty, without NUL characters or halves of surrogate pairs'
    return None


def _entry_of(account: Account) -> dict[str, Any]:
    entry = {"userId": account.user_id, "label": clean_label(account.label)}
    if account.first_seen_at is not None:
        entry["firstSeenAt"] = account.first_seen_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**entry, "via": account.via}


def _read_time(text: str | None) -> datetime | None:
    """A time as we, or Ethos, write it; None for what somebody else may have written there."""
    try:
        time = datetime.fromisoformat(text or "")
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


# ---- text -----------------------------------------------------------------------------------------------------------


def _render(top: Mapping[str, Any]) -> bytes:
    parts = [
        f"  {_encode(name)}: {_render_entries(value) if name == 'identities' else _encode(value)}"
        for name, value in top.items()
    ]
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _render_entries(entries: Mapping[str, Any]) -> str:
    lines = [f"    {_encode(key)}: {_encode(entry)}" for key, entry in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n  }" if lines else "{}"
