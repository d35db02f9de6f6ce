"""How IMAP writes dates and names (RFC 3501). Pure functions."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_INTERNAL_DATE = re.compile(rb'INTERNALDATE "\s*(\d{1,2})-(\w{3})-(\d{4}) (\d\d:\d\d:\d\d) ([+-]\d{4})"')


def day_of(day: date) -> str:
    """A day for SEARCH, in English whatever the locale."""
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year}"


def internal_date(facts: bytes) -> datetime:
    """When the server took the message, out of the answer to a FETCH; now, where that cannot be read."""
    found = _INTERNAL_DATE.search(facts)
    try:
        if found is not None:
            day, month, year, clock, zone = (part.decode() for part in found.groups())
            number = _MONTHS.index(month.title()) + 1
            return datetime.strptime(f"{year}-{number}-{day} {clock} {zone}", "%Y-%m-%d %H:%M:%S %z").astimezone(UTC)
    except ValueError:
        pass  # an impossible date is as good as none
    return datetime.now(UTC)


def modified_utf7(name: str) -> str:
    """A mailbox's name on the wire (section 5.1.3)."""

    def encode(found: re.Match[str]) -> str:
        code = base64.b64encode(found[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        return f"&{code}-"

    return re.sub(r"[^\x20-\x7e]+", encode, name.replace("&", "&-"))
