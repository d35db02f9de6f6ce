"""DKIM signatures (RFC 6376), verified by the gateway itself; the only file that touches dkimpy and dnspython.

It trusts no server, only the DNS of the author's domain. It works only for unchanged mail: servers that rewrite mail,
as Microsoft's do, break the signature, and there the server's own result counts (`mail_authentication.py`).
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import dkim  # type: ignore[import-untyped]
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from adapters.email import mime
from adapters.email.mail_authentication import Proof, Unproved, covered_by, is_aligned, signature_tags, tags_of

Txt = Callable[[str], bytes | None]
"""The TXT record of a name; None where there is none. Raises `KeyNotReachable`."""

_HEAD = re.compile(rb".*?\r?\n\r?\n", re.DOTALL)
_BLANKS = re.compile(rb"[\t ]+")
_MAX_SIGNATURES = 5  # of one mail: each costs a DNS query
_MAX_LINES = 500_000  # dkimpy keeps an object for each
_MAX_HEADER_LINES = 2_000  # it goes through all fields for each name in `h=`
_MAX_SIGNATURE_BYTES = 6_000  # it looks for blanks from each blank
_MAX_KEY_BITS = 8_192
_MAX_EXPONENT_BITS = 64  # 65537 has 17; time grows with it, and Python lets nothing else run meanwhile
_LOOKUP_S = 3.0
_MAX_KEYS = 1_000
_KEY_LIFE_S = 3_600.0
_OLD_KEY_LIFE_S = 86_400.0  # where the name servers do not answer (RFC 8767, section 5)
_PAUSE_S = 60.0
_MAX_FAILURES = 5


class KeyNotReachable(Exception):
    """The name servers of a domain do not answer now."""


class DkimKeys:
    """Public keys from DNS, each cached for an hour.

    A domain whose name servers do not answer costs seconds. After a few of them only cached keys are used for a minute,
    even those of a day ago, so that a flood of such mails delays others only briefly.
    """

    def __init__(self, ask: Txt | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask or _ask_dns
        self._clock = clock
        self._known: dict[str, tuple[float, bytes | None]] = {}
        self._failures: deque[float] = deque(maxlen=_MAX_FAILURES)

    def find(self, name: str) -> bytes | None:
        """The TXT record with the key; None where there is none.

        Raises:
            KeyNotReachable: it cannot be asked for now.
        """
        now = self._clock()
        kept_at, kept = self._known.get(name, (-_OLD_KEY_LIFE_S, None))
        if now - kept_at < _KEY_LIFE_S:
            return kept
        try:
            found = self._query(name, now)
        except KeyNotReachable:
            if kept is None or now - kept_at >= _OLD_KEY_LIFE_S:
                raise
            return kept
        self._known.pop(name, None)
        if len(self._known) >= _MAX_KEYS:
            del self._known[next(iter(self._known))]  # the oldest
        self._known[name] = (now, found)
        return found

    def _query(self, name: str, now: float) -> bytes | None:
        if len(self._failures) == _MAX_FAILURES and now - self._failures[0] < _PAUSE_S:
            raise KeyNotReachable("too many name servers do not answer")
        try:
            return self._ask(name)
        except KeyNotReachable:
            self._failures.append(now)
            raise


class _Signature(dkim.DKIM):  # type: ignore[misc]
    """One that dkimpy (1.1.8) verifies, with limits on its size, and with a rule that dkimpy leaves out."""

    def verify_headerprep(self, idx: int = 0) -> Any:
        """Before the key is asked for."""
        found = [value for name, value in self.headers if name.lower() == b"dkim-signature"]
        if len(found[idx]) > _MAX_SIGNATURE_BYTES:
            raise dkim.ValidationError("it is too long")
        return super().verify_headerprep(idx)

    def verify_sig_process(self, sig: Any, include_headers: Any, sig_header: Any, dnsfunc: Any) -> bool:
        """After the key has come."""
        if b"from" not in include_headers:
            raise dkim.ValidationError("it does not cover From")  # RFC 6376, section 5.4
        if self.ktag == b"rsa" and (
            self.keysize > _MAX_KEY_BITS or self.pk["publicExponent"].bit_length() > _MAX_EXPONENT_BITS
        ):
            raise dkim.KeyFormatError("public key too large")
        return bool(super().verify_sig_process(sig, include_headers, sig_header, dnsfunc))


def verify(content: bytes, domain: str, keys: DkimKeys) -> Proof | Unproved:
    """Whether a signature of the domain, or of a parent, holds for the whole mail; blocks for seconds.

    Args:
        content: the mail, byte by byte.
        domain: of the From address, in ASCII and lower case.

    Raises:
        KeyNotReachable: a key cannot be had now.
    """
    head = content.replace(b"\r\n", b"\n").partition(b"\n\n")[0] + b"\n\n"
    fields = mime.header_fields(head)
    if content.count(b"\n") > _MAX_LINES or head.count(b"\n") > _MAX_HEADER_LINES:
        return Unproved("it has too many lines for its DKIM signature to be checked")
    signatures = signature_tags(fields)
    reason = f"it has no valid DKIM signature of {domain}"
    unreachable: KeyNotReachable | None = None

    def find(name: bytes, timeout: float = 0) -> bytes | None:
        del timeout  # ours is shorter
        return _unless_testing(keys.find(name.decode("ascii", "replace")))

    for number, tags in enumerate(signatures[:_MAX_SIGNATURES]):
        if not is_aligned(tags.get("d", ""), domain) or tags.get("a", "").lower() == "rsa-sha1":  # RFC 8301
            continue
        if "l" in tags:
            reason = "its DKIM signature leaves the end of the text open (l=)"
            continue
        try:
            if _Signature(_with_single_blanks(content, tags)).verify(number, dnsfunc=find):
                return Proof(covered=covered_by(tags))
        except KeyNotReachable as error:
            unreachable = error
        except (dkim.DKIMException, ValueError, TypeError, IndexError, KeyError) as error:
            reason = (
                f"its DKIM signature of {tags['d'][:100]} is not valid ({str(error)[:200] or type(error).__name__})"
            )
    if unreachable is not None:
        raise unreachable
    return Unproved(reason=reason)


def _unless_testing(key: bytes | None) -> bytes | None:
    """Refuse a key that its domain only tests (RFC 6376, section 3.6.1); dkimpy (1.1.8) does not look."""
    flags = tags_of((key or b"").decode("ascii", "replace")).get("t", "").split(":")
    if "y" in (flag.strip() for flag in flags):
        raise dkim.ValidationError("the domain still tests its key, t=y")
    return key


def _with_single_blanks(content: bytes, tags: dict[str, str]) -> bytes:
    """The mail with single blanks, which is the same to a relaxed signature.

    dkimpy (1.1.8) looks for blanks at line ends from each blank of a line: minutes for a line with a million of them.
    """
    head = _HEAD.match(content)
    if head is None or tags.get("c", "").lower().partition("/")[2].strip() != "relaxed":
        return content
    return head[0] + _BLANKS.sub(b" ", content[head.end() :])


def _ask_dns(name: str) -> bytes | None:
    try:
        asked = dns.name.from_text(name)
    except (dns.exception.DNSException, ValueError):
        return None  # it is no name
    try:
        answer = dns.resolver.resolve(asked, dns.rdatatype.TXT, lifetime=_LOOKUP_S)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return None
    except dns.exception.DNSException as error:
        raise KeyNotReachable(f"the name servers of {name} do not answer ({type(error).__name__})") from error
    return next((b"".join(record.strings) for record in answer), None)
