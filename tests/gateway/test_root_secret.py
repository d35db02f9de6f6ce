"""One secret: read in each form people write it in, and keys that say nothing about it or about one another."""

from __future__ import annotations

import base64
import secrets
from typing import get_args

import pytest

from gateway.domain.root_secret import Purpose, derived, fingerprint, hkdf, read_root_secret

SECRET = bytes(range(32))
# RFC 5869, appendix A.1 to A.3: all that is there for SHA-256.
VECTORS = [
    (
        b"\x0b" * 22,
        bytes(range(0x0D)),
        bytes(range(0xF0, 0xFA)),
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x50)),
        bytes(range(0x60, 0xB0)),
        bytes(range(0xB0, 0x100)),
        (
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
            "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
        ),
    ),
    (
        b"\x0b" * 22,
        b"",
        b"",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]


@pytest.mark.parametrize(("material", "salt", "info", "expected"), VECTORS, ids=["A.1", "A.2", "A.3"])
def test_keys_are_derived_as_the_rfc_does(material: bytes, salt: bytes, info: bytes, expected: str) -> None:
    made = hkdf(material, salt=salt, info=info, length_bytes=len(expected) // 2)
    assert made.hex() == expected


@pytest.mark.parametrize(
    "text",
    [
        SECRET.hex(),
        SECRET.hex().upper(),
        base64.b64encode(SECRET).decode(),
        base64.b64encode(SECRET).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET).decode(),
        SECRET.hex() + "\n",
    ],
    ids=["hex", "capitals", "base64", "without its end", "base64url", "a line"],
)
def test_a_secret_is_the_same_however_it_is_written(text: str) -> None:
    assert read_root_secret(text) == SECRET


def test_both_alphabets_of_base64_are_read() -> None:
    secret = b"\xfb\xff" * 8 + SECRET[:16]
    for text in (base64.b64encode(secret), base64.urlsafe_b64encode(secret)):
        assert read_root_secret(text.decode()) == secret


def test_what_a_random_generator_gives_is_always_taken() -> None:
    for _ in range(1_000):
        secret = secrets.token_bytes(32)
        assert read_root_secret(secret.hex()) == secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        "changeme",
        SECRET.hex()[:-1],
        SECRET.hex() + "00",
        base64.b64encode(SECRET[:16]).decode(),
        "é" * 64,
        "ab" * 32,
    ],
)
def test_what_is_no_secret_is_refused_with_how_to_make_one_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="openssl rand -hex 32") as caught:
        read_root_secret(text)
    assert caught.value.__cause__ is None
    assert not text or text not in str(caught.value)


def test_a_key_stays_what_it_is_from_version_to_version() -> None:
    assert derived(SECRET, "pepper").hex() == "8c1f4a97583628c3c1aa79d6ea91382f8eeda2d784227ead5c7cf5dacf07bd95"
    assert derived(SECRET, "token").hex() == "90f99912a1cb25b87172879f3a443afe0f0a9edbd1b30f8142e0ec91e08425a0"
    assert fingerprint(SECRET) == "2fc72c007911236f3ac42cbcc2a7558a"


def test_each_purpose_and_each_secret_has_keys_of_its_own() -> None:
    others = [SECRET, SECRET[:-1] + b"\xff"]
    keys = {derived(secret, purpose) for secret in others for purpose in get_args(Purpose)}
    assert len(keys) == len(others) * len(get_args(Purpose))
    assert {len(key) for key in keys} == {32}


def test_a_fingerprint_tells_secrets_apart_and_is_no_part_of_a_secret_or_a_key() -> None:
    assert fingerprint(SECRET) == fingerprint(read_root_secret(base64.b64encode(SECRET).decode()))
    assert fingerprint(SECRET) != fingerprint(SECRET[::-1])
    for key in (SECRET, derived(SECRET, "pepper"), derived(SECRET, "token")):
        assert fingerprint(SECRET) not in key.hex()
