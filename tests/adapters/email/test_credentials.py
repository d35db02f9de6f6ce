"""Access tokens, from a token endpoint on loopback that follows RFC 6749, section 6."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from adapters.email.credentials import AccessTokens, OAuth, Password
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.testing.adapters import soon
from tests.adapters.email.mail_server import GOOD_TOKEN, OAuthProvider
from tests.conformance.notes import FakeNotes


@pytest.fixture
async def provider() -> AsyncIterator[OAuthProvider]:
    provider = OAuthProvider()
    yield provider
    provider.close()


def tokens(provider: OAuthProvider, notes: FakeNotes | None = None, refresh_token: str = "r-1") -> AccessTokens:  # noqa: S107 (made up)
    client = OAuth(
        token_url=provider.token_url,
        client_id="bot",
        client_secret=SecretStr("s3cret"),
        refresh_token=SecretStr(refresh_token),
        scope="mail",
    )
    return AccessTokens(client, notes or FakeNotes())


async def test_a_token_is_asked_for_once_and_used_until_it_ends(provider: OAuthProvider) -> None:
    source = tokens(provider)
    assert set(await soon(asyncio.gather(*(source.get() for _ in range(10))))) == {f"{GOOD_TOKEN}|bot"}
    assert provider.requests == [
        {
            "grant_type": "refresh_token",
            "client_id": "bot",
            "refresh_token": "r-1",
            "client_secret": "s3cret",
            "scope": "mail",
        }
    ]


async def test_a_token_that_ends_soon_or_was_refused_is_replaced(provider: OAuthProvider) -> None:
    source = tokens(provider)
    provider.answers = [(200, {"access_token": "short", "expires_in": 60}), (200, {"access_token": "next"})]
    assert await soon(source.get()) == "short"
    assert await soon(source.get()) == "next"
    source.drop("another one")
    assert await soon(source.get()) == "next"
    source.drop("next")
    assert await soon(source.get()) == f"{GOOD_TOKEN}|bot"


async def test_a_refresh_token_that_is_replaced_survives_a_restart_until_another_one_is_configured(
    provider: OAuthProvider,
) -> None:
    notes = FakeNotes()
    provider.rotate_to = "r-2"
    await soon(tokens(provider, notes).get())
    await soon(tokens(provider, notes).get())
    await soon(tokens(provider, notes, refresh_token="r-new").get())
    assert [request["refresh_token"] for request in provider.requests] == ["r-1", "r-2", "r-new"]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (400, {"error": "invalid_grant", "error_description": "token r-1 has been revoked"}),
        (401, {"error": "invalid_client"}),
        (400, {"error": "r-1"}),
        (403, {}),
    ],
)
async def test_a_refusal_needs_an_operator_and_tells_no_secret(
    provider: OAuthProvider, status: int, answer: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.answers = [(status, answer)]
    with pytest.raises(AdapterAuthFailed) as caught:
        await soon(tokens(provider).get())
    for secret in ("r-1", "s3cret"):
        assert secret not in f"{caught.value} {caught.value.__context__!r} {caplog.text}"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, {}),
        (503, {"error": "temporarily_unavailable"}),
        (429, {}),
        (200, {"token": "x"}),
        (200, {"access_token": 5}),
    ],
)
async def test_a_provider_in_trouble_is_asked_again_later(
    provider: OAuthProvider, status: int, answer: dict[str, str]
) -> None:
    provider.answers = [(status, answer)]
    source = tokens(provider)
    with pytest.raises(AdapterNotReady):
        await soon(source.get())
    assert await soon(source.get()) == f"{GOOD_TOKEN}|bot"


async def test_a_provider_that_is_away_is_asked_again_later(provider: OAuthProvider) -> None:
    source = tokens(provider)
    provider.close()
    with pytest.raises(AdapterNotReady):
        await soon(source.get())


def test_secrets_show_in_no_representation(provider: OAuthProvider) -> None:
    source = tokens(provider)
    assert "hunter2" not in repr(Password("hunter2"))
    assert "r-1" not in repr(source._login)
    assert "s3cret" not in repr(source._login)
