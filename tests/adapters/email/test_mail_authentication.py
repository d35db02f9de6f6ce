"""Row 21, From is a claim: what counts as proof, and twelve kinds of mail that have none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest

from adapters.email.convert import Envelope, Location, Rules, Skipped, read_header
from adapters.email.mail_authentication import UNNAMED, AuthservTrust

US = "mx.example.net"
RECEIVED = (
    f"Received: from out.example.org (out.example.org [192.0.2.1]) by {US} with ESMTPS; Fri, 20 Nov 2026 10:00:00 +0000"
)
OUTSIDE = "Received: from laptop by out.example.org with ESMTPSA; Fri, 20 Nov 2026 09:59:59 +0000"
PASS = f"Authentication-Results: {US}; dmarc=pass header.from=example.org"
FAIL = f"Authentication-Results: {US}; dmarc=fail header.from=example.org; spf=fail smtp.mailfrom=eve@evil.test"
ADA = "From: Ada <ada@example.org>"
DATE = "Date: Fri, 20 Nov 2026 09:59:58 +0000"
PLACE = Location(uid_validity=1, uid=1, size_bytes=100, arrived_at=datetime(2026, 11, 20, 10, tzinfo=UTC))


RULES = Rules(
    channel="mail",
    own_addresses=frozenset({"bot@example.net"}),
    trust=AuthservTrust(authserv_id=US),
    unproved="ignore",
    max_mail_bytes=1_000_000,
)


def read(
    *lines: str,
    authserv_id: str = US,
    own_hosts: tuple[str, ...] = (),
    unproved: Literal["ignore", "stranger"] = "ignore",
) -> Envelope | Skipped:
    trust = AuthservTrust(authserv_id=authserv_id, hosts=own_hosts, is_always_first=authserv_id == UNNAMED)
    rules = replace(RULES, trust=trust, unproved=unproved)
    found = read_header("\r\n".join((*lines, "Message-ID: <1@example.org>", "", "")).encode(), PLACE, rules)
    return found if isinstance(found, Skipped) else found.reason_to_skip(rules) or found


FORGED = {
    "no field of our server": (RECEIVED, ADA),
    "our server says fail": (FAIL, RECEIVED, ADA),
    "a field with our server's name came with the mail, below our own": (FAIL, RECEIVED, PASS, ADA),
    "a field with our server's name stands below a Received of the outside": (RECEIVED, OUTSIDE, PASS, ADA),
    "another server says pass": (
        "Authentication-Results: mx.evil.test; dmarc=pass header.from=example.org",
        RECEIVED,
        ADA,
    ),
    "a name that only looks like our server's": (
        f"Authentication-Results: {US}.evil.test; dmarc=pass header.from=example.org",
        RECEIVED,
        ADA,
    ),
    "our server's name in another form than it writes it": (
        f"Authentication-Results: (mx) {US}; dmarc=pass header.from=example.org",
        f'Authentication-Results: "{US}"; dmarc=pass header.from=example.org',
        f"Authentication-Results: {US.upper()}; dmarc=pass header.from=example.org",
        RECEIVED,
        ADA,
    ),
    "DMARC passed for another domain": (
        f"Authentication-Results: {US}; dmarc=pass header.from=evil.test",
        RECEIVED,
        ADA,
    ),
    "two From fields": (PASS, RECEIVED, "From: Eve <eve@evil.test>", ADA),
    "two addresses in From": (PASS, RECEIVED, "From: ada@example.org, eve@evil.test"),
    "an address as the name of another one of the same domain": (
        PASS,
        RECEIVED,
        "From: ada@example.org <eve@example.org>",
    ),
    "DKIM passed for a domain that is not aligned": (
        f"Authentication-Results: {US}; dkim=pass header.d=evil.test; dmarc=none header.from=example.org",
        RECEIVED,
        ADA,
    ),
    "pass inside a comment and inside a quoted reason": (
        (
            f"Authentication-Results: {US}; dkim=fail (dmarc=pass header.from=example.org) "
            'reason="x; dmarc=pass header.from=example.org" header.d=example.org'
        ),
        RECEIVED,
        ADA,
    ),
    "DMARC stated twice": (
        f"Authentication-Results: {US}; dmarc=pass header.from=example.org; dmarc=fail header.from=example.org",
        RECEIVED,
        ADA,
    ),
    "SPF alone": (f"Authentication-Results: {US}; spf=pass smtp.mailfrom=ada@example.org", RECEIVED, ADA),
    "DKIM of a sister domain": (
        f"Authentication-Results: {US}; dkim=pass header.d=shop.example.org",
        RECEIVED,
        ADA,
    ),
    "DKIM passed and DMARC failed": (
        f"Authentication-Results: {US}; dkim=pass header.d=example.org; dmarc=fail header.from=example.org",
        RECEIVED,
        ADA,
    ),
    "a field that cannot be read": (f"Authentication-Results: {US}; dmarc=", PASS, RECEIVED, ADA),
    "a domain that looks alike in another script": (PASS, RECEIVED, "From: Ada <ada@ex\u0430mple.org>"),
}


@pytest.mark.parametrize("lines", FORGED.values(), ids=FORGED)
def test_a_forged_mail_is_not_read(lines: tuple[str, ...]) -> None:
    assert isinstance(read(*lines), Skipped)


@pytest.mark.parametrize("lines", FORGED.values(), ids=FORGED)
def test_a_forged_mail_is_a_strangers_where_strangers_are_heard(lines: tuple[str, ...]) -> None:
    found = read(*lines, unproved="stranger")
    assert isinstance(found, Skipped) or found.unproved


PROVED = {
    "our server says DMARC pass": (PASS, RECEIVED, ADA),
    "it writes the field below its Received, as Gmail does": (
        "Delivered-To: bot@example.net",
        "Received: by 2002:a05:6a10:1 with SMTP id x; Fri, 20 Nov 2026 10:00:01 +0000",
        RECEIVED,
        (
            f"Authentication-Results: {US}; dkim=pass header.i=@example.org header.s=s header.b=x; spf=pass (domain of "
            "ada@example.org designates 192.0.2.1 as permitted sender) smtp.mailfrom=ada@example.org; dmarc=pass "
            "(p=NONE sp=NONE dis=NONE) header.from=example.org"
        ),
        ADA,
    ),
    "another host of our own handed it on": (
        "Received: from mx.example.net by store.example.net with LMTP id x; Fri, 20 Nov 2026 10:00:01 +0000",
        PASS,
        RECEIVED,
        OUTSIDE,
        ADA,
    ),
    "an aligned DKIM signature, and no DMARC": (
        f"Authentication-Results: {US}; dkim=pass header.d=example.org",
        RECEIVED,
        ADA,
    ),
    "two fields, of OpenDMARC without a record and of OpenDKIM": (
        f"Authentication-Results: {US}; dmarc=none header.from=example.org",
        f"Authentication-Results: {US}; dkim=pass header.d=example.org",
        RECEIVED,
        ADA,
    ),
    "a signature of the parent domain": (
        f"Authentication-Results: {US}; dkim=pass header.d=example.org; dmarc=none header.from=news.example.org",
        RECEIVED,
        "From: ada@news.example.org",
    ),
    "results in capitals": (f"Authentication-Results: {US}; DMARC=pass header.from=EXAMPLE.ORG", RECEIVED, ADA),
    "a domain in another script, written out and in ASCII": (
        f"Authentication-Results: {US}; dmarc=pass header.from=xn--bcher-kva.example",
        RECEIVED,
        "From: Ada <ada@b\u00fccher.example>",
    ),
    "a forged field below ours changes nothing": (
        PASS,
        RECEIVED,
        OUTSIDE,
        f"Authentication-Results: {US}; dmarc=fail header.from=example.org",
        ADA,
    ),
}


@pytest.mark.parametrize("lines", PROVED.values(), ids=PROVED)
def test_a_mail_that_our_server_vouches_for_is_its_authors(lines: tuple[str, ...]) -> None:
    found = read(*lines)
    assert isinstance(found, Envelope), found
    assert found.unproved is None


@pytest.mark.parametrize("signer", ["example.org", "bounce.example.org"])
def test_what_dmarc_passed_for_is_no_more_than_the_signatures_cover(signer: str) -> None:
    """DMARC passes for a signature of a subdomain, too; and anybody may put another signature beside it."""
    signature = f"DKIM-Signature: v=1; d={signer}; h=from:date; b=x"
    wider = "DKIM-Signature: v=1; d=example.org; h=from:date:to:message-id:subject; b=x"
    for fields in ((signature,), (wider, signature)):
        found = read(PASS, RECEIVED, *fields, "To: bot@example.net", ADA, DATE)
        assert isinstance(found, Envelope)
        assert found.why_untrusted == "its signature does not cover message-id, to"
        assert not found.covers("subject")
    assert isinstance(read(PASS, RECEIVED, f"{signature}; l=10", ADA), Skipped)


@pytest.mark.parametrize("missing", ["Date", "Message-ID"])
def test_a_signature_over_a_field_that_is_not_there_does_not_tell_a_copy_from_the_mail(missing: str) -> None:
    signature = "DKIM-Signature: v=1; d=example.org; h=from:to:date:message-id; b=x"
    fields = [PASS, RECEIVED, signature, "To: bot@example.net", ADA, DATE, "Message-ID: <2@example.org>"]
    kept = [field for field in fields if not field.startswith(missing)]
    found = read_header("\r\n".join((*kept, "", "")).encode(), PLACE, RULES)
    assert isinstance(found, Envelope)
    assert found.why_untrusted == f"its signature does not cover {missing.lower()}"


@pytest.mark.parametrize(
    ("server", "neighbour", "is_ours"),
    [
        ("mx.example.org", "in.example.org", True),
        ("mx.example.co.uk", "in.example.co.uk", True),
        ("example.co.uk", "mx.evil.co.uk", False),
        ("example.com.au", "mx.evil.com.au", False),
        ("example.org", "mx.evil.org", False),
    ],
)
def test_a_server_speaks_for_its_own_domain_and_not_for_its_country(server: str, neighbour: str, is_ours: bool) -> None:
    """What stands below a Received of another's server may come from anybody."""
    received = f"Received: from evil.test (evil.test [192.0.2.9]) by {neighbour} with ESMTP; {DATE[6:]}"
    results = f"Authentication-Results: {server}; dmarc=pass header.from=example.org"
    found = read(received, results, ADA, authserv_id=server)
    assert isinstance(found, Envelope) is is_ours


def test_thousands_of_brackets_are_no_fault_of_ours() -> None:
    unread = read(f"Authentication-Results: {US}; {'(' * 7_000}", RECEIVED, ADA)
    assert isinstance(unread, Skipped)
    assert "cannot be read (RecursionError)" in unread.reason
    found = read(PASS, RECEIVED, f"To: {'(' * 9_000}", ADA)
    assert isinstance(found, Envelope)
    assert found.why_untrusted == "it names none of our addresses in To or Cc"


# https://learn.microsoft.com/defender-office-365/message-headers-eop-mdo
MICROSOFT = (
    "Authentication-Results: spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=example.org; dkim=pass (signature was "
    "verified) header.d=example.org;dmarc=pass action=none header.from=example.org;compauth=pass reason=100"
)


def test_microsofts_field_without_a_name_is_read_where_that_is_configured() -> None:
    lines = (
        "Received: from A.prod.outlook.com by B.prod.outlook.com with HTTPS; Fri, 20 Nov 2026 10:00:01 +0000",
        MICROSOFT,
        RECEIVED,
        ADA,
    )
    found = read(*lines, authserv_id="none", own_hosts=("outlook.com",))
    assert isinstance(found, Envelope), found
    assert found.unproved is None
    assert isinstance(read(*lines), Skipped), "a field without a name is nobody's, otherwise"


def test_microsofts_field_counts_once_and_only_on_top() -> None:
    failed = MICROSOFT.replace("dmarc=pass", "dmarc=fail")
    found = read(failed, MICROSOFT, ADA, authserv_id="none", own_hosts=("outlook.com",))
    assert isinstance(found, Skipped)
    below = read(OUTSIDE, MICROSOFT, ADA, authserv_id="none", own_hosts=("outlook.com",))
    assert isinstance(below, Skipped)


def test_a_host_that_hands_mail_on_inside_the_house_is_named_until_it_is_known() -> None:
    by_vm = "Received: from mx.example.net by vm with LMTP id 1; Fri, 20 Nov 2026 10:00:01 +0000"
    found = read(by_vm, PASS, RECEIVED, ADA)
    assert isinstance(found, Skipped)
    assert "`own_hosts` does not name vm" in found.reason
    assert isinstance(read(by_vm, PASS, RECEIVED, ADA, own_hosts=("vm",)), Envelope)
    nobody = read(RECEIVED, ADA, authserv_id="none")
    assert isinstance(nobody, Skipped)
    assert "of none" not in nobody.reason


@pytest.mark.parametrize("name", ["From", "To", "Subject", "Date", "Message-ID", "Content-Type", "MIME-Version"])
def test_a_mail_in_which_a_field_stands_twice_is_nobodys(name: str) -> None:
    once = {"From": ADA, "Message-ID": "X: y"}.get(name, f"{name}: a")
    found = read(PASS, RECEIVED, once, f"{name}: b", *([] if name == "From" else [ADA]))
    assert isinstance(found, Skipped)
    assert "twice" in found.reason or name == "From"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Authentication-Results: mail.other.test; dmarc=pass header.from=example.org", "is of mail.other.test"),
        (MICROSOFT, "a server that writes no name (`none`)"),
    ],
)
def test_whoever_has_configured_another_name_is_told_which_one_stands_there(line: str, said: str) -> None:
    found = read(line, RECEIVED, ADA)
    assert isinstance(found, Skipped)
    assert said in found.reason
