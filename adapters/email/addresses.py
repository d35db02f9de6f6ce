"""Mail addresses: their canonical form, and the one author of a mail. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass

import idna

_LONGEST_FIELD_CHARS = 2_000
_ADDRESS = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[^\s@<>()\[\]\\,;:\"]{1,253}"
_PLAIN = re.compile(rf"\s*({_ADDRESS})\s*(?:\(([^()<>@\"]*)\))?\s*")
_NAMED = re.compile(rf'\s*((?:"(?:[^"\\]|\\.)*"|[^"<>@,;:\\])*)<\s*({_ADDRESS})\s*>\s*(?:\([^()<>@"]*\))?\s*')


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    """One canonical address, and the display name, still encoded."""

    address: str
    display_name: str

    @property
    def domain(self) -> str:
        """In ASCII and lower case."""
        return self.address.rpartition("@")[2]


def canonical(address: str) -> str | None:
    """The address in lower case, its domain in ASCII; None where we could not answer to it.

    `+tags` and dots stay: some providers give them to different people, who must not be taken for one. The domain is
    mapped by IDNA 2008 (RFC 5891), under which `faß` and `fass` are different.
    """
    local, at, domain = address.strip().rpartition("@")
    if not at or not re.fullmatch(_ADDRESS, f"{local}@{domain}"):
        return None
    ascii_domain = canonical_domain(domain)
    return f"{local.lower()}@{ascii_domain}" if ascii_domain else None


def canonical_domain(domain: str) -> str | None:
    """The domain in ASCII and lower case; None where it is none."""
    try:
        return idna.encode(domain.strip().rstrip("."), uts46=True).decode().lower()
    except (idna.IDNAError, UnicodeError):
        return None


def only_author(fields: list[str]) -> Mailbox | None:
    """The one author of a mail; None where there is more than one, none, or any doubt.

    Stricter than RFC 5322 on purpose: programs disagree on what `From: ada@a.org <eve@e.org>, …` means, and the server
    that checks the sender must read the same address as we do. So no groups, no lists, no `@` outside of quotes.

    Args:
        fields: every From field of the mail, unfolded.
    """
    if len(fields) != 1 or len(fields[0]) > _LONGEST_FIELD_CHARS:
        return None
    named = _NAMED.fullmatch(fields[0])
    if named is not None:
        name, found = named[1], named[2]
    else:
        plain = _PLAIN.fullmatch(fields[0])
        if plain is None:
            return None
        found, name = plain[1], plain[2] or ""
    address = canonical(found)
    if address is None:
        return None
    return Mailbox(address=address, display_name=re.sub(r'\\(.)|"', r"\1", name).strip())
