"""DKIM signatures, verified by the gateway itself."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time

import dkim
import dns.exception
import dns.resolver
import pytest
from dkim.canonicalization import CanonicalizationPolicy
from dkim.crypto import parse_pem_private_key

from adapters.email import dkim_verification
from adapters.email.convert import Skipped
from adapters.email.dkim_verification import DkimKeys, KeyNotReachable, verify
from adapters.email.mail_authentication import Proof, Unproved
from gateway.testing.adapters import running
from tests.adapters.email.forgeries import BOT, SET_UPS, from_alice, heard, private_key_of, signed, txt
from tests.adapters.email.harness import OpenHarness, new_address

HELLO = "--inner\r\nContent-Type: text/plain\r\n\r\nhello\r\n--inner--\r\n"


def silent(name: str) -> bytes | None:
    raise KeyNotReachable(f"the name servers of {name} do not answer")


def test_a_valid_signature_proves_the_domain_and_what_it_covers() -> None:
    found = verify(from_alice(to=BOT), "example.org", DkimKeys(txt))
    assert isinstance(found, Proof)
    assert found.covered is not None
    assert found.covered >= {"from", "to", "subject", "date", "message-id", "content-type"}
    parent = verify(from_alice(to=BOT), "news.example.org", DkimKeys(txt))
    assert isinstance(parent, Proof)


@pytest.mark.parametrize(
    ("content", "domain", "reason"),
    [
        (from_alice(to=BOT).replace(b"hello", b"goodbye"), "example.org", "is not valid"),
        (from_alice(to=BOT).replace(b"Dear Bob", b"Dear Eve"), "example.org", "body hash mismatch"),
        (from_alice(to=BOT), "evil.test", "no valid DKIM signature of evil.test"),
        (b"From: a@example.org\r\n\r\nx", "example.org", "no valid DKIM signature"),
        (b"", "example.org", "no valid DKIM signature"),
    ],
)
def test_another_one_proves_nothing_and_the_log_hears_why(content: bytes, domain: str, reason: str) -> None:
    found = verify(content, domain, DkimKeys(txt))
    assert isinstance(found, Unproved)
    assert reason in found.reason or found.reason == f"it has no valid DKIM signature of {domain}"


@pytest.mark.parametrize("body", [" \t" * 2_000_000, "\r\n" * 4_000_000, " \r\n" * 400_000, "x " * 2_000_000])
def test_no_mail_takes_long(body: str) -> None:
    content = from_alice(to=BOT, body="x").removesuffix(b"x") + body.encode() + b"y"
    began = time.process_time()
    assert isinstance(verify(content, "example.org", DkimKeys(txt)), Unproved)
    assert time.process_time() - began < 10.0, "minutes, where blanks are looked at one by one"


def _claiming(tags: str) -> bytes:
    """A mail with a signature of the attacker's own domain, which says what it likes."""
    field = f"DKIM-Signature: v=1; a=rsa-sha256; c=simple/relaxed; d=evil.test; {tags}"
    return f"{field}\r\nFrom: eve@evil.test\r\n\r\nx\r\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        _claiming(f"s=s; h=from{' ' * 200_000}x; bh=aaaa; b=aaaa"),
        _claiming("s=s; h=from" + "\r\n " * 60_000 + "x; bh=aaaa; b=aaaa"),
        _claiming(f"s=s; h=from; bh=aaaa; b=a{' ' * 200_000}*"),
    ],
    ids=["blanks in h", "folded blanks in h", "blanks in b"],
)
def test_no_header_takes_long(content: bytes) -> None:
    began = time.process_time()
    assert isinstance(verify(content, "evil.test", DkimKeys(txt)), Unproved)
    assert time.process_time() - began < 2.0, "minutes, in which nothing else runs"


def test_no_key_takes_long() -> None:
    """An attacker's domain may publish any key, and Python raises to its exponent at a stroke."""

    def der(tag: int, content: bytes) -> bytes:
        size = len(content).to_bytes(4, "big")
        return bytes([tag]) + (bytes([len(content)]) if len(content) < 128 else b"\x84" + size) + content

    def key(modulus_bits: int, exponent_bits: int) -> bytes:
        numbers = [(1 << bits) - 1 for bits in (modulus_bits, exponent_bits)]
        pair = b"".join(der(2, number.to_bytes(number.bit_length() // 8 + 1, "big")) for number in numbers)
        algorithm = der(0x30, bytes.fromhex("06092a864886f70d0101010500"))
        return b"p=" + base64.b64encode(der(0x30, algorithm + der(3, b"\0" + der(0x30, pair))))

    content = signed(b"From: eve@evil.test\r\n\r\nx\r\n", domain="evil.test", owner="evil", covered=["from"])
    for bits in ((100_000, 100_000), (8_000, 8_000), (100_000, 17)):
        found = verify(content, "evil.test", DkimKeys(lambda _name, bits=bits: key(*bits)))  # type: ignore[misc]
        assert isinstance(found, Unproved)
        assert "public key too large" in found.reason


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"t=y; ", "the domain still tests its key, t=y"),
        (b"v=DKIM1; t = s : y ; ", "the domain still tests its key, t=y"),
        (b"t=s; ", None),
        (b"n=t=y; ", None),
    ],
)
def test_a_key_that_its_domain_only_tests_proves_nothing(tags: bytes, reason: str | None) -> None:
    def ask(name: str) -> bytes | None:
        key = txt(name)
        return None if key is None else tags + key.removeprefix(b"v=DKIM1; ")

    found = verify(from_alice(to=BOT), "example.org", DkimKeys(ask))
    if reason is None:
        assert isinstance(found, Proof)
    else:
        assert isinstance(found, Unproved)
        assert reason in found.reason


def test_a_signature_that_does_not_cover_from_proves_no_author() -> None:
    content = b"To: bot@example.net\r\nFrom: eve@example.org\r\n\r\nx\r\n"
    signing = dkim.DKIM(content)
    signing.hasher, signing.signature_algorithm = hashlib.sha256, b"rsa-sha256"
    policy = CanonicalizationPolicy.from_c_value(b"relaxed/relaxed")
    digest = base64.b64encode(hashlib.sha256(b"x\r\n").digest())
    tags = [(b"v", b"1"), (b"a", b"rsa-sha256"), (b"c", b"relaxed/relaxed"), (b"d", b"example.org"), (b"s", b"s")]
    tags += [(b"h", b"to"), (b"bh", digest), (b"b", b"0" * 60)]
    key = parse_pem_private_key(private_key_of("alice"))
    field = signing.gen_header(tags, (b"to",), policy, b"DKIM-Signature", key)
    mail = b"DKIM-Signature: " + field + content
    assert dkim.DKIM(mail).verify(dnsfunc=lambda name, **_: txt(name.decode())), "as dkimpy sees it"
    found = verify(mail, "example.org", DkimKeys(txt))
    assert isinstance(found, Unproved)
    assert "it does not cover From" in found.reason


@pytest.mark.parametrize("canonical", ["relaxed", "simple"])
@pytest.mark.parametrize("body", ["a  b\t\tc  \r\n \r\n\r\n", "", "\r\n", "  \r\nx", "x\r\n\r\n\r\n"])
def test_blanks_are_told_apart_as_the_signature_says(canonical: str, body: str) -> None:
    content = from_alice(to=BOT, body=body, body_canonical=canonical)
    assert isinstance(verify(content, "example.org", DkimKeys(txt)), Proof)
    changed = verify(content.replace(b"a  b", b"a b"), "example.org", DkimKeys(txt))
    assert isinstance(changed, Unproved) == (canonical == "simple" and body.startswith("a"))


def test_a_key_is_asked_for_once_an_hour() -> None:
    asked: list[str] = []
    now = 0.0

    def ask(name: str) -> bytes | None:
        asked.append(name)
        return None

    keys = DkimKeys(ask, clock=lambda: now)
    assert keys.find("a.") is None
    assert keys.find("a.") is None
    now = 3_601.0
    keys.find("a.")
    assert asked == ["a.", "a."]


def test_a_flood_of_domains_that_do_not_answer_holds_nobody_up_for_long() -> None:
    asked: list[str] = []
    now = 0.0

    def ask(name: str) -> bytes | None:
        asked.append(name)
        return b"key" if name == "ada." else silent(name)

    keys = DkimKeys(ask, clock=lambda: now)
    assert keys.find("ada.") == b"key"
    for number in range(50):
        with pytest.raises(KeyNotReachable):
            keys.find(f"{number}.")
    assert len(asked) == 6
    assert keys.find("ada.") == b"key", "who wrote before is heard"
    now = 61.0
    with pytest.raises(KeyNotReachable):
        keys.find("51.")
    assert len(asked) == 7


def test_a_key_that_was_had_lately_serves_while_its_name_servers_are_silent() -> None:
    is_silent, now = False, 0.0
    keys = DkimKeys(lambda name: silent(name) if is_silent else b"key", clock=lambda: now)
    assert keys.find("ada.") == b"key"
    is_silent, now = True, 80_000.0
    assert keys.find("ada.") == b"key"
    for number in range(10):
        with pytest.raises(KeyNotReachable):
            keys.find(f"{number}.")
    assert keys.find("ada.") == b"key"
    now = 90_000.0
    with pytest.raises(KeyNotReachable):
        keys.find("ada.")


def test_many_keys_push_out_the_oldest_alone() -> None:
    asked: list[str] = []

    def ask(name: str) -> bytes | None:
        asked.append(name)
        return b"key"

    keys = DkimKeys(ask)
    for number in range(1_001):
        keys.find(f"{number}.")
    asked.clear()
    keys.find("1000.")
    keys.find("1.")
    keys.find("0.")
    assert asked == ["0."]


@pytest.mark.parametrize(
    ("error", "is_there_none"),
    [
        (dns.resolver.NXDOMAIN(), True),
        (dns.resolver.NoAnswer(), True),
        (dns.resolver.NoNameservers(), False),
        (dns.resolver.LifetimeTimeout(), False),
        (dns.resolver.NoResolverConfiguration(), False),
        (dns.exception.Timeout(), False),
    ],
)
def test_what_the_name_server_says_is_told_apart_from_its_silence(
    error: dns.exception.DNSException, is_there_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(dns.resolver, "resolve", resolve)
    if is_there_none:
        assert DkimKeys().find("s._domainkey.example.org.") is None
    else:
        with pytest.raises(KeyNotReachable):
            DkimKeys().find("s._domainkey.example.org.")


@pytest.mark.parametrize("name", ["a..b", "\ufffd" * 70, "x" * 64 + ".org.", ".".join(["x" * 60] * 6), "\\300."])
def test_what_is_no_name_has_no_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_args: object, **_options: object) -> None:
        raise dns.resolver.NXDOMAIN

    monkeypatch.setattr(dns.resolver, "resolve", resolve)
    assert dkim_verification._ask_dns(name) is None


def test_a_key_that_cannot_be_had_now_is_no_forgery() -> None:
    with pytest.raises(KeyNotReachable):
        verify(from_alice(to=BOT), "example.org", DkimKeys(silent))
    assert isinstance(heard(SET_UPS["writes none"], from_alice(to=BOT).replace(b"Dear", b"dear")), Skipped)


async def test_a_mail_waits_for_the_key_and_is_answered_when_it_is_there(open_harness: OpenHarness) -> None:
    harness = await open_harness(address=BOT, username=new_address("bot"), trusted_authserv_id=None)
    harness.bot = harness.adapter._imap.username
    is_silent = True
    harness.adapter._keys = DkimKeys(lambda name: silent(name) if is_silent else txt(name))
    async with running(harness) as inbox:
        await harness.person.deliver(from_alice(to=BOT, body=HELLO), harness.bot)
        await harness.notes.until(lambda: "1" in harness.notes.progress["waiting"])
        assert not inbox.messages
        is_silent = False
        assert harness.adapter._inbound is not None
        harness.adapter._inbound._next_look.clear()  # as if half a minute had passed
        assert (await inbox.has(1))[0].text == "Subject: hello\n\nhello"
        await asyncio.wait_for(harness.notes.until(lambda: not harness.notes.progress["waiting"]), 60)
