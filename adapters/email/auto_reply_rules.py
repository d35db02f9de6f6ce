"""Which mail must not be answered: of machines, lists, bounces and ourselves (RFC 3834). Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

OWN_FIELD = "X-Ethos-Gateway"
"""A field of every mail that this software sends."""

_MACHINES = re.compile(
    r"mailer-daemon|postmaster|no-?_?\.?reply|do-?_?\.?not-?_?\.?reply|bounces?|listserv|majordomo|abuse"
    r"|owner-.*|.*-(?:request|owner|bounces?)|(?:no-?reply|bounces?)[+=-].*"
)
_BULK = {"bulk", "junk", "list", "auto_reply"}
_SUPPRESSING = {"all", "autoreply", "oof"}


def why_unanswerable(fields: Sequence[tuple[str, str]], author: str, own_addresses: Collection[str]) -> str | None:
    """The reason not to answer, for the log; None for what a person wrote.

    Args:
        fields: name and unfolded value of all header fields.
        author: the From address, canonical.
        own_addresses: canonical.
    """
    if author in own_addresses or without_tag(author) in own_addresses:
        return "we wrote it ourselves"
    if _MACHINES.fullmatch(author.partition("@")[0]):
        return f"{author} is a machine's address"
    for name, value in fields:
        reason = _reason(name.lower(), value.strip().lower())
        if reason is not None:
            return f"{name}: {value.strip()[:80]} ({reason})"
    return None


def _reason(name: str, value: str) -> str | None:
    """Why one field forbids an answer; each rule with its source."""
    words = re.split(r"[\s,;(]+", value)
    # RFC 3834, section 2 (automatic and bulk mail, empty return path) and section 5 (Auto-Submitted); RFC 2919 and 2369
    # (lists); RFC 6522 (reports); MS-OXCMAIL 2.2.3.2.14 (X-Auto-Response-Suppress).
    rules = {
        "auto-submitted": (words[0] != "no", "written by a machine"),
        "return-path": (value == "<>", "a bounce"),
        "precedence": (value in _BULK, "bulk mail"),
        "x-auto-response-suppress": (not _SUPPRESSING.isdisjoint(words), "asks not to be answered"),
        "content-type": (value.startswith("multipart/report"), "a report"),
        "x-autoreply": (value not in {"no", ""}, "written by a machine"),
        "x-autorespond": (True, "written by a machine"),
        OWN_FIELD.lower(): (True, "written by a gateway like this one"),
    }
    if name.startswith("list-"):
        return "from a list"
    applies, reason = rules.get(name, (False, ""))
    return reason if applies else None


def without_tag(address: str) -> str:
    """The address without its `+tag`."""
    local, _, domain = address.rpartition("@")
    return f"{local.partition('+')[0]}@{domain}"
