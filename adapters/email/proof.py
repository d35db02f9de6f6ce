"""Whether a mail is proved to come from its author's domain. From is a claim; our receiving server checked it, or not.

Our server states what it found in `Authentication-Results` (RFC 8601), in front of what came from outside. Only the
first such field with its own name counts: what stands below may have come with the mail. The field has to stand above
the first `Received` of a server that is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import authres  # type: ignore[import-untyped]

from adapters.email.addresses import canonical_domain

UNNAMED = "none"
"""Stands for the name of a server that writes none into the field, as Microsoft's do."""

_LONGEST_FIELD_CHARS = 8_000
_BY = re.compile(r"(?:^|\s)by\s+([^\s;()]+)", re.IGNORECASE)
_FROM = re.compile(r"^\s*(?:\([^()]*\)\s*)?from\s", re.IGNORECASE)
# Microsoft writes it for a domain without a DMARC record; nothing was proved by it.
_NO_POLICY = {"none", "bestguesspass"}


def why_unproved(
    fields: Sequence[tuple[str, str]], domain: str, *, authserv_id: str, own_hosts: Sequence[str] = ()
) -> str | None:
    """None where DMARC, or a DKIM signature aligned with the From domain, has passed; else the reason, for the log.

    Args:
        fields: name and unfolded value of all header fields, the topmost first.
        domain: of the From address, in ASCII and lower case.
        authserv_id: our receiving server's name in the field, or `UNNAMED`.
        own_hosts: further domains whose `Received` are ours.
    """
    ours = [host.lower() for host in (*_own_domain(authserv_id), *own_hosts)]
    others: list[str] = []
    for name, value in fields:
        if name.lower() == "received" and not _is_ours(value, ours):
            break
        if name.lower() == "authentication-results":
            found = _parse(value, authserv_id)
            if isinstance(found, str):
                return found
            if found is not None:
                return _judge(found, domain)
            others.append(value)
    there = f"; the topmost one is of {_name_in(others[0])}" if others else ""
    return f"there is no Authentication-Results of {authserv_id} above what came from outside{there}"


def _name_in(value: str) -> str:
    """The server's name in the field, for an operator who looks for theirs."""
    name = value.partition(";")[0].split()
    return name[0][:100] if name and "=" not in name[0] else f"a server that writes no name (`{UNNAMED}`)"


def _own_domain(authserv_id: str) -> tuple[str, ...]:
    """`mx.example.org` speaks for `example.org`, whose other hosts hand the mail on."""
    if authserv_id == UNNAMED:
        return ()
    _, _, parent = authserv_id.partition(".")
    return (authserv_id, parent) if "." in parent else (authserv_id,)


def _is_ours(received: str, ours: Sequence[str]) -> bool:
    if not _FROM.match(received):
        return True  # handed on inside a server, as Gmail notes it: "by 2002:a05:… with SMTP id …"
    by = _BY.search(received)
    host = by[1].lower().rstrip(".") if by is not None else ""
    return any(host == own or host.endswith(f".{own}") for own in ours)


def _parse(value: str, authserv_id: str) -> Any:
    """The results; None where another server speaks; a reason where it cannot be told."""
    if len(value) > _LONGEST_FIELD_CHARS:
        return "its Authentication-Results is too long to be true"
    is_unnamed = authserv_id == UNNAMED
    try:
        # authres wants a name in front (1.2.0); Microsoft's field begins with the first result.
        header = authres.AuthenticationResultsHeader.parse_value(f"{UNNAMED}; {value}" if is_unnamed else value)
    except authres.AuthResError as error:
        return f"its Authentication-Results, of {_name_in(value)}, cannot be read ({error})"
    except (ValueError, AttributeError, IndexError, TypeError) as error:
        return f"its Authentication-Results, of {_name_in(value)}, cannot be read ({type(error).__name__})"
    if not is_unnamed and str(header.authserv_id).lower() != authserv_id.lower():
        return None
    return list(header.results)


def _judge(results: list[Any], domain: str) -> str | None:
    dmarc = [result for result in results if _method(result) == "dmarc"]
    if len(dmarc) > 1:
        return "its Authentication-Results states DMARC twice"
    if dmarc and dmarc[0].result == "pass":
        checked = [canonical_domain(each.rpartition("@")[2]) for each in _properties(dmarc[0], "from")]
        return (
            None if checked == [domain] else f"DMARC passed for {checked or 'no domain'}, and the mail is of {domain}"
        )
    if dmarc and dmarc[0].result not in _NO_POLICY:
        return f"DMARC says {dmarc[0].result}"
    signed = [
        canonical_domain(each.rpartition("@")[2])
        for result in results
        if _method(result) == "dkim" and result.result == "pass"
        for each in _properties(result, "d") or _properties(result, "i")
    ]
    if any(each is not None and (domain == each or domain.endswith(f".{each}")) for each in signed):
        return None
    return f"no DMARC, and no DKIM signature of {domain}"


def _method(result: Any) -> str:
    return str(getattr(result, "method", ""))


def _properties(result: Any, name: str) -> list[str]:
    return [str(each.value) for each in result.properties if each.type == "header" and each.name == name and each.value]
