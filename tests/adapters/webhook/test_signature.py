"""Row 23: signatures, by the specification and its reference library."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from adapters.webhook.signature import BadSignature, SignedHeaders, Signer, read_headers, read_secret
from tests.adapters.webhook.other_side import OTHER_SECRET, SECRET, signature, signed

NOW_S = 1_700_000_000.9
BODY = b'{"text": "hello"}'
GOOD = signed(BODY, "msg_1", at_s=NOW_S)

# The vector of the reference libraries' own tests:
# https://github.com/standard-webhooks/standard-webhooks/blob/main/libraries/python/tests/test_webhooks.py
VECTOR_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VECTOR = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
VECTOR_BODY = b'{"test": 2432232314}'


def headers_of(headers: Mapping[str, str] | Sequence[tuple[str, str]], now_s: float = NOW_S) -> SignedHeaders:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    return read_headers(Headers(raw=raw).getlist, now_s=now_s)


def test_the_vector_of_the_reference_libraries_comes_out() -> None:
    signer = Signer([VECTOR_SECRET])
    assert signer.headers(VECTOR["webhook-id"], VECTOR_BODY, now_s=1_614_265_330.5) == VECTOR
    signer.check(headers_of(VECTOR, now_s=1_614_265_330), VECTOR_BODY)


def test_a_good_signature_is_good() -> None:
    Signer([SECRET]).check(headers_of(GOOD), BODY)


@pytest.mark.parametrize("part", ["webhook-id", "webhook-timestamp", "webhook-signature", "body"])
def test_one_bit_that_flips_anywhere_is_refused(part: str) -> None:
    signer = Signer([SECRET])
    whole = BODY if part == "body" else GOOD[part].encode()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        headers = GOOD if part == "body" else {**GOOD, part: bytes(flipped).decode("latin-1")}
        with pytest.raises(BadSignature):
            signer.check(headers_of(headers), bytes(flipped) if part == "body" else BODY)


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"", "cut away"), (BODY[:-1], "cut"), (BODY + b" ", "a space more"), (BODY.replace(b": ", b":"), "written anew")],
)
def test_a_body_that_is_not_the_one_that_was_signed_is_refused(body: bytes, why: str) -> None:
    del why
    with pytest.raises(BadSignature):
        Signer([SECRET]).check(headers_of(GOOD), body)


@pytest.mark.parametrize("away_s", [-300, -299, 0, 299, 300])
def test_a_timestamp_within_the_window_is_taken(away_s: int) -> None:
    now_s = 1_700_000_000.0
    Signer([SECRET]).check(headers_of(signed(BODY, "msg_1", at_s=now_s + away_s), now_s), BODY)


@pytest.mark.parametrize("away_s", [-86_400, -301, 301, 86_400])
def test_a_timestamp_outside_of_the_window_is_refused(away_s: int) -> None:
    now_s = 1_700_000_000.0
    with pytest.raises(BadSignature, match="set the clock"):
        headers_of(signed(BODY, "msg_1", at_s=now_s + away_s), now_s)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({name: value for name, value in GOOD.items() if name != left_out} for left_out in GOOD),
        *([*GOOD.items(), (name, value)] for name, value in GOOD.items()),
        *({**GOOD, "webhook-id": id_} for id_ in ("", "a.b", "a b", "\u00e4", "x" * 201, "a\nb")),
        *(
            {**GOOD, "webhook-timestamp": text}
            for text in ("", "now", "1.7e9", "-1", "+1", "17e8", "\u00b2", "9" * 400)
        ),
    ],
)
def test_headers_that_are_not_of_their_form_are_refused(headers: Mapping[str, str] | Sequence[tuple[str, str]]) -> None:
    with pytest.raises(BadSignature):
        headers_of(headers)


TEXT = GOOD["webhook-signature"].partition(",")[2]


@pytest.mark.parametrize(
    "signatures",
    ["", TEXT, f"v1a,{TEXT}", f"v2,{TEXT}", f"v1={TEXT}", "v1,", f"v1,{TEXT.rstrip('=')}", f"v1,{TEXT},", "v1,\u00e4"],
)
def test_what_is_no_signature_of_our_version_does_not_count(signatures: str) -> None:
    with pytest.raises(BadSignature):
        Signer([SECRET]).check(headers_of({**GOOD, "webhook-signature": signatures}), BODY)


def test_one_good_signature_among_others_is_enough() -> None:
    other = signature(BODY, "msg_1", GOOD["webhook-timestamp"], OTHER_SECRET)
    signatures = f"v1a,abc v1,{other} {GOOD['webhook-signature']} nonsense"
    Signer([SECRET]).check(headers_of({**GOOD, "webhook-signature": signatures}), BODY)


def test_a_signature_with_another_secret_is_refused() -> None:
    with pytest.raises(BadSignature):
        Signer([OTHER_SECRET]).check(headers_of(GOOD), BODY)


def test_while_a_secret_is_replaced_both_sides_may_change_first() -> None:
    replacing = Signer([OTHER_SECRET, SECRET])
    replacing.check(headers_of(GOOD), BODY)  # they still sign with the old one
    both = headers_of(replacing.headers("msg_1", BODY, now_s=NOW_S))
    for secret in (SECRET, OTHER_SECRET):  # they know only one of them
        Signer([secret]).check(both, BODY)


@given(body=st.binary(max_size=200), key=st.binary(min_size=24, max_size=64), at_s=st.integers(0, 10**11))
def test_what_is_signed_is_what_the_other_side_computes(body: bytes, key: bytes, at_s: int) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    headers = Signer([secret]).headers("msg_1", body, now_s=at_s)
    assert headers == signed(body, "msg_1", secret=secret, at_s=at_s)
    Signer([secret]).check(headers_of(headers, at_s), body)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "canary",
        base64.b64encode(bytes(32)).decode(),
        "whsec_canary!canary!canary!canary!canary",
        "whsec_canary\u00e4",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsk_" + base64.b64encode(bytes(32)).decode(),
    ],
)
def test_a_secret_that_is_none_is_refused_without_repeating_it(secret: str) -> None:
    with pytest.raises(ValueError, match="expected `whsec_`") as caught:
        read_secret(secret)
    assert "canary" not in str(caught.value)
