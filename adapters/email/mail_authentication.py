"""Whether a mail is proved to come from its author's domain, by the results of our receiving server. Pure functions.

From is only a claim. Our server states in `Authentication-Results` (RFC 8601) what it checked; anybody can write such a
field into a mail. So only those methods count whose forged results the server removes (`server_probe.py`), only in a
field that begins exactly as the server writes it, and only above the first `Received` of a server that is not ours. A
signature that the gateway verifies itself (`dkim_verification.py`) needs none of this.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.errors import MessageDefect
from typing import Any

import authres  # type: ignore[import-untyped]

from adapters.email.addresses import canonical_domain

UNNAMED = "none"
"""The name of a server that writes no name into the field, as Microsoft's."""
METHODS = frozenset({"dmarc", "dkim", "spf"})
# RFC 5322, section 3.6, and RFC 2045, section 3. Where such a field stands twice, the server may check the one and we
# may read the other.
_ONCE = frozenset(
    {"from", "sender", "reply-to", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references"}
    | {"mime-version", "content-type", "content-transfer-encoding", "content-disposition", "content-id"}
    | {"content-description"}
)
_LONGEST_FIELD_CHARS = 8_000
# With the domain of a country, such as `co.uk`: registries, below which anybody may have a domain.
_REGISTRIES = frozenset(["ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "mil", "ne", "net", "or", "org"])
_BY = re.compile(r"(?:^|\s)by\s+([^\s;()]+)", re.IGNORECASE)
_FROM = re.compile(r"^\s*(?:\([^()]*\)\s*)?from\s", re.IGNORECASE)
_BROKEN = re.compile(rb"\r(?!\n)|\0")
# Microsoft writes it for a domain without a DMARC record; nothing was proved by it.
_NO_POLICY = {"none", "bestguesspass"}

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthservTrust:
    """How far the receiving server's results are trusted.

    Attributes:
        authserv_id: its name in the field, or `UNNAMED`; None where its results do not count.
        methods: whose results count, since the server removes forged ones; None while that is not known.
        hosts: domains whose `Received` are ours.
        is_always_first: it leaves forged results, but writes its own field above them into every mail.
    """

    authserv_id: str | None
    methods: frozenset[str] | None = METHODS
    hosts: tuple[str, ...] = ()
    is_always_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The author is proved.

    Attributes:
        covered: the fields that are certainly as the author's server sent them, in lower case; None for all.
    """

    covered: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Unproved:
    """The author is not proved.

    Attributes:
        reason: for the log.
        is_final: a signature that we verify ourselves changes nothing.
        is_too_early: the server says that the author is proved, and we do not know yet whether to trust it.
    """

    reason: str
    is_final: bool = False
    is_too_early: bool = False


# ---- fields that may be read in two ways ----------------------------------------------------------------------------


def first_duplicate(names: Sequence[str]) -> str | None:
    """The first field that occurs twice although only one is allowed."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in _ONCE and name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def why_ambiguous(header: bytes, fields: Fields, defects: Sequence[MessageDefect]) -> str | None:
    """Why a header may mean one thing to the server that checked it and another to us; None where it cannot."""
    twice = first_duplicate([name for name, _ in fields])
    if twice is not None:
        return f"it has {twice} twice"
    if defects or _BROKEN.search(header):
        return "its header is broken, and programs read it differently"
    return None


# ---- what the server says -------------------------------------------------------------------------------------------


def evaluate(fields: Fields, domain: str, trust: AuthservTrust) -> Proof | Unproved:
    """Whether DMARC, or a DKIM signature aligned with the From domain, has passed according to our server.

    Args:
        fields: name and unfolded value of all header fields, the topmost first.
        domain: of the From address, in ASCII and lower case.
    """
    if trust.authserv_id is None:
        return Unproved(reason=f"it has no valid DKIM signature of {domain}")
    found = _results(fields, trust)
    results = [] if isinstance(found, Unproved) else found
    failed = found if isinstance(found, Unproved) else _reason_unproved(found, domain)
    if failed is not None:
        return failed
    if trust.methods is None:
        return Unproved(reason="it is not known yet whether the server removes forged results", is_too_early=True)
    if _is_aligned_by_spf(results, domain):
        return Proof(covered=None)  # it came from the domain's own server, so no other server had it in between
    signatures = [tags for tags in signature_tags(fields) if _is_of_one_organization(tags.get("d", ""), domain)]
    if any("l" in tags for tags in signatures):
        return Unproved(reason="its DKIM signature leaves the end of the text open (l=)", is_final=True)
    covered = [covered_by(tags) for tags in signatures]
    return Proof(covered=frozenset.intersection(*covered) if covered else None)


def filtered_methods(fields: Fields, token: str, authserv_id: str) -> frozenset[str]:
    """The methods of which the server removed every result that we forged under its name, with this token."""
    found: set[str] = set()
    for name, value in fields:
        if name.lower() == "authentication-results" and token in value:
            results = _parse(value, authserv_id)
            found.update(METHODS if isinstance(results, str) else {_method(each) for each in results or ()})
    return METHODS - found


def receiving_hosts(fields: Fields) -> tuple[str, ...]:
    """The servers that relayed a mail, by their own names."""
    found = (_BY.search(value) for name, value in fields if name.lower() == "received")
    return tuple(dict.fromkeys(by[1].lower().rstrip(".") for by in found if by is not None))


def _results(fields: Fields, trust: AuthservTrust) -> list[Any] | Unproved:
    """The server's results: those of each method from the topmost field that has any."""
    authserv_id = trust.authserv_id or ""
    ours = [host.lower() for host in (*_own_domain(authserv_id), *trust.hosts)]
    trusted = METHODS if trust.methods is None else trust.methods
    results: dict[str, list[Any]] = {}
    others: list[str] = []
    outside = ""
    is_found = False
    for name, value in fields:
        if name.lower() == "received" and not _is_ours(value, ours):
            outside = _by_host(value)
            break
        if name.lower() == "authentication-results" and not (is_found and trust.is_always_first):
            found = _parse(value, authserv_id)
            if isinstance(found, str):
                return Unproved(reason=found)
            if found is None:
                others.append(value)
                continue
            is_found = True
            for method in {_method(each) for each in found} & trusted - results.keys():
                results[method] = [each for each in found if _method(each) == method]
    if is_found and (results or trusted):
        return [each for found in results.values() for each in found]
    whose = "without a name" if authserv_id == UNNAMED else f"of {authserv_id}"
    there = f"; the topmost one is of {_name_in(others[0])}" if others else ""
    below = f"; `own_hosts` does not name {outside}, whose Received stands on top" if outside and not others else ""
    if is_found:
        return Unproved(
            reason=f"the server does not remove forged Authentication-Results {whose}, so they count nothing"
        )
    return Unproved(reason=f"there is no Authentication-Results {whose} above what came from outside{there}{below}")


def _name_in(value: str) -> str:
    """The server's name in the field, for the operator."""
    name = value.partition(";")[0].split()
    return name[0][:100] if name and "=" not in name[0] else f"a server that writes no name (`{UNNAMED}`)"


def _own_domain(authserv_id: str) -> tuple[str, ...]:
    """`mx.example.org` stands for `example.org`, whose other hosts relay the mail."""
    if authserv_id == UNNAMED:
        return ()
    _, _, parent = authserv_id.partition(".")
    name, _, country = parent.partition(".")
    is_registry = name in _REGISTRIES and len(country) == 2  # the parent of `example.co.uk` is no domain of its owner
    return (authserv_id, parent) if country and not is_registry else (authserv_id,)


def _is_ours(received: str, ours: Sequence[str]) -> bool:
    if not _FROM.match(received):
        return True  # relayed inside a server, as Gmail notes it: "by 2002:a05:… with SMTP id …"
    host = _by_host(received)
    return any(host == own or host.endswith(f".{own}") for own in ours)


def _by_host(received: str) -> str:
    by = _BY.search(received)
    return by[1].lower().rstrip(".")[:100] if by is not None else ""


def _parse(value: str, authserv_id: str) -> list[Any] | str | None:
    """The results; None for another server's field; a reason where it cannot be read.

    The name must be exactly as the server writes it: no comment, no quotation marks, no other case. So the server need
    not recognise every form of its name to remove forged fields.
    """
    is_unnamed = authserv_id == UNNAMED
    if not is_unnamed and re.match(rf"\s*{re.escape(authserv_id)};", value) is None:
        return None
    if len(value) > _LONGEST_FIELD_CHARS:
        return "its Authentication-Results is too long to be true"
    try:
        # authres wants a name in front (1.2.0); Microsoft's field begins with the first result.
        header = authres.AuthenticationResultsHeader.parse_value(f"{UNNAMED}; {value}" if is_unnamed else value)
    except authres.AuthResError as error:
        return f"its Authentication-Results, of {_name_in(value)}, cannot be read ({error})"
    except (ValueError, AttributeError, IndexError, TypeError, RecursionError) as error:
        return f"its Authentication-Results, of {_name_in(value)}, cannot be read ({type(error).__name__})"
    return list(header.results)


def _reason_unproved(results: list[Any], domain: str) -> Unproved | None:
    """None where the author is proved."""
    dmarc = [result for result in results if _method(result) == "dmarc"]
    if len(dmarc) > 1:
        return Unproved(reason="its Authentication-Results states DMARC twice", is_final=True)
    if dmarc and dmarc[0].result == "pass":
        checked = [canonical_domain(each.rpartition("@")[2]) for each in _properties(dmarc[0], "header", "from")]
        if checked == [domain]:
            return None
        return Unproved(reason=f"DMARC passed for {checked or 'no domain'}, and the mail is of {domain}", is_final=True)
    if dmarc and dmarc[0].result not in _NO_POLICY:
        return Unproved(reason=f"DMARC says {dmarc[0].result}", is_final=True)
    signed = [
        each
        for result in results
        if _method(result) == "dkim" and result.result == "pass"
        for each in _properties(result, "header", "d") or _properties(result, "header", "i")
    ]
    if any(is_aligned(each, domain) for each in signed):
        return None
    return Unproved(reason=f"no DMARC, and no DKIM signature of {domain}")


def _is_aligned_by_spf(results: list[Any], domain: str) -> bool:
    return any(
        is_aligned(sender, domain)
        for result in results
        if _method(result) == "spf" and result.result == "pass"
        for sender in _properties(result, "smtp", "mailfrom")
    )


def _method(result: Any) -> str:
    return str(getattr(result, "method", ""))


def _properties(result: Any, kind: str, name: str) -> list[str]:
    return [str(each.value) for each in result.properties if each.type == kind and each.name == name and each.value]


# ---- signatures, as they describe themselves ------------------------------------------------------------------------


def is_aligned(signer: str, domain: str) -> bool:
    """Whether a signer's domain, or the one in an address, may speak for the From domain: itself or a parent."""
    found = canonical_domain(signer.rpartition("@")[2])
    return found is not None and (domain == found or domain.endswith(f".{found}"))


def aligned_signatures(fields: Fields, domain: str) -> list[dict[str, str]]:
    """The tags of every `DKIM-Signature` that names the From domain or a parent; none of them is verified."""
    return [tags for tags in signature_tags(fields) if is_aligned(tags.get("d", ""), domain)]


def signature_tags(fields: Fields) -> list[dict[str, str]]:
    """The tags of every `DKIM-Signature`."""
    return [tags_of(value) for name, value in fields if name.lower() == "dkim-signature"]


def _is_of_one_organization(signer: str, domain: str) -> bool:
    """Whether DMARC may have passed for the signer: any domain with the same end, children and siblings too.

    RFC 7489, section 3.1.1, wants the organization's own end; that of two labels is it, or a shorter one.
    """
    found = canonical_domain(signer)
    return found is not None and found.split(".")[-2:] == domain.split(".")[-2:]


def tags_of(value: str) -> dict[str, str]:
    """`tag=value; …` (RFC 6376, section 3.2)."""
    pairs = (part.partition("=") for part in value.split(";"))
    return {name.strip(): text.strip() for name, _, text in pairs if name.strip()}


def covered_by(tags: dict[str, str]) -> frozenset[str]:
    """The names of the fields that a signature covers, in lower case."""
    return frozenset(name.strip().lower() for name in tags.get("h", "").split(":"))
