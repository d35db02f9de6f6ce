"""What can be configured."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from adapters.webhook import Config, build
from tests.adapters.webhook.other_side import OTHER_SECRET, SECRET, services

HTTPS = "https://example.org/replies"


def config(**settings: Any) -> Config:
    return Config(**{"secret": SECRET, "reply_url": HTTPS, **settings})


@pytest.mark.parametrize(
    "url",
    [HTTPS, "https://example.org", "https://example.org:8443/a?b=c", "http://localhost:9000/", "http://127.0.0.1/",
     "http://127.9.9.9:1/", "http://[::1]:9000/"],
)  # fmt: skip
def test_an_address_that_is_encrypted_or_on_this_machine_is_good(url: str) -> None:
    assert config(reply_url=url).reply_url == url


@pytest.mark.parametrize(
    "url",
    ["http://example.org/", "http://10.0.0.1/", "http://0.0.0.0/", "http://localhost.example.org/",
     "http://127.0.0.1.example.org/", "http://[::2]/"],
)  # fmt: skip
def test_an_address_without_encryption_elsewhere_needs_a_word_of_its_own(url: str) -> None:
    with pytest.raises(ValidationError, match="expected https, or `allow_http: true`"):
        config(reply_url=url)
    assert config(reply_url=url, allow_http=True).reply_url == url


@pytest.mark.parametrize(
    "url",
    ["", "example.org", "ftp://example.org/", "https://", "https://example.org:99999/", "https://example.org:0/",
     "https://exa mple.org/", "https://example.org/#top", "https://example.org/\n", "https://exämple.org/",
     "https://[::1/", "//example.org/"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="expected one such as https://"):
        config(reply_url=url)


def test_a_password_has_no_place_in_the_address() -> None:
    with pytest.raises(ValidationError, match="holds a password") as caught:
        config(reply_url="https://me:canary@example.org/")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", ["secret", "previous_secret"])
def test_a_secret_that_is_none_is_refused_without_repeating_it(name: str) -> None:
    with pytest.raises(ValidationError, match="openssl rand") as caught:
        config(**{name: "whsec_canary"})
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [{"realm": ""}, {"realm": "a/b"}, {"realm": "x" * 65}, {"realm": "a\n"}, {"max_body_bytes": 1}, {"timeout_s": 0},
     {"markup": "html"}, {"max_text_chars": 0}, {"url": "x"}],
)  # fmt: skip
def test_other_settings_have_their_bounds(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**settings)


def test_no_secret_is_in_what_is_printed() -> None:
    settings = config(previous_secret=OTHER_SECRET)
    adapter = build(settings, services())
    for printed in (repr(settings), str(settings), repr(adapter), repr(vars(adapter))):
        assert SECRET not in printed
        assert OTHER_SECRET not in printed


def test_what_the_model_is_told_is_what_is_configured() -> None:
    adapter = build(config(max_text_chars=480, markup="plain"), services("sms"))
    assert adapter.capabilities.max_text_chars == 480
    assert adapter.capabilities.markup == "plain"
    assert (adapter.name, adapter.kind) == ("sms", "webhook")
    assert (adapter.http_path, adapter.http_access) == ("/hooks/sms", "public")
